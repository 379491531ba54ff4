"""How large the blocks of a recording are: the rounded request, or up to whatever is next.

The trace says where every allocation was put, so nothing has to be searched for. A block of the small pool or of an
expandable segment is the rounded request. One of the large pool is that too, unless 1 MiB or less would have remained
of the free block: then it takes the remainder. All blocks of the large pool, used and free, are larger than 1 MiB, so
when a used block or the end of the segment follows within 1 MiB, the remainder was taken. That is a question about
single moments, not about a sequence of states: it is answered for all allocations together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from memprof.allocator.lifetimes import overlapping, stable_order
from memprof.allocator.rules import SMALL_SIZE, slack_limits
from memprof.trace.model import Action

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memprof.allocator.segments import SegmentLives
    from memprof.trace.model import DeviceTrace, Settings

    Column = NDArray[np.int64]

__all__ = ["block_sizes"]


def block_sizes(
    *,
    address: Column,
    rounded: Column,
    born: Column,
    released: Column,
    segments: SegmentLives,
    device: DeviceTrace,
    settings: Settings,
) -> Column:
    """Return the bytes of each allocation's block; rows in any order, but the lives of one address by birth."""
    size: Column = rounded.copy()
    if settings.expandable_segments:
        return size
    rows = np.flatnonzero(rounded > SMALL_SIZE)
    rows = rows[~_in_expandable(address[rows], device)]
    if len(rows) == 0:
        return size
    size[rows] += _remainders(
        begin=address[rows],
        rounded=rounded[rows],
        born=born[rows],
        released=released[rows],
        segments=segments,
        settings=settings,
    )
    return size


def _in_expandable(address: Column, device: DeviceTrace) -> NDArray[np.bool_]:
    """Tell which addresses are in memory that is, or was, mapped into an expandable segment."""
    mapped = np.flatnonzero(
        (device.events.action == Action.SEGMENT_MAP) | (device.events.action == Action.SEGMENT_UNMAP)
    )
    final = device.segments.expandable
    begin = np.concatenate([device.events.address[mapped], device.segments.address[final]])
    size = np.concatenate([device.events.size[mapped], device.segments.total_size[final]])
    return overlapping(address, np.ones(len(address), dtype=np.int64), begin, size)


def _remainders(
    *, begin: Column, rounded: Column, born: Column, released: Column, segments: SegmentLives, settings: Settings
) -> Column:
    """Return what each block of the large pool has beyond its rounded request.

    Walls are what a block may end at: the beginnings of blocks and the ends of segments, each while it lives. Every
    allocation looks at the walls from the end of its rounded request on, nearest first, until one lives at its birth.
    """
    by_birth = np.argsort(segments.born, kind="stable")
    # Beginnings have even codes and ends odd ones: at one address, each kind has its own lives.
    code = np.concatenate([begin << 1, ((segments.address + segments.size)[by_birth] << 1) | 1])
    order = stable_order(code)
    code = code[order]
    wall_born = np.concatenate([born, segments.born[by_birth]])[order]
    wall_freed = np.concatenate([released, segments.freed[by_birth]])[order]
    new = np.empty(len(code), dtype=np.bool_)
    new[:1] = True
    np.not_equal(code[1:], code[:-1], out=new[1:])
    first = np.flatnonzero(new)
    place = code[first] >> 1
    span = int(max(wall_born.max(), born.max())) + 2
    moment = (np.cumsum(new) - 1) * span + wall_born + 1  # rising: sorted by place, then by birth

    low = begin + rounded
    high = low + slack_limits(rounded, settings)
    # Memory from before the first event: the moment of its birth is not known, but whatever begins within reach while
    # it lives begins at its end.
    base_until = np.where(born < 0, released, -1)
    remainder = np.zeros(len(begin), dtype=np.int64)
    at = np.searchsorted(place, low)
    open_rows = np.arange(len(begin))
    while True:
        inside = at < len(place)
        inside[inside] = place[at[inside]] <= high[open_rows[inside]]
        open_rows, at = open_rows[inside], at[inside]
        if len(open_rows) == 0:
            return remainder
        last = np.searchsorted(moment, at * span + born[open_rows] + 1, side="right") - 1
        hit = (last >= first[at]) & (wall_freed[np.maximum(last, 0)] > born[open_rows])
        hit |= wall_born[first[at]] < base_until[open_rows]
        found = open_rows[hit]
        remainder[found] = place[at[hit]] - low[found]
        open_rows, at = open_rows[~hit], at[~hit] + 1
