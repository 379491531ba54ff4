"""How much the peak of reserved memory depends on where the driver puts segments.

Best fit breaks ties by address, so two runs that allocate the same can reserve differently. The order seen on an H200
is the default; the others show how far it matters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memprof.allocator.counters import OutOfMemory
from memprof.allocator.driver import AddressOrder, Driver
from memprof.allocator.simulation import CachingAllocator
from memprof.trace.model import Action

if TYPE_CHECKING:
    from memprof.trace.model import Settings

__all__ = ["reserved_range"]

_ORDERS = ((AddressOrder.UP, 0), (AddressOrder.DOWN, 0), *((AddressOrder.RANDOM, seed) for seed in range(4)))


def reserved_range(allocator: CachingAllocator) -> tuple[int, int]:
    """Return the least and the largest reserved peak, in bytes, of the same run under several address orders.

    A request that fails under one of them ends that run: it has then reserved what it could.
    """
    peaks = [allocator.counters.reserved_peak]
    driver = allocator.driver
    for order, seed in _ORDERS:
        other = Driver(driver.capacity, total=driver.total, order=order, seed=seed)
        peaks.append(_replay(allocator, allocator.settings, other))
    return min(peaks), max(peaks)


def _replay(allocator: CachingAllocator, settings: Settings, driver: Driver) -> int:
    """Make the requests of a run again, on another driver; return the reserved peak."""
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
    return again.counters.reserved_peak
