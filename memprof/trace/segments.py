"""The allocator's state at the moment of the snapshot: segments and their blocks, all versions, into columns."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from memprof.trace.check import (
    ADDRESS_END,
    DEVICES,
    INT64_END,
    SIZE_END,
    as_dict,
    as_int,
    as_list,
    int_column,
    malformed,
    shown,
)
from memprof.trace.model import Blocks, BlockState, Segments

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memprof.trace.model import Indices
    from memprof.trace.stacks import StackInterner

__all__ = ["RawState", "read_segments"]

BLOCK_STATES = {
    "inactive": BlockState.INACTIVE,
    "active_allocated": BlockState.ALLOCATED,
    "active_pending_free": BlockState.PENDING_FREE,
    # torch's documentation has this name, its code the one above.
    "active_awaiting_free": BlockState.PENDING_FREE,
}

_SMALL_SEGMENT = 2 << 20
"""``kSmallBuffer`` of ``c10/cuda/CUDACachingAllocator.cpp``: what a small pool's segment has been since torch 1.0."""


@dataclass(slots=True, kw_only=True)
class RawState:
    """Segments and blocks of one device; the stacks of the blocks are provisional rows of a `StackInterner`."""

    segments: Segments
    blocks: Blocks
    notes: list[str]

    def finish(self, stack_rows: Indices) -> Blocks:
        """Return the blocks with final stack rows; `stack_rows` is what `StackInterner.finish` gave."""
        columns = {name: getattr(self.blocks, name) for name in Blocks.__slots__}
        return Blocks(**columns | {"stack": stack_rows[self.blocks.stack]})


def read_segments(segments: list[Any], *, stacks: StackInterner) -> dict[int, RawState]:
    """Return what a snapshot's ``segments`` say, by device.

    Raises
    ------
    InputError
        A value of the wrong type or range; segments or blocks that overlap, or a block outside its segment.
    """
    by_device: dict[int, list[int]] = {}
    for index, segment in enumerate(segments):
        place = f"segments[{index}]"
        device = as_int(as_dict(segment, place).get("device", 0), f"{place}.device", end=DEVICES)
        by_device.setdefault(device, []).append(index)
    pools: dict[tuple[int, int], int] = {(0, 0): 0}
    return {device: _read_device(segments, rows, pools, stacks) for device, rows in sorted(by_device.items())}


def _read_device(
    segments: list[dict[str, Any]], rows: list[int], pools: dict[tuple[int, int], int], stacks: StackInterner
) -> RawState:
    def place(index: int) -> str:
        return f"segments[{rows[index]}]"

    notes: list[str] = []
    own = [segments[row] for row in rows]
    address = int_column(own, "address", place=place, end=ADDRESS_END)
    total = int_column(own, "total_size", place=place)
    if total.sum(dtype=np.float64) >= SIZE_END:
        malformed("segments", "have sizes that add up to more than any device has")
    stream = int_column(own, "stream", place=place, low=-INT64_END, end=INT64_END, default=0)
    large = np.array([_is_large(segment, place(i)) for i, segment in enumerate(own)], np.bool_)
    pool = np.array([_pool(segment, place(i), pools) for i, segment in enumerate(own)], np.int32)
    expandable = np.array([_flag(segment, "is_expandable", place(i)) for i, segment in enumerate(own)], np.bool_)

    order = np.argsort(address, kind="stable")
    address, total = address[order], total[order]
    overlap = np.flatnonzero(address[:-1] + total[:-1] > address[1:])
    if len(overlap):
        first = int(overlap[0])
        malformed(place(int(order[first])), f"overlaps segments[{rows[int(order[first + 1])]}]")
    found = Segments(
        address=address,
        total_size=total,
        stream=stream[order],
        large=large[order],
        pool=pool[order],
        expandable=expandable[order],
    )
    names = [place(int(index)) for index in order]
    return RawState(
        segments=found,
        blocks=_read_blocks([own[int(index)] for index in order], names, found, stacks, notes),
        notes=notes,
    )


