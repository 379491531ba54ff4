"""The device's memory: the simulated caching allocator, with the requested size of every live allocation."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from memprof.allocator.counters import OutOfMemory
from memprof.allocator.driver import Driver
from memprof.allocator.simulation import CachingAllocator
from memprof.simulate.context import Context
from memprof.simulate.oom import out_of_memory_message
from memprof.simulate.profiling import memory_reporter
from memprof.simulate.statistics import Statistics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from memprof.allocator.driver import AddressOrder
    from memprof.simulate.cards import Card
    from memprof.simulate.history import History
    from memprof.trace.model import Settings

__all__ = ["DeviceMemory", "Temporary"]


class DeviceMemory:
    """Allocates and frees on the current stream; safe against frees in the middle of an allocation.

    Python may collect garbage, and so free tensors, at any moment, also while the allocator works: such a free waits
    until the allocator is done.
    """

    def __init__(
        self,
        card: Card,
        settings: Settings,
        order: AddressOrder,
        on_free: Callable[[int], None],
        *,
        capacity: int | None = None,
    ) -> None:
        if capacity is None:
            capacity = card.total_bytes - card.context_bytes
        driver = Driver(capacity, total=card.total_bytes, order=order)
        self.allocator = CachingAllocator(settings, driver)
        self.fraction = 1.0
        """``torch.cuda.set_per_process_memory_fraction``."""
        self.history: History | None = None
        """Told of every new entry of the allocator's trace."""
        self._card = card
        self._on_free = on_free
        self._sizes: dict[int, int] = {}
        self._lock = threading.RLock()
        self.context = Context(driver.chunks, self._lock)
        self._busy = False
        self._deferred: list[int] = []
        self._streams = threading.local()
        self._report = memory_reporter()
        self._statistics = Statistics()

    @property
    def stream(self) -> int:
        """The calling thread's current stream; 0 is the default stream."""
        stream: int = getattr(self._streams, "current", 0)
        return stream

    @stream.setter
    def stream(self, stream: int) -> None:
        self._streams.current = stream

    def size_of(self, address: int) -> int:
        """Return the requested bytes of the live allocation at an address, 0 if there is none."""
        return self._sizes.get(address, 0)

    def allocate(self, nbytes: int) -> int:
        """Return the address of a new allocation of 1 byte or more.

        Raises
        ------
        torch.OutOfMemoryError
            In PyTorch's words, after what PyTorch does first: free cached blocks, and try again.
        """
        with self._lock:
            self._busy = True
            try:
                if not self.context.made:
                    self.context.make()
                address = self.allocator.malloc(nbytes, self.stream)
                self._sizes[address] = nbytes
                counters = self.allocator.counters
                block = self.allocator.allocated[address]
                self._statistics.allocate(block)
                self._report(address, block.size, counters.allocated_bytes, counters.reserved_bytes)
            except OutOfMemory as error:
                raise torch.OutOfMemoryError(out_of_memory_message(error, self._card.context_bytes)) from None
            finally:
                self._finish()
        return address

    def release(self, address: int) -> None:
        """Free an allocation, or later if the allocator is busy."""
        if self._busy:
            self._deferred.append(address)
            return
        self._busy = True
        try:
            self._free(address)
        finally:
            self._finish()

    def empty_cache(self) -> None:
        """Give unused segments back to the device."""
        with self._lock:
            self._busy = True
            try:
                self.allocator.empty_cache()
            finally:
                self._finish()

    def synchronize(self) -> None:
        """Let all streams finish: what waits for them can be used again at the next allocation."""
        self.allocator.synchronize()

    def record_stream(self, address: int, stream: int) -> None:
        """Keep an allocation from reuse until `stream` is done with it."""
        if self.size_of(address):
            self.allocator.record_stream(address, stream)

    def set_fraction(self, fraction: float) -> None:
        """Limit what may be reserved to a part of the card's memory (``set_per_process_memory_fraction``)."""
        self.fraction = fraction
        self.allocator.allowed = int(fraction * self._card.total_bytes) if fraction < 1 else None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let frees wait while something reads the allocator's state."""
        with self._lock:
            busy, self._busy = self._busy, True
            try:
                yield
            finally:
                if not busy:
                    self._finish()

    def info(self) -> tuple[int, int]:
        """Return free and total bytes of the device, as ``cudaMemGetInfo``."""
        free = self.allocator.driver.free
        assert free is not None
        return free, self._card.total_bytes

    def statistics(self) -> dict[str, Any]:
        """Return ``torch.cuda.memory_stats`` as a nested dictionary."""
        with self.held():
            self._statistics.catch_up(self.allocator)
            return self._statistics.nested(self.allocator)

    def reset_peaks(self) -> None:
        """Let the peaks begin anew (``torch.cuda.reset_peak_memory_stats``)."""
        self._statistics.catch_up(self.allocator)
        self._statistics.reset_peaks()
        self.allocator.counters.reset_peaks()

    def reset_accumulated(self) -> None:
        """Let the totals begin anew (``torch.cuda.reset_accumulated_memory_stats``)."""
        self._statistics.catch_up(self.allocator)
        self._statistics.reset_accumulated()

    def _free(self, address: int) -> None:
        del self._sizes[address]
        self._on_free(address)
        block = self.allocator.allocated[address]
        size = block.size
        self._statistics.free(block)
        self.allocator.free(address)
        counters = self.allocator.counters
        self._report(address, -size, counters.allocated_bytes, counters.reserved_bytes)

    def _finish(self) -> None:
        """Do the frees that came while the allocator was busy, and tell the history."""
        while True:
            if self.history is not None:
                self.history.catch_up()
            if not self._deferred:
                break
            self._free(self._deferred.pop(0))
        self._busy = False


class Temporary:
    """Memory that a kernel takes while it runs."""

    __slots__ = ("_address", "_memory")

    def __init__(self, memory: DeviceMemory, nbytes: int) -> None:
        self._memory = memory
        self._address = memory.allocate(nbytes) if nbytes > 0 else 0

    def free(self) -> None:
        """Give it back."""
        if self._address:
            self._memory.release(self._address)
            self._address = 0
