"""The heap: segments and the blocks that tile them at one moment of a replay, and whether the end is the file's."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from memprof.allocator.segments import segment_lives
from memprof.trace.model import Action, BlockState, Source

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memprof.allocator.account import Replay
    from memprof.trace.model import DeviceTrace

    Column = NDArray[np.int64]

__all__ = ["Heap", "MappedRanges", "final_differences", "final_heap", "heap_at"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Heap:
    """Segments and blocks at one moment, both sorted by address; free neighbours are one block."""

    segment_address: Column
    segment_size: Column
    segment: Column
    """Row of its segment for each block; -1 for a block outside of all known segments."""
    address: Column
    size: Column
    state: NDArray[np.uint8]
    """`BlockState` codes."""

    def bytes_of(self, state: BlockState) -> int:
        """Sum the blocks in a state."""
        return int(self.size[self.state == state].sum())


class MappedRanges:
    """Address ranges that are mapped: the pages of expandable segments. Neighbours are one range."""

    def __init__(self) -> None:
        self.begins: list[int] = []
        self.ends: list[int] = []

    def add(self, begin: int, end: int) -> None:
        """Map a range; parts of it may be mapped already."""
        low, high = bisect_left(self.ends, begin), bisect_right(self.begins, end)
        if low < high:
            begin, end = min(begin, self.begins[low]), max(end, self.ends[high - 1])
        self.begins[low:high], self.ends[low:high] = [begin], [end]

    def remove(self, begin: int, end: int) -> None:
        """Unmap a range; parts of it may not be mapped."""
        low, high = bisect_right(self.ends, begin), bisect_left(self.begins, end)
        if low >= high:
            return
        kept = [(self.begins[low], begin), (end, self.ends[high - 1])]
        kept = [(left, right) for left, right in kept if left < right]
        self.begins[low:high] = [left for left, _ in kept]
        self.ends[low:high] = [right for _, right in kept]


def heap_at(device: DeviceTrace, replay: Replay, event: int, source: Source = Source.UNKNOWN) -> Heap:
    """Return the heap after `event` (-1: before the first one) of a replay of this device.

    Without a caching allocator (`Source.PROFILED`) every block is a segment of its own.
    """
    rows = replay.allocations
    used = np.flatnonzero((rows.born <= event) & (rows.released > event))
    used = used[np.argsort(rows.address[used], kind="stable")]
    address, size = rows.address[used], rows.size[used]
    state = np.where(rows.freed[used] > event, BlockState.ALLOCATED, BlockState.PENDING_FREE).astype(np.uint8)
    if source is Source.PROFILED:
        return Heap(
            segment_address=address,
            segment_size=size,
            segment=np.arange(len(used)),
            address=address,
            size=size,
            state=state,
        )
    begin, end = _segments_at(device, event)
    segment = np.searchsorted(begin, address, side="right") - 1
    if len(begin):
        segment[address >= end[segment]] = -1
    # Free blocks are what is left: from each segment's begin and each used block's end to whatever is next.
    inside = segment >= 0
    gap_begin = np.concatenate([begin, (address + size)[inside]])
    gap_segment = np.concatenate([np.arange(len(begin)), segment[inside]])
    following = np.searchsorted(address, gap_begin)
    limit = np.append(address, np.iinfo(np.int64).max)[following]
    gap_size = np.minimum(limit, end[gap_segment]) - gap_begin
    free = gap_size > 0
    address = np.concatenate([address, gap_begin[free]])
    order = np.argsort(address, kind="stable")
    return Heap(
        segment_address=begin,
        segment_size=end - begin,
        segment=np.concatenate([segment, gap_segment[free]])[order],
        address=address[order],
        size=np.concatenate([size, gap_size[free]])[order],
        state=np.concatenate([state, np.full(int(free.sum()), BlockState.INACTIVE, dtype=np.uint8)])[order],
    )


def final_heap(device: DeviceTrace) -> Heap:
    """Return the heap that the file itself ends with: its segments and blocks."""
    return Heap(
        segment_address=device.segments.address,
        segment_size=device.segments.total_size,
        segment=device.blocks.segment.astype(np.int64),
        address=device.blocks.address,
        size=device.blocks.size,
        state=device.blocks.state,
    )


def final_differences(device: DeviceTrace, replay: Replay, source: Source = Source.UNKNOWN) -> tuple[str, ...]:
    """Compare the end of a replay with the file's segments, block by block; empty if they are the same."""
    ours, theirs = heap_at(device, replay, len(device.events) - 1, source), final_heap(device)
    differences = []
    for what, names in (
        ("segments", ("segment_address", "segment_size")),
        ("blocks", ("segment", "address", "size", "state")),
    ):
        mine = set(zip(*(getattr(ours, name).tolist() for name in names), strict=True))
        file = set(zip(*(getattr(theirs, name).tolist() for name in names), strict=True))
        for only, where in ((mine - file, "the replay"), (file - mine, "the file")):
            if only:
                example = ", ".join(f"{name} {value}" for name, value in zip(names, min(only), strict=True))
                differences.append(f"{len(only):,} {what} are only in {where}, such as {example}")
    return tuple(differences)


def _segments_at(device: DeviceTrace, event: int) -> tuple[Column, Column]:
    """Return begins and ends of the segments after `event`; mapped neighbours are one, as in torch's snapshots."""
    events, segments = device.events, device.segments
    lives = segment_lives(device)
    there = (lives.born <= event) & (lives.freed > event)
    mapped = MappedRanges()
    for row in np.flatnonzero(segments.expandable):
        mapped.add(int(segments.address[row]), int(segments.address[row] + segments.total_size[row]))
    later = np.flatnonzero((events.action == Action.SEGMENT_MAP) | (events.action == Action.SEGMENT_UNMAP))
    for row in later[later > event][::-1]:
        undo = mapped.remove if events.action[row] == Action.SEGMENT_MAP else mapped.add
        undo(int(events.address[row]), int(events.address[row] + events.size[row]))
    begin = np.concatenate([lives.address[there], np.array(mapped.begins, dtype=np.int64)])
    end = np.concatenate([(lives.address + lives.size)[there], np.array(mapped.ends, dtype=np.int64)])
    order = np.argsort(begin, kind="stable")
    return begin[order], end[order]
