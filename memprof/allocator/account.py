"""The account that a replay yields: allocated, pending and reserved at every event, and every allocation's life."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Allocations", "Replay"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocations:
    """Every allocation that the trace or the final segments know of; one row each, in order of birth.

    An allocation counts as allocated from event `born` up to the event before `freed`.
    """

    born: NDArray[np.int64]
    """Alloc event; -1 for memory that was live before the first event."""
    freed: NDArray[np.int64]
    """Event that lowers allocated (``free_requested``, or ``free_completed`` in files without those); the number of
    events where it was still live at the end."""
    released: NDArray[np.int64]
    """Event that gives the block back to the allocator (``free_completed``); the number of events if none did."""
    address: NDArray[np.int64]
    requested: NDArray[np.int64]
    """Bytes that the program asked for."""
    size: NDArray[np.int64]
    """Bytes of the whole block: what ``torch.cuda.memory_allocated`` counts."""
    stream: NDArray[np.int64]
    stack: NDArray[np.int32]
    """Row of the file's stack table; -1 without one."""

    def __len__(self) -> int:
        """Count the allocations."""
        return len(self.born)

    def live_at(self, event: int) -> NDArray[np.int64]:
        """Return the rows that are allocated after `event` (-1: before the first event)."""
        return np.flatnonzero((self.born <= event) & (self.freed > event))


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The state after every event. Row i of a column is the state after event i - 1; row 0 the state before any."""

    allocated: NDArray[np.int64]
    """Bytes of whole blocks; what ``torch.cuda.memory_allocated`` says."""
    requested: NDArray[np.int64]
    """Bytes that the program asked for, of the same allocations."""
    pending: NDArray[np.int64]
    """Bytes of blocks that are freed but wait for another stream."""
    reserved: NDArray[np.int64] | None
    """Bytes of segments; None where the source has no caching allocator (CPU)."""
    allocations: Allocations
    notes: tuple[str, ...] = ()
    """Where trace and segments disagree, what was lost, and what was done about it."""

    @property
    def peak_event(self) -> int:
        """First event that reaches the highest allocated bytes; -1 if that is the state before any."""
        return int(np.argmax(self.allocated)) - 1
