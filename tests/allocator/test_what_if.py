from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from allocator_driving import MIB, NF4, PLAIN, columns_of, with_entries

from memprof.allocator.conf import parse_alloc_conf
from memprof.allocator.counters import OutOfMemory
from memprof.allocator.driver import AddressOrder, Driver
from memprof.allocator.replay import replay
from memprof.allocator.simulation import CachingAllocator
from memprof.allocator.snapshot import device_trace, torch_segments
from memprof.allocator.whatif import what_if
from memprof.trace import load
from memprof.trace.model import Settings, Source

WILD = Path(__file__).parents[2] / "../shared/wild/oom_expandable_4devices.pickle"
NONE = Settings()


@pytest.mark.parametrize("name", [PLAIN, NF4])
def test_the_same_settings_give_what_was_recorded_at_every_event(name):
    device = columns_of(name)

    answer = what_if(device, NONE, NONE, Source.UNKNOWN)

    account = replay(device, NONE, Source.UNKNOWN)
    assert answer.recorded_peak == answer.control_peak == answer.reserved_peak
    assert answer.allocated_peak == int(account.allocated.max())
    # a segment is counted at its segment entry when recorded, and at its alloc here
    allocs = np.flatnonzero(device.events.action == 0)
    np.testing.assert_array_equal(answer.reserved[allocs + 1], account.reserved[allocs + 1])
    assert answer.failures == ()
    assert answer.notes == ()


def test_expandable_segments_reserve_little_more_than_is_allocated():
    device = columns_of(PLAIN)

    answer = what_if(device, NONE, parse_alloc_conf("expandable_segments:True"), Source.UNKNOWN)

    assert answer.reserved_peak < answer.recorded_peak
    assert answer.reserved_peak - answer.allocated_peak < 200 * MIB
    low, high = answer.reserved_range
    assert low <= answer.reserved_peak <= high


def test_a_request_that_failed_for_fragmentation_fits_with_expandable_segments():
    # given 200 MiB in five segments, of each 2 MiB in use: 190 MiB are free, but no segment can be given back
    allocator = CachingAllocator(NONE, Driver(200 * MIB))
    large = []
    for address in [allocator.malloc(40 * MIB) for _ in range(5)]:
        allocator.free(address)
        allocator.malloc(2 * MIB)
        large.append(allocator.malloc(38 * MIB))
    for address in large:
        allocator.free(address)
    with pytest.raises(OutOfMemory):
        allocator.malloc(100 * MIB)
    device = device_trace(allocator)

    answer = what_if(device, NONE, parse_alloc_conf("expandable_segments:True"), Source.SIMULATED)

    assert answer.capacity == 200 * MIB
    (failure,) = answer.failures
    assert (failure.event, failure.requested, failure.recorded) == (len(device.events) - 1, 100 * MIB, True)
    assert failure.fits  # one whole page of each 38 MiB is mapped again elsewhere
    (same,) = what_if(device, NONE, NONE, Source.SIMULATED).failures
    assert not same.fits


def test_less_memory_makes_requests_fail_that_were_served():
    device = columns_of(PLAIN)

    answer = what_if(device, NONE, NONE, Source.UNKNOWN, capacity=9_500_000_000)

    first = answer.failures[0]
    assert not first.recorded
    assert not first.fits
    assert device.events.size[first.event] == first.requested
    assert answer.reserved_peak <= 9_500_000_000
    assert answer.control_peak == answer.recorded_peak


def test_memory_that_waited_for_another_stream_waits_as_long():
    # given a block that another stream uses, returned only after one more allocation
    allocator = CachingAllocator(NONE)
    first = allocator.malloc(20 * MIB)
    allocator.record_stream(first, 9)
    allocator.free(first)
    allocator.malloc(20 * MIB)
    allocator.synchronize()
    allocator.process_events()
    device = device_trace(allocator)

    answer = what_if(device, NONE, NONE, Source.SIMULATED)

    assert answer.recorded_peak == 40 * MIB
    assert answer.reserved_peak == 40 * MIB


def test_a_cache_that_the_program_emptied_is_emptied_again():
    allocator = CachingAllocator(NONE)
    for size in (40, 60, 80):
        allocator.free(allocator.malloc(size * MIB))
        allocator.empty_cache()
    device = device_trace(allocator)

    answer = what_if(device, NONE, NONE, Source.SIMULATED)

    assert answer.recorded_peak == answer.reserved_peak == 80 * MIB
    assert answer.reserved[-1] == 0


def test_a_cache_that_the_allocator_emptied_for_lack_of_memory_is_kept_where_there_is_enough():
    # given a run on 100 MiB: 60 MiB cached are given back for 80 MiB, and another request fails
    allocator = CachingAllocator(NONE, Driver(100 * MIB))
    allocator.free(allocator.malloc(60 * MIB))
    allocator.malloc(80 * MIB)
    with pytest.raises(OutOfMemory):
        allocator.malloc(30 * MIB)

    answer = what_if(device_trace(allocator), NONE, NONE, Source.SIMULATED, capacity=1000 * MIB)

    assert answer.reserved_peak == (60 + 80) * MIB
    assert answer.control_peak == answer.recorded_peak == 80 * MIB
    (failure,) = answer.failures
    assert (failure.recorded, failure.fits) == (True, True)


def test_base_memory_is_placed_first_and_told():
    # given a recording that began after the first allocation
    allocator = CachingAllocator(NONE)
    base = allocator.malloc(30 * MIB)
    late = len(allocator.trace)
    allocator.malloc(50 * MIB)
    allocator.free(base)
    whole = device_trace(allocator)
    device = with_entries(whole, np.arange(late, len(whole.events)))

    answer = what_if(device, NONE, NONE, Source.SIMULATED)

    assert answer.reserved_peak == 80 * MIB
    (note,) = answer.notes
    assert note.startswith("1 allocations (31,457,280 bytes) were there before the first event")


@pytest.mark.wild
def test_a_real_failure_for_lack_of_memory_would_not_have_fitted_either():
    if not WILD.exists():
        pytest.skip(f"other people's snapshots are not here: {WILD.name}")
    trace = load(WILD)
    (device,) = (each for each in trace.devices if each.device == 1)

    same = what_if(device, trace.settings, trace.settings, trace.source)

    (failure,) = same.failures
    assert (failure.event, failure.fits, failure.free) == (421, False, 95_682_560)
    assert same.control_peak == same.recorded_peak == 84_202_749_952


def test_torch_segments_have_torchs_totals():
    allocator = CachingAllocator(NONE, Driver(order=AddressOrder.UP))
    first = allocator.malloc(1000)
    allocator.malloc(3 * MIB)
    allocator.record_stream(first, 4)
    allocator.free(first)

    small, large = torch_segments(allocator)

    assert (small["segment_type"], large["segment_type"]) == ("small", "large")
    assert (small["total_size"], small["allocated_size"], small["active_size"], small["requested_size"]) == (
        2 * MIB,
        0,
        1024,
        1000,
    )
    assert [block["state"] for block in small["blocks"]] == ["active_pending_free", "inactive"]
    assert [block["state"] for block in large["blocks"]] == ["active_allocated", "inactive"]
    assert large["allocated_size"] == 3 * MIB
    assert [entry["action"] for entry in allocator.trace.entries(1)] == [
        "alloc",
        "segment_alloc",
        "alloc",
        "free_requested",
    ]
