"""The two engines, replay and simulation, say the same of random programs."""

from __future__ import annotations

import numpy as np
import pytest
from allocator_driving import drivers, limits, programs, recorded, run_program, settings_st, with_entries
from hypothesis import HealthCheck, given, settings

from memprof.allocator.heap import final_differences, final_heap, heap_at
from memprof.allocator.invariant import broken_rules
from memprof.allocator.replay import replay
from memprof.trace.model import Action, Source

quick = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@quick
@given(programs, settings_st, drivers, limits)
def test_replay_of_a_simulation_gives_its_figures_and_blocks_at_every_step(program, conf, driver, allowed):
    # given a random program on the simulated allocator
    run = run_program(program, conf, driver, allowed)
    device = recorded(run)

    # when its trace is replayed
    result = replay(device, conf, Source.SIMULATED)

    # then every figure, every block and every allocation's size is the simulation's
    assert result.notes == ()
    for step in run.steps:
        row = step.entries
        figures = (result.allocated[row], result.requested[row], result.pending[row], result.reserved[row])
        assert figures == (step.allocated, step.requested, step.pending, step.reserved)
        heap = heap_at(device, result, row - 1)
        assert list(zip(heap.address, heap.size, heap.state, strict=True)) == step.blocks
    for event in range(-1, len(device.events)):
        figures = {name: int(getattr(result, name)[event + 1]) for name in ("allocated", "pending", "reserved")}
        assert broken_rules(heap_at(device, result, event), **figures) == ()
    assert final_differences(device, result) == ()
    assert dict(zip(result.allocations.born.tolist(), result.allocations.size.tolist(), strict=True)) == run.sizes
    peaks = (int(result.allocated.max()), int(result.reserved.max()))
    assert peaks == (run.allocator.counters.allocated_peak, run.allocator.counters.reserved_peak)


@quick
@given(programs, settings_st, drivers, limits)
def test_simulated_heap_keeps_the_rules_of_a_caching_allocator(program, conf, driver, allowed):
    run = run_program(program, conf, driver, allowed)
    counters = run.allocator.counters

    broken = broken_rules(
        final_heap(recorded(run)),
        allocated=counters.allocated_bytes,
        pending=counters.active_bytes - counters.allocated_bytes,
        reserved=counters.reserved_bytes,
    )

    assert broken == ()
    assert counters.reserved_bytes == driver.used
    assert driver.capacity is None or counters.reserved_peak <= driver.capacity
    assert allowed is None or conf.expandable_segments or counters.reserved_peak <= allowed
    assert counters.num_ooms == run.failures


@pytest.mark.parametrize("lost_share", [0.3, 0.7])
@quick
@given(programs, settings_st, drivers)
def test_replay_without_the_oldest_entries_still_ends_in_the_segments(lost_share, program, conf, driver):
    # given a trace whose oldest entries were overwritten
    run = run_program(program, conf, driver, None)
    device = recorded(run)
    lost = int(len(device.events) * lost_share)
    short = with_entries(device, np.arange(lost, len(device.events)))
    whole = replay(device, conf, Source.SIMULATED)

    # when it is replayed
    result = replay(short, conf, Source.SIMULATED)

    # then reserved is exact at every event, and so is everything else but for what is not in the file: the remainder
    # that a block held, up to 1 MiB (20 MiB if it was too large to be split), before it was freed
    np.testing.assert_array_equal(result.reserved, whole.reserved[lost:])
    assert final_differences(short, result) == ()
    known = [note for note in result.notes if "before the first event" not in note]
    assert known == []
    used, expected = result.allocated + result.pending, (whole.allocated + whole.pending)[lost:]
    unseen = (result.allocations.born < 0) & (result.allocations.released < len(short.events))
    slack = 0 if conf.expandable_segments else int(unseen.sum()) * ((20 << 20) if conf.max_split_size else (1 << 20))
    assert (used <= result.reserved).all()
    assert (np.abs(used - expected) <= slack).all()
    assert min(result.allocated.min(), result.pending.min(), result.requested.min()) >= 0


@quick
@given(programs, settings_st, drivers)
def test_replay_without_free_requested_counts_a_block_until_it_is_returned(program, conf, driver):
    run = run_program(program, conf, driver, None)
    device = recorded(run)
    kept = np.flatnonzero(device.events.action != Action.FREE_REQUESTED)
    whole = replay(device, conf, Source.SIMULATED)

    result = replay(with_entries(device, kept), conf, Source.SIMULATED)

    active = (whole.allocated + whole.pending)[np.concatenate([[0], kept + 1])]
    np.testing.assert_array_equal((result.allocated + result.pending)[:-1], active[:-1])
    assert result.allocated[-1] == whole.allocated[-1]


@quick
@given(programs, settings_st, drivers)
def test_replay_without_free_completed_still_has_every_allocated_byte_it_can_know(program, conf, driver):
    run = run_program(program, conf, driver, None)
    device = recorded(run)
    kept = np.flatnonzero(device.events.action != Action.FREE_COMPLETED)
    whole = replay(device, conf, Source.SIMULATED)

    result = replay(with_entries(device, kept), conf, Source.SIMULATED)

    rows = np.concatenate([[0], kept + 1])
    np.testing.assert_array_equal(result.requested, whole.requested[rows])
    assert result.allocated[-1] == whole.allocated[-1]


@quick
@given(programs, settings_st, drivers)
def test_replay_of_a_damaged_trace_is_never_negative_and_ends_in_the_segments(program, conf, driver):
    # given a trace of which every third entry is missing
    run = run_program(program, conf, driver, None)
    device = recorded(run)
    damaged = with_entries(device, np.flatnonzero(np.arange(len(device.events)) % 3))

    result = replay(damaged, conf, Source.SIMULATED)

    for column in (result.allocated, result.requested, result.pending, result.reserved):
        assert (column >= 0).all()
    assert (result.allocated + result.pending <= result.reserved).all()
    assert result.allocated[-1] == run.allocator.counters.allocated_bytes
