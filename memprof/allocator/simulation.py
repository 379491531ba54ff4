"""Simulation: PyTorch's caching allocator without a device. It chooses the blocks itself.

It follows ``DeviceCachingAllocator`` in ``c10/cuda/CUDACachingAllocator.cpp`` step by step, so that the order of its
trace entries is that of the real one; methods name the symbol they follow where the names differ. Not modelled: pools
with an allocator of their own, ``no_split`` and ``use_on_oom`` pools, checkpoints of pools, settings that change during
the run.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from memprof.allocator import rules
from memprof.allocator.blockstore import BlockStore, pool_name
from memprof.allocator.counters import OutOfMemory
from memprof.allocator.driver import Driver
from memprof.allocator.pools import BlockPool, PrivatePool
from memprof.trace.model import Action

if TYPE_CHECKING:
    from memprof.allocator.pools import Block
    from memprof.trace.model import Settings

__all__ = ["CachingAllocator"]


class CachingAllocator:
    """One device's caching allocator.

    Parameters
    ----------
    settings
        What ``PYTORCH_CUDA_ALLOC_CONF`` says.
    driver
        Where segments come from; by default one without limit.
    allowed
        Bytes that the process may reserve (``set_per_process_memory_fraction``); None for a fraction of 1. The
        garbage collection works only with a limit, as in torch.
    """

    def __init__(self, settings: Settings, driver: Driver | None = None, *, allowed: int | None = None) -> None:
        self.settings = settings
        self.allowed = allowed
        self._store = BlockStore(settings, driver if driver is not None else Driver())
        self.driver = self._store.driver
        self.trace = self._store.trace
        """What happened so far, as a recording would have it."""
        self.counters = self._store.counters
        self.allocated: dict[int, Block] = {}
        """Blocks in the program's hands, by address."""
        self._small = BlockPool(small=True)
        self._large = BlockPool(small=False)
        self._private: dict[tuple[int, int], PrivatePool] = {}
        self._freeable: dict[tuple[int, int], PrivatePool] = {}
        self._capturing: list[tuple[tuple[int, int], frozenset[int] | None]] = []
        self._deferred: list[Block] = []
        self._capture_uses: dict[int, set[int]] = {}  # streams recorded during a capture, by address
        self._events: dict[int, deque[Block]] = {}
        self._done: dict[int, int] = {}  # how many events of a stream the device has reached

    # What the program does

    def malloc(self, size: int, stream: int = 0) -> int:
        """Allocate `size` bytes (more than 0) for a stream and return the address.

        Raises
        ------
        OutOfMemory
            After freeing what is cached did not help.
        """
        if not self._capturing:
            self.process_events()
        rounded = rules.round_size(size, self.settings)
        pool = self._pool_for(rounded, stream)
        block = self._find_free(pool, rounded, stream)
        if block is None:
            if self.allowed is not None and self.settings.garbage_collection_threshold > 0:
                self._collect_garbage()
            block = self._new_block(pool, rounded, stream)
            if block is None and self._release_oversize(pool, rounded, stream):
                block = self._new_block(pool, rounded, stream)
            if block is None and not self._capturing:
                self._release_cached()
                self.counters.num_alloc_retries += 1
                block = self._new_block(pool, rounded, stream)
            if block is None:
                raise self._out_of_memory(pool, size, rounded, stream)
        self._store.hand_out(block, size, rounded)
        self.allocated[block.address] = block
        return block.address

    def free(self, address: int) -> None:
        """Free what is allocated at `address`; it waits for other streams that use it."""
        block = self.allocated.pop(address)
        block.allocated = False
        self.counters.allocated_bytes -= block.size
        self.trace.add(Action.FREE_REQUESTED, block.address, block.requested, block.stream, pool_name(block.pool))
        if not block.uses:
            self._store.take_back(block)
        elif self._capturing:
            # Events cannot be recorded during a capture; `process_events` catches up afterwards.
            self._deferred.append(block)
            return
        else:
            self._insert_events(block)
        self._capture_uses.pop(address, None)

    def record_stream(self, address: int, stream: int) -> None:
        """Tell that another stream uses the block: after `free`, it waits for what is on that stream by then."""
        block = self.allocated[address]
        if stream == block.stream:
            return
        block.uses.add(stream)
        if self._capturing:
            self._capture_uses.setdefault(address, set()).add(stream)

    def synchronize(self, stream: int | None = None) -> None:
        """Let the device finish what is on a stream, or on all; `process_events` sees it."""
        for each in [stream] if stream is not None else list(self._events):
            self._done[each] = len(self._events.get(each, ()))

    def process_events(self) -> None:
        """Return blocks whose other streams have finished; every `malloc` begins with it."""
        self._insert_deferred()
        for stream in list(self._events):
            waiting = self._events[stream]
            while waiting and self._done.get(stream, 0):
                self._done[stream] -= 1
                self._event_passed(waiting.popleft())
            if not waiting:
                del self._events[stream]
                self._done.pop(stream, None)

    def empty_cache(self) -> None:
        """Give all segments and pages that nothing uses back to the device (``emptyCache``)."""
        if not self._capturing:
            self._release_cached()

    def begin_pool(self, name: tuple[int, int], streams: frozenset[int] | None = None) -> None:
        """Serve requests (of some streams, or all) from a private pool until `end_pool`, as a graph capture does."""
        if name in self._private:
            self._private[name].users += 1
            self._freeable.pop(name, None)
        else:
            self._private[name] = PrivatePool(name)
        self._capturing.append((name, streams))

    def end_pool(self, name: tuple[int, int]) -> None:
        """Stop serving requests from a private pool; its blocks stay in it."""
        self._capturing = [entry for entry in self._capturing if entry[0] != name]

    def release_pool(self, name: tuple[int, int]) -> None:
        """Drop one use of a private pool: without any, its free segments can go back to the device."""
        pool = self._private[name]
        pool.users -= 1
        if pool.users == 0:
            self._freeable[name] = pool

    def segments(self) -> list[list[Block]]:
        """Return the mapped blocks of every segment in order of address, as ``snapshot`` reports them."""
        return self._store.segments()

    # How it finds and makes blocks

    def _pool_for(self, rounded: int, stream: int) -> BlockPool:
        """Return the pool that serves a request (``get_pool``)."""
        small = rules.is_small(rounded)
        for name, streams in reversed(self._capturing):
            if streams is None or stream in streams:
                private = self._private[name]
                return private.small if small else private.large
        return self._small if small else self._large

    def _find_free(self, pool: BlockPool, rounded: int, stream: int) -> Block | None:
        """Take the best fitting free block out of the pool (``get_free_block``)."""
        if self.allowed is not None and self.settings.garbage_collection_threshold > 0:
            pool.searches += 1
        free, place = pool.at_least(rounded, stream)
        if place == len(free):
            return None
        block = free[place][2]
        if block.expandable is not None:
            # Free blocks at the growing end count with all that they could grow to.
            while place + 1 < len(free) and free[place + 1][2].expandable_size < block.expandable_size:
                place += 1
                block = free[place][2]
        limit = self.settings.max_split_size
        if limit is not None:
            if rounded < limit <= block.size:
                return None
            if rounded >= limit and block.size >= rounded + self.settings.max_non_split_rounding_size:
                return None
        pool.remove(block)
        return block

    def _new_block(self, pool: BlockPool, rounded: int, stream: int) -> Block | None:
        """Make a segment, or map pages; None if there is not enough memory (``alloc_block``)."""
        size = rules.segment_size(rounded, self.settings)
        if self.allowed is not None and self.counters.reserved_bytes + size > self.allowed:
            return None
        if self.settings.expandable_segments:
            return self._store.grow(pool, rounded, stream)
        return self._store.new_segment(pool, size, stream)

    # Events of other streams

    def _insert_events(self, block: Block) -> None:
        """Let a freed block wait for the streams that use it (``insert_events``)."""
        for stream in sorted(block.uses):
            block.events += 1
            self._events.setdefault(stream, deque()).append(block)
        block.uses.clear()

    def _insert_deferred(self) -> None:
        """Handle frees of during a capture (``insert_events_deferred_until_no_capture``)."""
        deferred, self._deferred = self._deferred, []
        for block in deferred:
            block.uses -= self._capture_uses.pop(block.address, set())
            self._insert_events(block)
            if not block.events:
                self._store.take_back(block)

    def _event_passed(self, block: Block) -> None:
        """Count an event that the device has reached."""
        block.events -= 1
        if not block.events:
            self._store.take_back(block)

    # What it does when memory is short

    def _collect_garbage(self) -> None:
        """Give old segments back when more than the threshold is reserved (``garbage_collect_cached_blocks``)."""
        assert self.allowed is not None
        threshold = int(self.settings.garbage_collection_threshold * self.allowed)
        wanted = self.counters.reserved_bytes - threshold
        whole = [block for block in self._large if not block.is_split]
        age = sum(self._large.searches - block.gc_base for block in whole)
        reclaimed, count, freed = 0, len(whole), True
        while wanted > 0 and reclaimed < wanted and freed and count:
            oldest = age / count
            freed = False
            for block in whole:
                if self._large.searches - block.gc_base >= oldest:
                    freed = True
                    reclaimed += block.size
                    age -= self._large.searches - block.gc_base
                    count -= 1
                    self._store.release(block)
            whole = [block for block in self._large if not block.is_split]

    def _release_oversize(self, pool: BlockPool, rounded: int, stream: int) -> bool:
        """Give back just enough cached blocks of ``max_split_size`` or more (``release_available_cached_blocks``)."""
        limit = self.settings.max_split_size
        if limit is None:
            return False
        wanted = max(rounded, limit)
        free, place = pool.at_least(wanted, stream)
        if place < len(free) and free[place][2].expandable is None:
            self._store.release(free[place][2])
            return True
        released = 0
        for size, _, block in reversed(free[:place]):
            if released >= wanted or size < limit:
                break
            if block.expandable is None:
                released += size
                self._store.release(block)
        return released >= wanted

    def _release_cached(self) -> None:
        """Give everything back that is not in use (``release_cached_blocks``)."""
        self.counters.num_sync_all_streams += 1
        self._insert_deferred()
        self.synchronize()
        self.process_events()
        self._release_pool(self._large)
        self._release_pool(self._small)
        for name, private in list(self._freeable.items()):
            self._release_pool(private.small)
            self._release_pool(private.large)
            if not any(head.pool.owner is private for head in self._store.heads.values()):
                del self._freeable[name], self._private[name]

    def _release_pool(self, pool: BlockPool) -> None:
        """Give a pool's segments and pages back that nothing uses (``release_blocks``)."""
        free = list(pool)
        for block in free:
            if block.expandable is None and not block.is_split:
                self._store.release(block)
        for block in free:
            if block.expandable is not None:
                self._store.unmap(block)

    def _out_of_memory(self, pool: BlockPool, size: int, rounded: int, stream: int) -> OutOfMemory:
        """Record that a request failed and return the error to raise."""
        free = self.driver.free or 0
        self.counters.num_ooms += 1
        self.trace.add(Action.OOM, free, rounded, stream, pool_name(pool))
        return OutOfMemory(
            requested=size,
            segment_bytes=rules.segment_size(rounded, self.settings),
            free=free,
            total=self.driver.total,
            allowed=self.allowed,
            allocated=self.counters.allocated_bytes,
            reserved=self.counters.reserved_bytes,
            private_pools=sum(
                block.size for pools in self._private.values() for each in (pools.large, pools.small) for block in each
            ),
        )
