"""How much the peaks depend on where the driver puts segments.

Best fit breaks ties by address, so two runs that ask for the same can reserve differently; and, since a block that is
up to 1 MiB too large is handed out whole, they can allocate differently. The order seen on an H200 is the default, with
what the context takes and gives back; the others show how far it matters. One of them is that order without a context.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memprof.allocator.counters import OutOfMemory
from memprof.allocator.driver import AddressOrder, Driver
from memprof.allocator.simulation import CachingAllocator
from memprof.trace.model import Action

if TYPE_CHECKING:
    from memprof.trace.model import Settings

__all__ = ["PeakRanges", "peak_ranges"]

_ORDERS = (
    (AddressOrder.CUDA, 0),
    (AddressOrder.UP, 0),
    (AddressOrder.DOWN, 0),
    *((AddressOrder.RANDOM, seed) for seed in range(4)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakRanges:
    """Least and largest peaks of a run under several address orders, in bytes."""

    allocated: tuple[int, int]
    reserved: tuple[int, int]


def peak_ranges(allocator: CachingAllocator) -> PeakRanges:
    """Return the peaks of the same run under several address orders.

    A request that fails under one of them ends that run: it has then allocated and reserved what it could.
    """
    allocated, reserved = [allocator.counters.allocated_peak], [allocator.counters.reserved_peak]
    driver = allocator.driver
    for order, seed in _ORDERS:
        other = Driver(driver.capacity, total=driver.total, order=order, seed=seed)
        counters = _replay(allocator, allocator.settings, other).counters
        allocated.append(counters.allocated_peak)
        reserved.append(counters.reserved_peak)
    return PeakRanges(allocated=(min(allocated), max(allocated)), reserved=(min(reserved), max(reserved)))


def _replay(allocator: CachingAllocator, settings: Settings, driver: Driver) -> CachingAllocator:
    """Make the requests of a run again, on another driver."""
    trace = allocator.trace
    again = CachingAllocator(settings, driver, allowed=allocator.allowed)
    placed: dict[int, int] = {}
    emptied = False
    for row in range(len(trace)):
        action, address = trace.action[row], trace.address[row]
        if action == Action.SEGMENT_FREE and not emptied:
            again.empty_cache()
        emptied = action == Action.SEGMENT_FREE
        if action == Action.ALLOC:
            try:
                placed[address] = again.malloc(trace.size[row], trace.stream[row])
            except OutOfMemory:
                break
        elif action == Action.FREE_REQUESTED:
            again.free(placed.pop(address))
    return again
