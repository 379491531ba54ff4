"""Blocks that are live, so that a free which nobody reported is seen when its memory is given out again.

The profiler follows the threads of the run. Another thread that happens to collect garbage frees memory unseen.
"""

from __future__ import annotations

from bisect import bisect_left, insort

__all__ = ["LiveBlocks"]


class LiveBlocks:
    """Live blocks by address; none overlaps another."""

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}
        self._addresses: list[int] = []

    def take(self, address: int, size: int) -> list[tuple[int, int]]:
        """Add a block; return (address, size) of those that it overlaps, which are no longer live."""
        at, end = self._overlapped(address, size)
        gone = [(lost, self._sizes.pop(lost)) for lost in self._addresses[at:end]]
        del self._addresses[at:end]
        self._sizes[address] = size
        insort(self._addresses, address)
        return gone

    def overlaps(self, address: int, size: int) -> bool:
        """Tell whether a live block has any of `size` bytes at `address`."""
        at, end = self._overlapped(address, size)
        return at < end

    def holder(self, address: int) -> int | None:
        """Return the address of the live block that has the byte at `address`; None if none has."""
        at, end = self._overlapped(address, 1)
        return self._addresses[at] if at < end else None

    def _overlapped(self, address: int, size: int) -> tuple[int, int]:
        at = bisect_left(self._addresses, address)
        if at and self._addresses[at - 1] + self._sizes[self._addresses[at - 1]] > address:
            at -= 1
        end = at
        while end < len(self._addresses) and self._addresses[end] < address + size:
            end += 1
        return at, end

    def give_back(self, address: int) -> None:
        """Remove the block at `address`, if there is one."""
        if self._sizes.pop(address, None) is not None:
            del self._addresses[bisect_left(self._addresses, address)]
