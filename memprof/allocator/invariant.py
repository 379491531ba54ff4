"""What is true of a caching allocator's heap at every moment; tests hold every engine to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from memprof.trace.model import BlockState

if TYPE_CHECKING:
    from memprof.allocator.heap import Heap

__all__ = ["broken_rules"]


def broken_rules(
    heap: Heap, *, allocated: int | None = None, pending: int | None = None, reserved: int | None = None
) -> tuple[str, ...]:
    """Return, in words, each rule that the heap breaks; empty if it is sound.

    Blocks tile their segments, no two free blocks are neighbours, and the totals, where given, are those of the
    blocks.
    """
    broken = []
    if (outside := np.flatnonzero(heap.segment < 0)).size:
        broken.append(f"{len(outside)} blocks lie outside of all segments, such as {int(heap.address[outside[0]]):#x}")
    segment, address, size = heap.segment, heap.address, heap.size
    if (empty := np.flatnonzero(size <= 0)).size:
        broken.append(f"{len(empty)} blocks have no bytes, such as {int(address[empty[0]]):#x}")
    first = np.flatnonzero(np.diff(segment, prepend=-2) != 0)
    last = np.flatnonzero(np.diff(segment, append=-2) != 0)
    owner = segment[first]
    if not np.array_equal(owner, np.arange(len(heap.segment_address))):
        broken.append("not every segment has blocks of its own, in order")
    else:
        if not np.array_equal(address[first], heap.segment_address):
            broken.append("a segment does not begin with a block")
        if not np.array_equal((address + size)[last], heap.segment_address + heap.segment_size):
            broken.append("a segment does not end with a block")
    together = segment[1:] == segment[:-1]
    if (torn := np.flatnonzero(together & ((address + size)[:-1] != address[1:]))).size:
        broken.append(f"{len(torn)} blocks do not end where the next begins, such as {int(address[torn[0]]):#x}")
    free = heap.state == BlockState.INACTIVE
    if (split := np.flatnonzero(together & free[1:] & free[:-1])).size:
        broken.append(f"{len(split)} free blocks have a free neighbour, such as {int(address[split[0]]):#x}")
    for what, told, counted in (
        ("allocated", allocated, heap.bytes_of(BlockState.ALLOCATED)),
        ("pending", pending, heap.bytes_of(BlockState.PENDING_FREE)),
        ("reserved", reserved, int(heap.segment_size.sum())),
    ):
        if told is not None and told != counted:
            broken.append(f"{what} is said to be {told} bytes, but its blocks are {counted}")
    return tuple(broken)
