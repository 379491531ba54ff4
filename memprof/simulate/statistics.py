"""``torch.cuda.memory_stats`` of the simulated allocator, as nested dictionaries, kept up to date from its trace."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from memprof.allocator.rules import SMALL_BUFFER
from memprof.trace.model import Action

if TYPE_CHECKING:
    from memprof.allocator.pools import Block
    from memprof.allocator.simulation import CachingAllocator

__all__ = ["Statistics"]

_POOLS = ("all", "small_pool", "large_pool")
_GROWS = (Action.SEGMENT_ALLOC, Action.SEGMENT_MAP)
_SHRINKS = (Action.SEGMENT_FREE, Action.SEGMENT_UNMAP)


@dataclass(slots=True)
class _Stat:
    """One figure, its peak, and all that was added and taken away."""

    current: int = 0
    peak: int = 0
    allocated: int = 0
    freed: int = 0

    def add(self, amount: int) -> None:
        self.current += amount
        self.peak = max(self.peak, self.current)
        if amount > 0:
            self.allocated += amount
        else:
            self.freed -= amount

    def values(self) -> dict[str, int]:
        return {"current": self.current, "peak": self.peak, "allocated": self.allocated, "freed": self.freed}


def _by_pool() -> dict[str, _Stat]:
    return {pool: _Stat() for pool in _POOLS}


@dataclass(slots=True)
class Statistics:
    """Figures by kind and pool. ``active`` and ``inactive_split`` are those of the moment: their peaks are not kept."""

    allocation: dict[str, _Stat] = field(default_factory=_by_pool)
    allocated_bytes: dict[str, _Stat] = field(default_factory=_by_pool)
    requested_bytes: dict[str, _Stat] = field(default_factory=_by_pool)
    segment: dict[str, _Stat] = field(default_factory=_by_pool)
    reserved_bytes: dict[str, _Stat] = field(default_factory=_by_pool)
    _seen: int = 0

    def allocate(self, block: Block) -> None:
        """Count a block that was handed out."""
        self._count(block, 1)

    def free(self, block: Block) -> None:
        """Count a block that was taken back."""
        self._count(block, -1)

    def catch_up(self, allocator: CachingAllocator) -> None:
        """Count the segments that came and went since the last call."""
        trace = allocator.trace
        for row in range(self._seen, len(trace)):
            action, size = trace.action[row], trace.size[row]
            if action in _GROWS or action in _SHRINKS:
                sign = 1 if action in _GROWS else -1
                # Segments of the small pool have 2 MiB; those of the large one are never as small.
                pool = "small_pool" if size == SMALL_BUFFER else "large_pool"
                for name in ("all", pool):
                    self.segment[name].add(sign)
                    self.reserved_bytes[name].add(sign * size)
        self._seen = len(trace)

    def reset_peaks(self) -> None:
        """Let the peaks begin anew."""
        for kind in self._kinds().values():
            for stat in kind.values():
                stat.peak = stat.current

    def reset_accumulated(self) -> None:
        """Let the totals begin anew."""
        for kind in self._kinds().values():
            for stat in kind.values():
                stat.allocated = stat.freed = 0

    def nested(self, allocator: CachingAllocator) -> dict[str, Any]:
        """Return what ``torch.cuda.memory_stats_as_nested_dict`` returns."""
        result: dict[str, Any] = {
            name: {pool: stat.values() for pool, stat in kind.items()} for name, kind in self._kinds().items()
        }
        result |= _of_the_moment(allocator)
        counters = allocator.counters
        for name in ("num_alloc_retries", "num_ooms", "num_sync_all_streams", "num_device_alloc", "num_device_free"):
            result[name] = getattr(counters, name)
        limit = allocator.settings.max_split_size
        result["max_split_size"] = -1 if limit is None else limit
        for name in ("oversize_allocations", "oversize_segments"):
            result[name] = _Stat().values()
        return result

    def _kinds(self) -> dict[str, dict[str, _Stat]]:
        names = ("allocation", "allocated_bytes", "requested_bytes", "segment", "reserved_bytes")
        return {name: getattr(self, name) for name in names}

    def _count(self, block: Block, sign: int) -> None:
        for name in ("all", "small_pool" if block.pool.small else "large_pool"):
            self.allocation[name].add(sign)
            self.allocated_bytes[name].add(sign * block.size)
            self.requested_bytes[name].add(sign * block.requested)


def _of_the_moment(allocator: CachingAllocator) -> dict[str, Any]:
    """Count blocks that are in use or waiting, and free ones that share a segment with those."""
    found = {name: _by_pool() for name in ("active", "active_bytes", "inactive_split", "inactive_split_bytes")}
    for blocks in allocator.segments():
        for block in blocks:
            if block.is_free and not block.is_split:
                continue
            kind = "inactive_split" if block.is_free else "active"
            for pool in ("all", "small_pool" if block.pool.small else "large_pool"):
                found[kind][pool].add(1)
                found[f"{kind}_bytes"][pool].add(block.size)
    return {name: {pool: stat.values() for pool, stat in kind.items()} for name, kind in found.items()}
