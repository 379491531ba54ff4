"""The part of the CUDA driver that the caching allocator stands on: so much memory, and addresses for it.

Addresses matter because best fit breaks ties by address; where the driver puts a segment is its own affair. The orders
here are ways to ask how much that matters.
"""

from __future__ import annotations

import random
from enum import Enum

from memprof.allocator.chunks import CHUNK, Chunks, TopDown, insert_range

__all__ = ["AddressOrder", "Driver"]

_BASE = 0x7F00_0000_0000
_RESERVED_BASE = 0x3_0200_0000
"""Where ``cuMemAddressReserve`` began in all recordings with expandable segments."""


class AddressOrder(Enum):
    """Where the next segment is placed."""

    CUDA = "cuda"
    """As on an H200: in chunks of address space, see `memprof.allocator.chunks`."""
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
        self._top = _RESERVED_BASE if order is AddressOrder.CUDA else _BASE
        self._bottom = _BASE
        self._left: list[tuple[int, int]] = []  # (address, size) of unused address space, by address
        self.chunks = Chunks(TopDown(_BASE)) if order is AddressOrder.CUDA else None
        """Where ``cudaMalloc`` looks for place in the order `CUDA`; what else the process takes there moves it."""

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
        if not self.take(size):
            return None
        return self.chunks.reserve(size) if self.chunks is not None else self._place(size)

    def release(self, address: int, size: int) -> None:
        """Take a segment back (``cudaFree``); its addresses can be used again."""
        self.give(size)
        if self.chunks is not None:
            self.chunks.unreserve(address, size)
        else:
            insert_range(self._left, address, size)

    def reserve(self, size: int) -> int:
        """Return unused address space (``cuMemAddressReserve``); in the order `CUDA` it is apart from segments."""
        return self._place(_of_chunks(size))

    def unreserve(self, address: int, size: int) -> None:
        """Take address space back."""
        insert_range(self._left, address, _of_chunks(size))

    def _place(self, size: int) -> int:
        if self._order is not AddressOrder.RANDOM:
            for index, (address, length) in enumerate(self._left):
                if length >= size:
                    self._left[index : index + 1] = [(address + size, length - size)] if length > size else []
                    return address
        if self._order in (AddressOrder.UP, AddressOrder.CUDA):
            self._top += size
            return self._top - size
        if self._order is AddressOrder.DOWN or self._random.random() < 0.5:
            self._bottom -= size
            return self._bottom
        self._top += size
        return self._top - size


def _of_chunks(size: int) -> int:
    return -(-size // CHUNK) * CHUNK
