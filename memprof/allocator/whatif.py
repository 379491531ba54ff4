"""What if: a recording's allocations under other allocator settings.

The program's requests and frees are taken from the recording and given to the simulation in the same order; where the
blocks then lie, and how many segments it takes, is the simulation's choice. The same is done under the recorded
settings as a control: what the control misses of the recorded reserved bytes is how far the answer can be trusted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from memprof.allocator.counters import OutOfMemory
from memprof.allocator.driver import AddressOrder, Driver
from memprof.allocator.replay import replay
from memprof.allocator.simulation import CachingAllocator
from memprof.trace.model import Action

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from memprof.allocator.account import Replay
    from memprof.trace.model import DeviceTrace, Settings, Source

__all__ = ["Failure", "WhatIf", "what_if"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A request that failed, in the recording or under the other settings."""

    event: int
    """Event of the recording: its ``oom``, or the alloc that would have failed."""
    requested: int
    """Bytes of the request."""
    recorded: bool
    """Whether it failed when the run was recorded."""
    fits: bool
    """Whether the request is served under the other settings."""
    free: int
    """Bytes of the device that are left after it was served, or that there were when it failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """A recording under other settings."""

    settings: Settings
    recorded_peak: int
    """Reserved bytes at their highest, as recorded."""
    control_peak: int
    """The same as the simulation gives it under the recorded settings."""
    reserved_peak: int
    """The same under the other settings."""
    reserved_range: tuple[int, int]
    """Lowest and highest reserved peak over several orders of segment addresses, on which best fit depends."""
    allocated_peak: int
    reserved: NDArray[np.int64]
    """Reserved bytes under the other settings; row i is the state after event i - 1 of the recording."""
    failures: tuple[Failure, ...]
    """In the first order of addresses."""
    failures_by_order: tuple[tuple[Failure, ...], ...]
    """In each order of addresses; the first is `failures`."""
    capacity: int | None
    """Bytes that the allocator could get; known where the recording has an ``oom``, or given."""
    notes: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class _Run:
    """One pass of the recording through the simulation."""

    allocator: CachingAllocator
    reserved: NDArray[np.int64]
    failures: list[Failure]


def what_if(
    device: DeviceTrace,
    recorded: Settings,
    settings: Settings,
    source: Source,
    *,
    capacity: int | None = None,
    orders: Sequence[AddressOrder] = (AddressOrder.CUDA, AddressOrder.UP, AddressOrder.DOWN),
    progress: Callable[[float], None] | None = None,
) -> WhatIf:
    """Say what a recording would have reserved under other settings, and whether what failed would have fitted.

    Parameters
    ----------
    device, recorded, source
        The recording and the settings that it was made under.
    settings
        The other settings.
    capacity
        Bytes that the allocator can get from the device. By default what the recording tells: reserved and free bytes
        at its first ``oom``; without one there is no limit.
    orders
        Orders of segment addresses to try; the first gives the answer, the others the range.
    progress
        Called with the fraction that is done, 0 to 1.
    """
    tell = progress or (lambda _: None)
    account = replay(device, recorded, source)
    assert account.reserved is not None, "a CPU recording has no caching allocator"
    notes = _caveats(device, account)
    failed = np.flatnonzero(device.events.action == Action.OOM)
    known = int(account.reserved[failed[0] + 1] + device.events.address[failed[0]]) if len(failed) else None
    emptied = _emptied(device, account, known)
    control = _run(device, account, emptied, recorded, Driver(known, order=orders[0]))
    capacity = known if capacity is None else capacity
    runs = []
    for number, order in enumerate(orders):
        tell((number + 1) / (len(orders) + 1))
        runs.append(_run(device, account, emptied, settings, Driver(capacity, order=order)))
    tell(1.0)
    chosen = runs[0]
    peaks = [run.allocator.counters.reserved_peak for run in runs]
    return WhatIf(
        settings=settings,
        recorded_peak=int(account.reserved.max()),
        control_peak=control.allocator.counters.reserved_peak,
        reserved_peak=peaks[0],
        reserved_range=(min(peaks), max(peaks)),
        allocated_peak=chosen.allocator.counters.allocated_peak,
        reserved=chosen.reserved,
        failures=tuple(chosen.failures),
        failures_by_order=tuple(tuple(run.failures) for run in runs),
        capacity=capacity,
        notes=notes,
    )


def _caveats(device: DeviceTrace, account: Replay) -> tuple[str, ...]:
    """Say what of the recording the simulation cannot repeat."""
    notes = []
    base = account.allocations.born < 0
    if base.any():
        notes.append(
            f"{int(base.sum()):,} allocations ({int(account.allocations.size[base].sum()):,} bytes) were there before "
            "the first event: they are placed afresh, by address, and what was cached then is not"
        )
    if device.segments.pool.any():
        notes.append("the recording has private pools (CUDA graphs): their blocks are placed in the default pool")
    return tuple(notes)


def _run(device: DeviceTrace, account: Replay, emptied: frozenset[int], settings: Settings, driver: Driver) -> _Run:
    """Give the recording's requests and frees to a simulated allocator, and empty its cache at the events `emptied`."""
    events, rows = device.events, account.allocations
    count = len(events)
    allowed = None
    if settings.memory_fraction < 1 and driver.total is not None:
        allowed = int(settings.memory_fraction * driver.total)
    allocator = CachingAllocator(settings, driver, allowed=allowed)
    reserved = np.zeros(count + 1, dtype=np.int64)
    failures: list[Failure] = []
    places: dict[int, int] = {}  # address in the simulation, by row
    requested, streams = rows.requested.tolist(), rows.stream.tolist()
    freed, released = rows.freed.tolist(), rows.released.tolist()

    def allocate(row: int, event: int) -> None:
        try:
            places[row] = allocator.malloc(max(requested[row], 1), streams[row])
        except OutOfMemory as error:
            failures.append(
                Failure(event=event, requested=requested[row], recorded=False, fits=False, free=error.free or 0)
            )

    def free(row: int) -> None:
        address = places.pop(row, None)
        if address is None:
            return
        if released[row] != freed[row] + 1 and released[row] != freed[row]:
            # It waited for another stream until its free_completed; a stream of its own holds it as long.
            allocator.record_stream(address, -1 - row)
        allocator.free(address)

    for row in np.flatnonzero(rows.born < 0).tolist():
        allocate(row, -1)
        if freed[row] < 0:
            free(row)
    reserved[0] = allocator.counters.reserved_bytes

    births = dict(zip(rows.born.tolist(), range(len(rows)), strict=True))
    frees: dict[int, list[int]] = {}
    returns: dict[int, list[int]] = {}
    for row, (at, back) in enumerate(zip(freed, released, strict=True)):
        if at < count:
            frees.setdefault(at, []).append(row)
        if back != at + 1 and back < count:
            returns.setdefault(back, []).append(row)
    sizes = events.size.tolist()
    for event, action in enumerate(events.action.tolist()):
        if action == Action.ALLOC:
            if event in births:
                allocate(births[event], event)
        elif action == Action.OOM:
            failures.append(_retried(allocator, event, sizes[event], int(events.stream[event])))
        if event in emptied:
            allocator.empty_cache()
        for row in frees.get(event, ()):
            free(row)
        for row in returns.get(event, ()):
            allocator.synchronize(-1 - row)
            allocator.process_events()
        reserved[event + 1] = allocator.counters.reserved_bytes
    return _Run(allocator=allocator, reserved=reserved, failures=failures)


