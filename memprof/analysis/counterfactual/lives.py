"""When allocations are made, when they go and what they ask for: a table that can be edited and allocated anew."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from memprof.allocator.simulation import CachingAllocator
from memprof.trace.model import Source

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memprof.analysis.findings.view import Mask, View
    from memprof.trace.model import Settings

    Times = NDArray[np.float64]

__all__ = ["Lives", "lives_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lives:
    """One row per allocation. Times are events of the recording, with fractions for what was put in between."""

    born: Times
    """-1 for what was there before the first event."""
    freed: Times
    requested: NDArray[np.int64]
    """Bytes that the program asks for; what asks for nothing is left out."""
    stream: NDArray[np.int64]
    end: int
    """Events of the recording: what is freed then or later stays."""
    settings: Settings
    cached: bool
    """Whether a caching allocator serves the requests; the CPU has none."""

    def __len__(self) -> int:
        """Count the allocations."""
        return len(self.born)

    def having(self, **columns: NDArray[np.generic]) -> Lives:
        """Return the same rows with other columns."""
        return replace(self, **columns)  # type: ignore[arg-type] # the names are those of columns

    def without(self, gone: Mask) -> Lives:
        """Return the rows that are not `gone`."""
        kept = ~gone
        return replace(
            self,
            born=self.born[kept],
            freed=self.freed[kept],
            requested=self.requested[kept],
            stream=self.stream[kept],
        )

    def more(self, rows: list[tuple[float, float, int]]) -> Lives:
        """Return all rows and others, of which birth, end and bytes are given, on the stream that most are on."""
        if not rows:
            return self
        born, freed, requested = zip(*rows, strict=True)
        streams, counts = np.unique(self.stream, return_counts=True)
        stream = int(streams[counts.argmax()]) if len(streams) else 0
        return replace(
            self,
            born=np.append(self.born, born),
            freed=np.append(self.freed, freed),
            requested=np.append(self.requested, np.array(requested, np.int64)),
            stream=np.append(self.stream, np.full(len(rows), stream, np.int64)),
        )

    def highest(self) -> int:
        """Return the highest sum of requested bytes."""
        rows = self.freed > self.born
        times = np.concatenate([self.born[rows], self.freed[rows]])
        changes = np.concatenate([self.requested[rows], -self.requested[rows]])
        # A free comes before an allocation of the same moment.
        order = np.lexsort((changes, times))
        return int(np.cumsum(changes[order]).max(initial=0))

    def peak(self) -> int:
        """Return the highest allocated bytes, as the caching allocator would have it, with its rounding."""
        if not self.cached:
            return self.highest()
        rows = np.flatnonzero((self.requested > 0) & (self.freed > self.born))
        leaving = np.flatnonzero(self.freed[rows] < self.end)
        times = np.concatenate([self.born[rows], self.freed[rows][leaving]])
        order = np.lexsort((np.append(np.ones(len(rows)), np.zeros(len(leaving))), times))
        allocator = CachingAllocator(self.settings)
        places: dict[int, int] = {}
        streams, sizes = self.stream[rows].tolist(), self.requested[rows].tolist()
        going = leaving.tolist()
        for step in order.tolist():
            if step < len(rows):
                places[step] = allocator.malloc(sizes[step], streams[step])
            else:
                allocator.free(places.pop(going[step - len(rows)]))
        return allocator.counters.allocated_peak


def lives_of(view: View) -> Lives:
    """Return the allocations of a device as they were."""
    allocations = view.account.replay.allocations
    return Lives(
        born=allocations.born.astype(np.float64),
        freed=allocations.freed.astype(np.float64),
        requested=allocations.requested.copy(),
        stream=allocations.stream,
        end=len(view.account.device.events),
        settings=view.account.trace.settings,
        cached=view.account.trace.source is not Source.PROFILED,
    )
