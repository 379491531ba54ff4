"""Segments over time: what the trace says of them, made to agree with the segments that the file ends with.

A segment of ``cudaMalloc`` lives from ``segment_alloc`` to ``segment_free``. An expandable one is address space in
which pages are mapped and unmapped; to the account only the bytes matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from memprof.allocator.lifetimes import ALLOC, RELEASE, find, lives_of, overlapping
from memprof.trace.model import Action

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memprof.trace.model import DeviceTrace

    Column = NDArray[np.int64]

__all__ = ["SegmentLives", "segment_lives"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentLives:
    """Segments that ``cudaMalloc`` made, in no particular order, and the bytes of all segments at every event."""

    address: Column
    size: Column
    born: Column
    """Event; -1 for those that were there before the first event."""
    freed: Column
    """Event; the number of events where it is still there at the end."""
    reserved: Column
    """Bytes of all segments, expandable ones too; row i is the state after event i - 1."""
    notes: tuple[str, ...]


def segment_lives(device: DeviceTrace) -> SegmentLives:
    """Rebuild the segments of every moment from the trace and from those at its end, which have the last word."""
    events, segments = device.events, device.segments
    count, notes = len(events), list[str]()
    rows = np.flatnonzero((events.action == Action.SEGMENT_ALLOC) | (events.action == Action.SEGMENT_FREE))
    kind = np.where(events.action[rows] == Action.SEGMENT_ALLOC, ALLOC, RELEASE).astype(np.uint8)
    lives = lives_of(rows, events.address[rows], kind, count)
    address, size, born, freed = lives.address, events.size[lives.first], lives.born, lives.released.copy()

    final_address, final_size = segments.address[~segments.expandable], segments.total_size[~segments.expandable]
    live = np.flatnonzero(freed == count)
    if len(segments):
        place, there = find(final_address, address[live])
        if wrong := int(np.count_nonzero(size[live[there]] != final_size[place[there]])):
            notes.append(f"{wrong:,} segments have another size in the file's segments than in the trace: it is used")
        size[live[there]] = final_size[place[there]]
        lost = live[~there]
        if len(lost):
            freed[lost] = count - 1
            notes.append(
                f"{len(lost):,} segments ({int(size[lost].sum()):,} bytes) live by the trace are not in the file's "
                "segments: counted as freed at the last event"
            )
    unseen = ~find(address[live], final_address)[1]  # lives are sorted by address
    if unseen.any():
        late = overlapping(final_address[unseen], final_size[unseen], address, size)
        address = np.concatenate([address, final_address[unseen]])
        size = np.concatenate([size, final_size[unseen]])
        born = np.concatenate([born, np.where(late, count - 1, -1)])
        freed = np.concatenate([freed, np.full(len(late), count, dtype=np.int64)])
        if late.any():
            notes.append(
                f"{int(late.sum()):,} segments of the file lie where the trace had freed others: counted as "
                "allocated at the last event"
            )

    change = np.zeros(count + 1, dtype=np.int64)
    np.add.at(change, born + 1, size)
    gone = freed < count
    np.subtract.at(change, freed[gone] + 1, size[gone])
    mapped = np.flatnonzero((events.action == Action.SEGMENT_MAP) | (events.action == Action.SEGMENT_UNMAP))
    growth = np.where(events.action[mapped] == Action.SEGMENT_MAP, events.size[mapped], -events.size[mapped])
    change[mapped + 1] += growth
    before = int(segments.total_size[segments.expandable].sum()) - int(growth.sum())
    change[0] += max(before, 0)
    if before < 0 and len(segments):
        change[count] += before
        notes.append(
            f"the trace maps {-before:,} bytes of expandable segments more than the file's segments have: counted as "
            "unmapped at the last event"
        )
    return SegmentLives(
        address=address, size=size, born=born, freed=freed, reserved=np.cumsum(change), notes=tuple(notes)
    )
