"""Segments and their blocks: made, cut, merged, mapped and given back, each step written to the trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memprof.allocator import rules
from memprof.allocator.counters import Counters
from memprof.allocator.pools import Block, BlockPool, ExpandableSegment
from memprof.allocator.recording import Recording
from memprof.trace.model import Action

if TYPE_CHECKING:
    from memprof.allocator.driver import Driver
    from memprof.trace.model import Settings

__all__ = ["BlockStore", "pool_name"]

_NO_CAPACITY_SPACE = 1 << 40
"""Address space of an expandable segment where the card has no size."""


class BlockStore:
    """The blocks of one device; it knows how to change them, not when. Methods name the symbol that they follow."""

    def __init__(self, settings: Settings, driver: Driver) -> None:
        self.settings = settings
        self.driver = driver
        self.trace = Recording()
        self.counters = Counters()
        self.heads: dict[int, Block] = {}
        """First block of every segment, by the segment's address."""

    def new_segment(self, pool: BlockPool, size: int, stream: int) -> Block | None:
        """Make a segment; None if there is not enough memory (``alloc_block``)."""
        address = self.driver.malloc(size)
        if address is None:
            return None
        self.counters.reserve(size)
        block = self.heads[address] = Block(address, size, stream, pool)
        self._record(Action.SEGMENT_ALLOC, address, size, block)
        return block

    def hand_out(self, block: Block, size: int, rounded: int) -> None:
        """Cut a free block to size and allocate it (``alloc_found_block``)."""
        if rules.should_split(block.size, rounded, self.settings, small=block.pool.small):
            rest = Block(block.address + rounded, block.size - rounded, block.stream, block.pool, block.expandable)
            rest.link_after(block, block.next)
            block.size = rounded
            block.pool.add(rest)
        block.allocated = True
        block.requested = size
        self._record(Action.ALLOC, block.address, size, block)
        self.counters.allocate(block)

    def take_back(self, block: Block) -> None:
        """Return a block to its pool, merged with free neighbours (``free_block``)."""
        self._record(Action.FREE_COMPLETED, block.address, block.requested, block)
        self.counters.active_bytes -= block.size
        self.counters.requested_bytes -= block.requested
        block.requested = 0
        self._merge(block, block.prev)
        self._merge(block, block.next)
        block.pool.add(block)

    def _merge(self, block: Block, other: Block | None) -> None:
        """Take a free neighbour of the same kind into `block` (``try_merge_blocks``)."""
        if other is None or not other.is_free or block.mapped != other.mapped:
            return
        if other.mapped:
            block.pool.remove(other)
        else:
            block.pool.remove_unmapped(other)
        if block.prev is other:
            if other.prev is None:
                self.heads[other.address] = block
            block.address = other.address
            block.link_after(other.prev, block.next)
        else:
            block.link_after(block.prev, other.next)
        block.size += other.size

    def release(self, block: Block) -> None:
        """Give a whole segment back to the device (``release_block``)."""
        self._record(Action.SEGMENT_FREE, block.address, block.size, block)
        self.driver.release(block.address, block.size)
        self.counters.unreserve(block.size)
        block.pool.remove(block)
        del self.heads[block.address]

    def grow(self, pool: BlockPool, rounded: int, stream: int) -> Block | None:
        """Map pages until a block is large enough (``try_allocate_expandable_block``)."""
        block = self._expandable_place(pool, rounded, stream)
        if not block.mapped and not self._map(block, min(block.size, rounded)):
            return None
        while block.size < rounded:
            following = block.next
            assert following is not None, "a place that is too small has something to map behind it"
            if not self._map(following, min(rounded - block.size, following.size)):
                return None
            block = following
        pool.remove(block)
        return block

    def _expandable_place(self, pool: BlockPool, rounded: int, stream: int) -> Block:
        """Return the lowest place where free and unmapped ranges have room (``find_expandable_block``)."""
        for unmapped in pool.unmapped(stream):
            place = unmapped.prev if unmapped.prev is not None and unmapped.prev.is_free else unmapped
            room = 0
            each: Block | None = place
            while each is not None and room < rounded and each.is_free:
                room += each.size
                each = each.next
            if room >= rounded:
                return place
        total = self.driver.total or _NO_CAPACITY_SPACE
        page = rules.page_size(self.settings, small=pool.small)
        segment = ExpandableSegment(self.driver, total + total // 8, page)
        place = self.heads[segment.address] = Block(segment.address, segment.size, stream, pool, segment)
        place.mapped = False
        pool.add_unmapped(place)
        return place

    def _map(self, block: Block, size: int) -> bool:
        """Map the first `size` bytes of an unmapped range, rounded up to pages (``map_block``)."""
        assert block.expandable is not None
        size = block.expandable.map(size)
        if not size:
            return False
        address, pool = block.address, block.pool
        pool.remove_unmapped(block)
        block.mapped = True
        if size < block.size:
            rest = Block(address + size, block.size - size, block.stream, pool, block.expandable)
            rest.mapped = False
            rest.link_after(block, block.next)
            pool.add_unmapped(rest)
            block.size = size
        self._merge(block, block.prev)
        self._merge(block, block.next)
        pool.add(block)
        self.counters.reserve(size)
        self._record(Action.SEGMENT_MAP, address, size, block)
        return True

    def unmap(self, block: Block) -> None:
        """Unmap the whole pages of a free block (``unmap_block``)."""
        assert block.expandable is not None
        pool, expandable = block.pool, block.expandable
        begin, size = expandable.unmap(block.address, block.size)
        if not size:
            return
        pool.remove(block)
        before, after = begin - block.address, block.address + block.size - begin - size
        if before:
            rest = Block(block.address, before, block.stream, pool, expandable)
            rest.link_after(block.prev, block)
            if rest.prev is None:
                self.heads[rest.address] = rest
            pool.add(rest)
        if after:
            rest = Block(begin + size, after, block.stream, pool, expandable)
            rest.link_after(block, block.next)
            pool.add(rest)
        block.address, block.size, block.mapped = begin, size, False
        self._merge(block, block.prev)
        self._merge(block, block.next)
        pool.add_unmapped(block)
        self.counters.unreserve(size)
        self._record(Action.SEGMENT_UNMAP, begin, size, block)
        if not block.is_split:  # release_expandable_segment
            pool.remove_unmapped(block)
            del self.heads[block.address]
            self.driver.unreserve(block.address, block.size)

    def segments(self) -> list[list[Block]]:
        """Return the mapped blocks of every segment in order of address, as ``snapshot`` reports them."""
        found: list[list[Block]] = []
        for head in self.heads.values():
            run: list[Block] = []
            block: Block | None = head
            while block is not None:
                if block.mapped:
                    run.append(block)
                elif run:
                    found.append(run)
                    run = []
                block = block.next
            if run:
                found.append(run)
        return sorted(found, key=lambda blocks: blocks[0].address)

    def _record(self, action: Action, address: int, size: int, block: Block) -> None:
        """Append an entry to the trace."""
        self.trace.add(action, address, size, block.stream, pool_name(block.pool))


def pool_name(pool: BlockPool) -> tuple[int, int]:
    """Return the identity of a private pool; (0, 0) is the default one."""
    return pool.owner.name if pool.owner is not None else (0, 0)
