"""How the CUDA driver places what is allocated: in chunks of address space, the newest first.

Read off addresses on an H200 with driver 580.159.04. Place for a segment is looked for in the chunks of address space
that the driver holds: in the newest chunk that has a large enough hole, in the smallest such hole of that chunk. If
there is none, the driver maps a new chunk, of a multiple of 32 MiB. A chunk in which nothing is left goes back to the
operating system.
"""

from __future__ import annotations

from bisect import insort
from typing import Protocol

__all__ = ["CHUNK", "AddressSpace", "Chunks", "TopDown", "insert_range"]

CHUNK = 32 << 20
"""Granularity and alignment of chunks, bytes."""
_PAGE = 4096


class AddressSpace(Protocol):
    """Where chunks come from: the operating system's address space of the process."""

    def map(self, size: int) -> int:
        """Return the address of unused space of `size` bytes, a multiple of `CHUNK`, aligned to it."""
        ...

    def unmap(self, address: int, size: int) -> None:
        """Take back what `map` returned."""
        ...


class TopDown:
    """An address space that nobody else uses, handed out as Linux does: the highest place that is large enough.

    The driver asks for `CHUNK` less a page more than it needs, and gives back what is outside of the aligned chunk.
    """

    def __init__(self, top: int) -> None:
        self._bottom = top
        self._holes: list[tuple[int, int]] = []  # (address, size) above the bottom, by address

    def map(self, size: int) -> int:
        """Return the highest unused address at which `size` bytes, and what the driver asks for beside, are free."""
        for index in range(len(self._holes) - 1, -1, -1):
            address, length = self._holes[index]
            if length >= size + CHUNK - _PAGE:
                self._holes[index] = (address, length - size)
                return address + length - size
        self._bottom -= size
        return self._bottom

    def unmap(self, address: int, size: int) -> None:
        """Take space back."""
        insert_range(self._holes, address, size)
        if self._holes[0][0] == self._bottom:
            self._bottom += self._holes.pop(0)[1]


class _Chunk:
    """A chunk and its holes."""

    __slots__ = ("address", "holes", "largest", "size")

    def __init__(self, address: int, size: int, used: int) -> None:
        self.address = address
        self.size = size
        self.holes = [(address + used, size - used)] if size > used else []  # (address, size), by address
        self.largest = size - used

    def take(self, size: int) -> int:
        """Return the address of the smallest hole with `size` bytes, the lowest of equal ones; there must be one."""
        length, address = min((length, address) for address, length in self.holes if length >= size)
        index = self.holes.index((address, length))
        self.holes[index : index + 1] = [(address + size, length - size)] if length > size else []
        self._measure()
        return address

    def give(self, address: int, size: int) -> None:
        """Make a hole."""
        insert_range(self.holes, address, size)
        self._measure()

    def _measure(self) -> None:
        self.largest = max((length for _, length in self.holes), default=0)


class Chunks:
    """The driver's chunks over an address space."""

    def __init__(self, space: AddressSpace) -> None:
        self._space = space
        self._chunks: list[_Chunk] = []  # the newest first

    def reserve(self, size: int) -> int:
        """Return addresses for `size` bytes."""
        for chunk in self._chunks:
            if chunk.largest >= size:
                return chunk.take(size)
        length = -(-size // CHUNK) * CHUNK
        chunk = _Chunk(self._space.map(length), length, size)
        self._chunks.insert(0, chunk)
        return chunk.address

    def unreserve(self, address: int, size: int) -> None:
        """Take addresses back; a chunk that is empty goes back to the address space."""
        index, chunk = next(
            (index, chunk)
            for index, chunk in enumerate(self._chunks)
            if chunk.address <= address < chunk.address + chunk.size
        )
        chunk.give(address, size)
        if chunk.largest == chunk.size:
            del self._chunks[index]
            self._space.unmap(chunk.address, chunk.size)


def insert_range(ranges: list[tuple[int, int]], address: int, size: int) -> None:
    """Add a range to ranges in order of address; neighbours become one."""
    insort(ranges, (address, size))
    index = ranges.index((address, size))
    if index + 1 < len(ranges) and address + size == ranges[index + 1][0]:
        size += ranges.pop(index + 1)[1]
        ranges[index] = (address, size)
    if index and sum(ranges[index - 1]) == address:
        before = ranges.pop(index - 1)
        ranges[index - 1] = (before[0], before[1] + size)
