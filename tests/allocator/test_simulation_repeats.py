"""The simulation, given only the sizes and frees of a real recording, makes the same entries in the same order."""

from __future__ import annotations

from pathlib import Path

import pytest
from allocator_driving import NF4, PLAIN, columns_of

from memprof.allocator.counters import OutOfMemory
from memprof.allocator.driver import AddressOrder, Driver
from memprof.allocator.replay import replay
from memprof.allocator.simulation import CachingAllocator
from memprof.trace import load
from memprof.trace.model import Action, DeviceTrace, Settings, Source

WILD = Path(__file__).parents[2] / "../shared/wild/oom_expandable_4devices.pickle"


def repeated(device: DeviceTrace, allocator: CachingAllocator) -> list[tuple[int, int]]:
    """Give a recording's requests and frees to the allocator and return its entries (action, size)."""
    events, places = device.events, {}
    columns = (events.action, events.address, events.size, events.stream)
    for action, address, size, stream in zip(*(column.tolist() for column in columns), strict=True):
        if action == Action.ALLOC:
            places[address] = allocator.malloc(size, stream)
        elif action == Action.FREE_REQUESTED:
            allocator.free(places.pop(address))
        elif action == Action.OOM:
            with pytest.raises(OutOfMemory):
                allocator.malloc(size, stream)
    return list(zip(allocator.trace.action, allocator.trace.size, strict=True))


def entries(device: DeviceTrace) -> list[tuple[int, int]]:
    return list(zip(device.events.action.tolist(), device.events.size.tolist(), strict=True))


@pytest.mark.parametrize(
    ("name", "allocated", "reserved"), [(PLAIN, 9_417_176_576, 10_030_678_016), (NF4, 9_369_105_920, 10_001_317_888)]
)
def test_a_recording_is_repeated_entry_by_entry(name, allocated, reserved):
    device = columns_of(name)
    allocator = CachingAllocator(Settings())

    made = repeated(device, allocator)

    assert made == entries(device)
    assert allocator.counters.allocated_peak == allocated
    assert allocator.counters.reserved_peak == reserved


@pytest.mark.parametrize("order", AddressOrder)
def test_reserved_does_not_depend_on_addresses_here(order):
    allocator = CachingAllocator(Settings(), Driver(order=order))

    repeated(columns_of(PLAIN), allocator)

    assert allocator.counters.reserved_peak == 10_030_678_016


@pytest.mark.wild
@pytest.mark.parametrize("number", [0, 1, 2])
def test_expandable_segments_and_exhaustion_are_repeated_entry_by_entry(number):
    # given a recording with expandable segments; on device 1 a request fails after the allocator has unmapped all that
    # was free
    if not WILD.exists():
        pytest.skip(f"other people's snapshots are not here: {WILD.name}")
    trace = load(WILD)
    (device,) = (each for each in trace.devices if each.device == number)
    reserved = replay(device, trace.settings, Source.UNKNOWN).reserved
    capacity = None
    for event, (action, _) in enumerate(entries(device)):
        if action == Action.OOM:
            capacity = int(reserved[event + 1] + device.events.address[event])

    made = repeated(device, CachingAllocator(trace.settings, Driver(capacity, total=80 << 30)))

    assert made == entries(device)