def _retried(allocator: CachingAllocator, event: int, size: int, stream: int) -> Failure:
    """Ask for what failed in the recording; what it gets is given back, for the program went on without it."""
    try:
        address = allocator.malloc(size, stream)
    except OutOfMemory as error:
        return Failure(event=event, requested=size, recorded=True, fits=False, free=error.free or 0)
    free = allocator.driver.free or 0
    allocator.free(address)
    return Failure(event=event, requested=size, recorded=True, fits=True, free=free)


def _emptied(device: DeviceTrace, account: Replay, capacity: int | None) -> frozenset[int]:
    """Return the events at which the program emptied the cache: the last of each row of freed or unmapped segments.

    Rows that the allocator freed because memory was short are left out: the simulation does that by itself. They are
    followed by an ``oom``, or by a segment that would not have fitted before.
    """
    events = device.events
    assert account.reserved is not None
    giving = (events.action == Action.SEGMENT_FREE) | (events.action == Action.SEGMENT_UNMAP)
    emptied = []
    begin = 0
    for last in np.flatnonzero(giving & ~np.append(giving[1:], False)).tolist():
        before = np.flatnonzero(~giving[begin:last])
        first = begin + int(before[-1]) + 1 if len(before) else begin
        begin = last + 1
        if begin < len(events):
            following, size = events.action[begin], int(events.size[begin])
            if following == Action.OOM:
                continue
            making = following in (Action.SEGMENT_ALLOC, Action.SEGMENT_MAP)
            if making and capacity is not None and int(account.reserved[first]) + size > capacity:
                continue
        emptied.append(last)
    return frozenset(emptied)
