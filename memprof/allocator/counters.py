"""What the simulated allocator counts, and what it says when there is no memory left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memprof.allocator.pools import Block

__all__ = ["Counters", "OutOfMemory"]


class OutOfMemory(Exception):  # noqa: N818  torch calls it so
    """No memory for a request, after all that the allocator can do; the figures of torch's message."""

    def __init__(self, **figures: int | None) -> None:
        self.requested = figures["requested"]
        """Bytes that the program asked for."""
        self.segment_bytes = figures["segment_bytes"]
        """Bytes that torch says it "tried to allocate" (``alloc_size``)."""
        self.free = figures["free"]
        """Free bytes of the device."""
        self.total = figures["total"]
        """Bytes of the device."""
        self.allowed = figures["allowed"]
        """Bytes that the process may use (``set_per_process_memory_fraction``), or None."""
        self.allocated = figures["allocated"]
        self.reserved = figures["reserved"]
        self.private_pools = figures["private_pools"]
        """Bytes of the blocks cached in private pools, which torch calls "allocated in private pools"."""
        super().__init__(f"{self.requested} bytes asked for, {self.free} free of {self.total}")


@dataclass(slots=True, kw_only=True)
class Counters:
    """Running totals; names as in ``torch.cuda.memory_stats``, peaks apart."""

    allocated_bytes: int = 0
    active_bytes: int = 0
    requested_bytes: int = 0
    reserved_bytes: int = 0
    allocated_peak: int = 0
    active_peak: int = 0
    requested_peak: int = 0
    reserved_peak: int = 0
    num_alloc_retries: int = 0
    num_ooms: int = 0
    num_sync_all_streams: int = 0
    num_device_alloc: int = 0
    num_device_free: int = 0

    def reset_peaks(self) -> None:
        """Let the peaks begin anew from the present (``reset_peak_memory_stats``)."""
        self.allocated_peak, self.active_peak = self.allocated_bytes, self.active_bytes
        self.requested_peak, self.reserved_peak = self.requested_bytes, self.reserved_bytes

    def reserve(self, size: int) -> None:
        """Count a new segment or mapped pages."""
        self.num_device_alloc += 1
        self.reserved_bytes += size
        self.reserved_peak = max(self.reserved_peak, self.reserved_bytes)

    def unreserve(self, size: int) -> None:
        """Count a freed segment or unmapped pages."""
        self.num_device_free += 1
        self.reserved_bytes -= size

    def allocate(self, block: Block) -> None:
        """Count a block that is handed out."""
        self.allocated_bytes += block.size
        self.active_bytes += block.size
        self.requested_bytes += block.requested
        self.allocated_peak = max(self.allocated_peak, self.allocated_bytes)
        self.active_peak = max(self.active_peak, self.active_bytes)
        self.requested_peak = max(self.requested_peak, self.requested_bytes)