def _is_large(segment: dict[str, Any], place: str) -> bool:
    kind = segment.get("segment_type")
    if kind is None:
        return bool(segment["total_size"] != _SMALL_SEGMENT)
    if type(kind) is not str or kind not in ("small", "large"):
        malformed(f"{place}.segment_type", f"is {shown(kind)}, neither 'small' nor 'large'")
    return kind == "large"


def _flag(segment: dict[str, Any], key: str, place: str) -> bool:
    value = segment.get(key, False)
    if type(value) is not bool:
        malformed(f"{place}.{key}", f"is {shown(value)}, not a bool")
    return value


def _pool(segment: dict[str, Any], place: str, pools: dict[tuple[int, int], int]) -> int:
    owner = segment.get("segment_pool_id")
    if owner is None:
        return 0
    parts = as_list(owner, f"{place}.segment_pool_id")
    if len(parts) != 2:
        malformed(f"{place}.segment_pool_id", f"has {len(parts)} parts, not 2")
    first, second = (as_int(part, f"{place}.segment_pool_id", end=INT64_END) for part in parts)
    return pools.setdefault((first, second), len(pools))


def _read_blocks(
    owners: list[dict[str, Any]], names: list[str], segments: Segments, stacks: StackInterner, notes: list[str]
) -> Blocks:
    lists = [as_list(owner.get("blocks", []), f"{name}.blocks") for owner, name in zip(owners, names, strict=True)]
    counts = np.array([len(blocks) for blocks in lists], np.int64)
    starts = np.concatenate(([0], np.cumsum(counts)))
    rows = list(chain.from_iterable(lists))
    segment = np.repeat(np.arange(len(owners), dtype=np.int32), counts)

    def place(index: int) -> str:
        owner = int(segment[index])
        return f"{names[owner]}.blocks[{index - int(starts[owner])}]"

    for index, block in enumerate(rows):
        as_dict(block, place(index) if type(block) is not dict else "")
    size = int_column(rows, "size", place=place)
    if size.sum(dtype=np.float64) >= SIZE_END:
        malformed("segments", "have blocks that add up to more than any device has")
    # Where a file has no addresses, blocks lie one behind the other from the start of their segment.
    before = np.concatenate(([0], np.cumsum(size)))
    running = segments.address[segment] + before[:-1] - before[starts[segment]]
    address = int_column(rows, "address", place=place, end=ADDRESS_END, default=lambda index: int(running[index]))
    state = np.array([_state(block, place, i) for i, block in enumerate(rows)], np.uint8)
    requested, stack = _requested_and_stack(rows, size, place, stacks)
    order = np.lexsort((address, segment))
    blocks = Blocks(
        segment=segment[order],
        address=address[order],
        size=size[order],
        requested=requested[order],
        state=state[order],
        stack=stack[order],
    )
    over = np.flatnonzero((blocks.requested > blocks.size) & (blocks.state != BlockState.INACTIVE))
    if len(over):
        index = int(order[over[0]])
        malformed(f"{place(index)}.requested_size", f"is more than the block's size, {int(size[index])}")
    np.minimum(blocks.requested, blocks.size, out=blocks.requested)
    _check_inside(blocks, segments, [place(int(index)) for index in order] if len(order) else [])
    _compare_totals(blocks, owners, notes)
    return _fill_gaps(blocks, segments, notes)


def _state(block: dict[str, Any], place: Any, index: int) -> int:
    state = block.get("state")
    code = BLOCK_STATES.get(state) if type(state) is str else None
    if code is None:
        malformed(f"{place(index)}.state", f"is {shown(state)}, which is no state of a block")
    return int(code)


