"""The part of the CUDA driver that the caching allocator stands on: so much memory, and addresses for it.

Addresses matter because best fit breaks ties by address; where the driver puts a segment is its own affair. The orders
here are ways to ask how much that matters.
"""

from __future__ import annotations

import random
from bisect import insort
from enum import Enum

__all__ = ["AddressOrder", "Driver"]

_MIB = 1 << 20
_BASE = 0x7F00_0000_0000
_CHUNK = 32 * _MIB


class AddressOrder(Enum):
    """Where the next segment is placed."""

    CUDA = "cuda"
    """As seen in recordings from an H200: address space is taken from the top down in chunks of 32 MiB; what is left
    of a chunk serves smaller segments, lowest address first."""
    UP = "up"
    """Each above the one before."""
    DOWN = "down"
    """Each below the one before."""
    RANDOM = "random"
    """Anywhere, without overlaps; repeatable by seed."""


class Driver:
    """Memory of one device, handed out in ranges of address space.

    Parameters
    ----------
    capacity
        Bytes that this process can get: the card's memory less what is outside of the allocator. None has no limit.
    total
        Bytes of the card, as ``cudaMemGetInfo`` says; `capacity` if not given.
    order, seed
        Where segments are placed.
    """

    def __init__(
        self,
        capacity: int | None = None,
        *,
        total: int | None = None,
        order: AddressOrder = AddressOrder.CUDA,
        seed: int = 0,
    ) -> None:
        self.capacity = capacity
        self.total = total if total is not None else capacity
        self.used = 0
        self._order = order
        self._random = random.Random(seed)  # noqa: S311  an order of addresses is no secret
        self._top = _BASE
        self._bottom = _BASE
        self._left: list[tuple[int, int]] = []  # (address, size) of unused address space, by address

    @property
    def free(self) -> int | None:
        """Bytes that can still be had."""
        return None if self.capacity is None else self.capacity - self.used

    def take(self, size: int) -> bool:
        """Take physical memory; False if there is not enough."""
        if self.capacity is not None and self.used + size > self.capacity:
            return False
        self.used += size
        return True

    def give(self, size: int) -> None:
        """Give physical memory back."""
        self.used -= size

    def malloc(self, size: int) -> int | None:
        """Return the address of a new segment (``cudaMalloc``), None if there is not enough memory."""
        return self.reserve(size) if self.take(size) else None

    def release(self, address: int, size: int) -> None:
        """Take a segment back (``cudaFree``); its addresses can be used again."""
        self.give(size)
        self.unreserve(address, size)

    def reserve(self, size: int) -> int:
        """Return unused address space (``cuMemAddressReserve``)."""
        if self._order is not AddressOrder.RANDOM:
            for index, (address, length) in enumerate(self._left):
                if length >= size:
                    self._left[index : index + 1] = [(address + size, length - size)] if length > size else []
                    return address
        if self._order is AddressOrder.UP:
            self._top += size
            return self._top - size
        if self._order is AddressOrder.CUDA:
            length = -(-size // _CHUNK) * _CHUNK
            self._bottom -= length
            if length > size:
                insort(self._left, (self._bottom + size, length - size))
            return self._bottom
        if self._order is AddressOrder.DOWN or self._random.random() < 0.5:
            self._bottom -= size
            return self._bottom
        self._top += size
        return self._top - size

    def unreserve(self, address: int, size: int) -> None:
        """Take address space back; neighbours become one range."""
        insort(self._left, (address, size))
        merged: list[tuple[int, int]] = []
        for begin, length in self._left:
            if merged and sum(merged[-1]) == begin:
                merged[-1] = (merged[-1][0], merged[-1][1] + length)
            else:
                merged.append((begin, length))
        self._left = merged
