"""Lives of addresses: which end belongs to which beginning, without a loop over the events.

The same address is used many times. Sorted by address and event, the entries of one address read like *alloc, freed,
released, alloc, freed, released*: a life begins at every alloc, and at the first entry of an address if that is not an
alloc (it was live before the first event).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Column = NDArray[np.int64]

__all__ = ["ALLOC", "FREE", "RELEASE", "Lives", "find", "lives_of", "overlapping", "stable_order"]

ALLOC, FREE, RELEASE = 0, 1, 2
"""Kinds of entries that `lives_of` takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lives:
    """Lives sorted by address, then birth; `end` (the number of events) stands for "never"."""

    address: Column
    born: Column
    """Event; -1 where the life began before the first event."""
    freed: Column
    """Event of the first free entry."""
    released: Column
    """Event of the first release entry."""
    first: Column
    """Event of the life's first entry: its alloc, or, where that is missing, what ended it."""
    strays: int
    """Free and release entries that end nothing: the life at their address had ended."""
    unended: int
    """Lives whose address was allocated again although nothing had ended them."""


def stable_order(values: Column) -> Column:
    """Return the order that sorts `values`, equal ones staying in their order.

    Values and positions are packed into one number where they fit: sorting numbers is several times as fast as a
    stable argsort.
    """
    count = len(values)
    if count == 0:
        return np.empty(0, dtype=np.int64)
    low, high = int(values.min()), int(values.max())
    bits = count.bit_length()
    if (high - low).bit_length() + bits > 63:
        return np.argsort(values, kind="stable")
    packed = ((values - low) << bits) | np.arange(count, dtype=np.int64)
    packed.sort()
    return packed & ((1 << bits) - 1)


def find(haystack: Column, needles: Column) -> tuple[Column, NDArray[np.bool_]]:
    """Look up values in a sorted column without repeats: their rows, and which of them are there at all."""
    rows = np.searchsorted(haystack, needles)
    rows[rows == len(haystack)] = 0
    there = haystack[rows] == needles if len(haystack) else np.zeros(len(needles), dtype=np.bool_)
    return rows, there


def overlapping(address: Column, size: Column, other_address: Column, other_size: Column) -> NDArray[np.bool_]:
    """Tell which ranges overlap at least one of the others."""
    if len(other_address) == 0:
        return np.zeros(len(address), dtype=np.bool_)
    order = np.argsort(other_address, kind="stable")
    reach = np.maximum.accumulate((other_address + other_size)[order])
    before = np.searchsorted(other_address[order], address + size)  # others that begin before the range ends
    result: NDArray[np.bool_] = (before > 0) & (reach[np.maximum(before - 1, 0)] > address)
    return result


def lives_of(event: Column, address: Column, kind: NDArray[np.uint8], end: int) -> Lives:
    """Pair the entries at `event` (rising), by address, into lives.

    A life without a free entry ends where it is released, one without a release entry where it is freed; what that
    means if a file has none of them at all is up to the caller (`end` stays where neither is there).
    """
    order = stable_order(address)
    address, kind, event = address[order], kind[order], event[order]
    same = np.empty(len(order), dtype=np.bool_)
    same[:1] = False
    np.equal(address[1:], address[:-1], out=same[1:])
    start = ~same
    start |= kind == ALLOC
    life = np.cumsum(start) - 1
    starts = np.flatnonzero(start)
    count = len(starts)
    first = event[starts]
    born = np.where(kind[starts] == ALLOC, first, -1)
    ends = []
    strays = 0
    for code in (FREE, RELEASE):
        rows = np.flatnonzero(kind == code)[::-1]
        ended = np.full(count, end, dtype=np.int64)
        ended[life[rows]] = event[rows]  # backwards, so that the first of several stays
        ends.append(ended)
        strays += len(rows) - int(np.count_nonzero(ended != end))
    freed, released = ends
    # An address that is allocated again had ended before: its end was lost, the next birth is the latest it can be.
    again = np.flatnonzero((released[:-1] == end) & same[starts[1:]]) if count else np.empty(0, dtype=np.int64)
    lost = again[freed[again] == end]
    freed[lost] = first[lost + 1]
    released[again] = np.where(freed[again] < first[again + 1], freed[again], first[again + 1])
    return Lives(
        address=address[starts],
        born=born,
        freed=freed,
        released=released,
        first=first,
        strays=strays,
        unended=len(lost),
    )
