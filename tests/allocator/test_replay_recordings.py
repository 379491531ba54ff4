"""Replay of real recordings: torch's own figures to the byte, and the end that the file has."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from allocator_driving import NF4, PLAIN, columns_of

from memprof.allocator.heap import final_differences, heap_at
from memprof.allocator.invariant import broken_rules
from memprof.allocator.replay import replay
from memprof.trace import load
from memprof.trace.model import Action, Settings, Source

WILD = Path(__file__).parents[2] / "../shared/wild"
GIB = 1 << 30


@pytest.mark.parametrize(
    ("name", "allocated", "reserved"), [(PLAIN, 9_417_176_576, 10_030_678_016), (NF4, 9_369_105_920, 10_001_317_888)]
)
def test_peaks_are_those_of_the_allocator_to_the_byte(name, allocated, reserved):
    # given a recording of a training step, and what torch said at its end: max_memory_allocated, max_memory_reserved
    device = columns_of(name)

    result = replay(device, Settings(), Source.UNKNOWN)

    assert int(result.allocated.max()) == allocated
    assert int(result.allocated[result.peak_event + 1]) == allocated
    assert int(result.reserved.max()) == reserved
    assert final_differences(device, result) == ()
    assert result.notes == ()


@pytest.mark.parametrize("name", [PLAIN, NF4])
def test_heap_is_sound_at_every_moment_of_a_recording(name):
    device = columns_of(name)
    result = replay(device, Settings(), Source.UNKNOWN)

    for event in range(-1, len(device.events), 97):
        row = event + 1
        broken = broken_rules(
            heap_at(device, result, event),
            allocated=int(result.allocated[row]),
            pending=int(result.pending[row]),
            reserved=int(result.reserved[row]),
        )
        assert broken == (), event


def test_progress_rises_to_one():
    told: list[float] = []

    replay(columns_of(PLAIN), Settings(), Source.UNKNOWN, told.append)

    assert told == sorted(told)
    assert told[-1] == 1


def wild(name: str):
    path = WILD / f"{name}.pickle"
    if not path.exists():
        pytest.skip(f"other people's snapshots are not here: {path.name}")
    return load(path)


@pytest.mark.wild
@pytest.mark.parametrize(
    ("name", "device", "known"),
    [
        ("tiny_97_events", 0, {"base": 0, "peak": 3.0260, "at": 52, "end": 0.0295, "blocks": (0.030, 3.521)}),
        (
            "late_start_inference",
            0,
            {"base": 1.5845, "peak": 1.6177, "at": 292, "end": 1.5845, "blocks": (1.586, 1.643)},
        ),
        (
            "late_start_training",
            0,
            {"base": 4.7454, "peak": 6.5317, "at": 9966, "end": 6.3409, "blocks": (6.349, 6.738)},
        ),
        ("oom_expandable_4devices", 0, {"base": 0, "peak": 7.8757, "at": 6278, "end": 7.5387, "blocks": (None, 7.955)}),
        (
            "oom_expandable_4devices",
            1,
            {"base": 0, "peak": 78.2901, "at": 420, "end": 0.3758, "blocks": (None, 78.420)},
        ),
        (
            "oom_expandable_4devices",
            2,
            {"base": 0, "peak": 20.0836, "at": 715, "end": 18.8413, "blocks": (None, 20.381)},
        ),
        ("legacy_history_blocks", 0, {"end": 5.2931, "blocks": (5.293, 7.086)}),
        ("toplevel_list", 1, {"blocks": (3.123, 3.398)}),
        ("state_only_fragmented", 0, {"blocks": (7.961, 15.121)}),
        ("state_only_small", 1, {"blocks": (0.508, 5.178)}),
        ("truncated_negative_baseline", 0, {"base": 0, "peak": 0.3751, "at": 43, "end": 0, "blocks": (0, 0.393)}),
    ],
)
def test_wild_recordings_have_their_known_values(name, device, known):
    # given a stranger's snapshot and what was computed from it independently, in GiB: requested bytes before, at their
    # highest and at the end, and allocated and reserved at the end
    trace = wild(name)
    (found,) = (each for each in trace.devices if each.device == device)

    result = replay(found, trace.settings, trace.source)

    highest = int(np.argmax(result.requested))
    said = {
        "base": round(result.requested[0] / GIB, 4),
        "peak": round(result.requested[highest] / GIB, 4),
        "at": highest - 1,
        "end": round(result.requested[-1] / GIB, 4),
    }
    assert {key: said[key] for key in known if key in said} == {key: known[key] for key in known if key in said}
    allocated, reserved = known["blocks"]
    assert round(result.reserved[-1] / GIB, 3) == reserved
    assert allocated in {None, round(result.allocated[-1] / GIB, 3)}
    assert final_differences(found, result) == ()
    for column in (result.allocated, result.requested, result.pending, result.reserved):
        assert (column >= 0).all()


@pytest.mark.wild
def test_disagreement_of_trace_and_segments_is_told_in_numbers():
    trace = wild("truncated_negative_baseline")

    result = replay(trace.devices[0], trace.settings, trace.source)

    (note,) = result.notes
    assert note.startswith(
        "24 allocations (402,719,744 requested bytes) live by the trace are not in the file's segments"
    )


@pytest.mark.wild
def test_state_at_a_real_out_of_memory():
    trace = wild("oom_expandable_4devices")
    (device,) = (each for each in trace.devices if each.device == 1)

    result = replay(device, trace.settings, trace.source)

    (event,) = np.flatnonzero(device.events.action == Action.OOM)
    assert event == 421
    assert result.allocated[event + 1] / GIB == pytest.approx(78.29, abs=5e-3)