def _requested_and_stack(
    rows: list[dict[str, Any]], size: NDArray[np.int64], place: Any, stacks: StackInterner
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return requested bytes and provisional stack row per block, from its own keys or from torch 2.0's ``history``."""
    found: list[Any] = []
    requested = np.empty(len(rows), np.int64)
    for index, block in enumerate(rows):
        latest: dict[str, Any] = {}
        if block.get("history"):
            latest = as_dict(as_list(block["history"], f"{place(index)}.history")[0], f"{place(index)}.history[0]")
        asked = block.get("requested_size", latest.get("real_size"))
        requested[index] = size[index] if asked is None else as_int(asked, f"{place(index)}.requested_size")
        frames = block.get("frames") or latest.get("frames") or ()
        if type(frames) is not list and type(frames) is not tuple:
            malformed(f"{place(index)}.frames", f"is {shown(frames)}, not a list")
        found.append(frames)
    return requested, np.array(stacks.rows(found), np.int32)


def _check_inside(blocks: Blocks, segments: Segments, names: list[str]) -> None:
    """Make sure that no block leaves its segment and no two blocks overlap."""
    end = blocks.address + blocks.size
    low = segments.address[blocks.segment]
    high = low + segments.total_size[blocks.segment]
    outside = np.flatnonzero((blocks.address < low) | (end > high))
    if len(outside):
        malformed(names[int(outside[0])], "lies outside its segment")
    overlap = np.flatnonzero((blocks.segment[:-1] == blocks.segment[1:]) & (end[:-1] > blocks.address[1:]))
    if len(overlap):
        malformed(names[int(overlap[0]) + 1], "overlaps the block before it")


def _compare_totals(blocks: Blocks, owners: list[dict[str, Any]], notes: list[str]) -> None:
    """Note where a segment's own totals differ from the sum of its blocks, which is what memprof uses."""
    allocated = np.zeros(len(owners), np.int64)
    np.add.at(allocated, blocks.segment, np.where(blocks.state == BlockState.ALLOCATED, blocks.size, 0))
    differ = [
        index
        for index, owner in enumerate(owners)
        if type(owner.get("allocated_size")) is int and owner["allocated_size"] != allocated[index]
    ]
    if differ:
        notes.append(
            f"{len(differ)} of {len(owners)} segments name another allocated size than their blocks add up to: "
            "the blocks count"
        )


def _fill_gaps(blocks: Blocks, segments: Segments, notes: list[str]) -> Blocks:
    """Return blocks that tile their segments: what no block covers is an inactive one, and a note."""
    # Per segment: a sentinel behind the last block closes the segment, so that every gap is in front of something.
    count = len(segments)
    segment = np.concatenate((blocks.segment, np.arange(count, dtype=np.int32)))
    start = np.concatenate((blocks.address, segments.address + segments.total_size))
    end = np.concatenate((blocks.address + blocks.size, segments.address + segments.total_size))
    order = np.lexsort((np.arange(len(segment)), start, segment))
    segment, start, end = segment[order], start[order], end[order]
    previous = np.empty_like(start)
    previous[1:] = end[:-1]
    first = np.ones(len(segment), np.bool_)
    first[1:] = segment[1:] != segment[:-1]
    previous[first] = segments.address[segment[first]]
    gap = start - previous
    holes = np.flatnonzero(gap > 0)
    if not len(holes):
        return blocks
    notes.append(
        f"blocks do not cover their segments: {int(gap[holes].sum())} bytes in {len(holes)} places are taken as free"
    )
    filled = len(holes)
    merged_segment = np.concatenate((blocks.segment, segment[holes]))
    merged_address = np.concatenate((blocks.address, previous[holes]))
    order = np.lexsort((merged_address, merged_segment))
    hole_size = gap[holes]
    return Blocks(
        segment=merged_segment[order],
        address=merged_address[order],
        size=np.concatenate((blocks.size, hole_size))[order],
        requested=np.concatenate((blocks.requested, np.zeros(filled, np.int64)))[order],
        state=np.concatenate((blocks.state, np.full(filled, BlockState.INACTIVE, np.uint8)))[order],
        stack=np.concatenate((blocks.stack, np.zeros(filled, np.int32)))[order],
    )
