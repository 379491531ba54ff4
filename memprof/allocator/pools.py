"""Blocks, and the pools of free ones, as ``Block``, ``BlockPool`` and ``PrivatePool`` in CUDACachingAllocator.cpp."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memprof.allocator.driver import Driver

__all__ = ["Block", "BlockPool", "ExpandableSegment", "PrivatePool"]


class Block:
    """A range of a segment: used, free, or (in an expandable segment) not mapped."""

    __slots__ = (
        "address",
        "allocated",
        "events",
        "expandable",
        "gc_base",
        "mapped",
        "next",
        "pool",
        "prev",
        "requested",
        "size",
        "stream",
        "uses",
    )

    def __init__(
        self, address: int, size: int, stream: int, pool: BlockPool, expandable: ExpandableSegment | None = None
    ) -> None:
        self.address = address
        self.size = size
        self.stream = stream
        self.pool = pool
        self.expandable = expandable
        self.requested = 0
        self.allocated = False
        self.mapped = True
        self.prev: Block | None = None
        self.next: Block | None = None
        self.uses: set[int] = set()
        """Other streams that use it (``record_stream``)."""
        self.events = 0
        """Events of other streams that it waits for since it was freed."""
        self.gc_base = 0

    @property
    def is_split(self) -> bool:
        """Whether its segment has other blocks."""
        return self.prev is not None or self.next is not None

    @property
    def is_free(self) -> bool:
        """Whether nothing uses it, mapped or not."""
        return not self.allocated and not self.events and not self.uses

    @property
    def expandable_size(self) -> int:
        """Bytes that it could grow to by mapping what follows."""
        following = self.next
        return self.size + (following.size if following is not None and not following.mapped else 0)

    def link_after(self, before: Block | None, after: Block | None) -> None:
        """Put it between two blocks (``Block::splice``)."""
        self.prev, self.next = before, after
        if before is not None:
            before.next = self
        if after is not None:
            after.prev = self


class BlockPool:
    """Free blocks of one kind (small or large), each stream's for itself, ordered by size, then address."""

    def __init__(self, *, small: bool, owner: PrivatePool | None = None) -> None:
        self.small = small
        self.owner = owner
        self.searches = 0
        """``get_free_blocks_call_count``: the clock of the garbage collection."""
        self._free: dict[int, list[tuple[int, int, Block]]] = {}
        self._unmapped: dict[int, list[tuple[int, Block]]] = {}

    def __iter__(self) -> Iterator[Block]:
        """Go through a copy of the free blocks, by stream, size, address."""
        return iter([block for stream in sorted(self._free) for _, _, block in self._free[stream]])

    def add(self, block: Block) -> None:
        """Add a free block (``insert_into_blocks``)."""
        block.gc_base = self.searches
        insort(self._free.setdefault(block.stream, []), (block.size, block.address, block))

    def remove(self, block: Block) -> None:
        """Take a free block out; size and address must be those that it was added with."""
        free = self._free[block.stream]
        del free[bisect_left(free, (block.size, block.address))]

    def at_least(self, size: int, stream: int) -> tuple[list[tuple[int, int, Block]], int]:
        """Return the stream's free blocks and the place of the first that has `size` bytes or more."""
        free = self._free.get(stream, [])
        return free, bisect_left(free, (size,))

    def add_unmapped(self, block: Block) -> None:
        """Add a range that is not mapped."""
        insort(self._unmapped.setdefault(block.stream, []), (block.address, block))

    def remove_unmapped(self, block: Block) -> None:
        """Take a range out that is not mapped."""
        unmapped = self._unmapped[block.stream]
        del unmapped[bisect_left(unmapped, (block.address,))]

    def unmapped(self, stream: int) -> list[Block]:
        """Return the stream's ranges that are not mapped, by address."""
        return [block for _, block in self._unmapped.get(stream, [])]


class PrivatePool:
    """Pools of their own, as a CUDA graph or a ``MemPool`` has them."""

    def __init__(self, name: tuple[int, int]) -> None:
        self.name = name
        self.users = 1
        self.small = BlockPool(small=True, owner=self)
        self.large = BlockPool(small=False, owner=self)


class ExpandableSegment:
    """Address space, larger than the card, in which pages are mapped as they are needed."""

    __slots__ = ("address", "driver", "page", "size")

    def __init__(self, driver: Driver, size: int, page: int) -> None:
        self.driver = driver
        self.page = page
        self.size = -(-size // page) * page
        self.address = driver.reserve(self.size)

    def map(self, size: int) -> int:
        """Map whole pages for `size` bytes; return their bytes, 0 if there is not enough memory."""
        length = -(-size // self.page) * self.page
        return length if self.driver.take(length) else 0

    def unmap(self, address: int, size: int) -> tuple[int, int]:
        """Unmap the whole pages within a range; return begin and bytes."""
        begin = -(-(address - self.address) // self.page) * self.page + self.address
        end = (address + size - self.address) // self.page * self.page + self.address
        length = max(end - begin, 0)
        self.driver.give(length)
        return begin, length
