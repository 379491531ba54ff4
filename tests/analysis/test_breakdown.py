"""The account at any moment, on a trace small enough to count by hand."""

from __future__ import annotations

import pytest

from memprof.analysis.breakdown import break_down
from memprof.categories.category import CATEGORIES, Category
from memprof.errors import InputError, MemprofError
from memprof.trace.snapshot import read_snapshot

MIB = 2**20
BASE = 0x7F0000000000


def entry(action, addr, size, *, time, frames=(), **more):
    return {"action": action, "addr": addr, "size": size, "stream": 0, "time_us": time, "frames": list(frames), **more}


def frame(name, filename="train.py", line=1):
    return {"name": name, "filename": filename, "line": line}


FORWARD = (frame("linear", "site-packages/torch/nn/functional.py"), frame("forward", "model.py", 7))


def small_run():
    """Two allocations of 300 and 1000 bytes in one 2 MiB segment; the first is freed, the second stays."""
    first, second = BASE, BASE + 512
    trace = [
        entry("segment_alloc", BASE, 2 * MIB, time=1, frames=FORWARD),
        entry("alloc", first, 300, time=2, frames=FORWARD),
        entry("alloc", second, 1000, time=3, frames=FORWARD),
        entry("free_requested", first, 300, time=4),
        entry("free_completed", first, 300, time=5),
    ]
    blocks = [
        {"address": first, "size": 512, "requested_size": 300, "state": "inactive", "frames": []},
        {"address": second, "size": 1024, "requested_size": 1000, "state": "active_allocated", "frames": list(FORWARD)},
        {
            "address": second + 1024,
            "size": 2 * MIB - 1536,
            "requested_size": 0,
            "state": "inactive",
            "frames": [],
        },
    ]
    segment = {
        "device": 0,
        "address": BASE,
        "total_size": 2 * MIB,
        "stream": 0,
        "segment_type": "small",
        "allocated_size": 1024,
        "active_size": 1024,
        "requested_size": 1000,
        "blocks": blocks,
        "frames": [],
    }
    return {"segments": [segment], "device_traces": [trace]}


def labelled_run():
    snapshot = small_run()
    strings = ["", "weights", "base", "activations", "saved", "lm_head", "forward", "aten::linear", "float32", "2,125"]
    snapshot["memprof"] = {
        "version": 1,
        "source": "recorded",
        "made_by": {"config": {"model": "tiny", "mbs": 2}},
        "environment": {"torch": "2.11.0"},
        "strings": strings,
        "labels": {
            "device": [0, 0],
            "entry": [1, 2],
            "category": [1, 3],
            "finer": [2, 4],
            "phase": [6, 6],
            "step": [0, 0],
            "module": [5, 5],
            "op": [7, 7],
            "dtype": [8, 8],
            "shape": [9, 9],
            "parameter": [-1, -1],
            "saved": [False, True],
        },
        "marks": [
            {"device": 0, "entry": 0, "name": "step 0 forward"},
            {"device": 0, "entry": 3, "name": "step 1 forward"},
        ],
        "stats": [
            {
                "device": 0,
                "step": 0,
                "max_allocated_bytes": 1536,
                "max_reserved_bytes": 2 * MIB,
                "device_used_bytes": 3 * MIB,
            }
        ],
    }
    return snapshot


def break_down_dict(snapshot, **options):
    (device,) = break_down(read_snapshot(snapshot, path="small.pickle"), **options).devices
    return device


def test_peak_counts_whole_blocks_and_what_was_requested():
    peak = break_down_dict(small_run()).peak

    assert (peak.event, peak.allocated, peak.requested, peak.reserved) == (2, 512 + 1024, 1300, 2 * MIB)
    assert peak.cached == 2 * MIB - 1536


def test_base_is_before_and_end_after_every_event():
    device = break_down_dict(small_run())

    assert (device.base.event, device.base.allocated, device.base.reserved) == (-1, 0, 0)
    assert (device.end.event, device.end.allocated) == (4, 1024)


@pytest.mark.parametrize("event", range(-1, 5))
def test_categories_sum_to_allocated_at_every_event(event):
    device = break_down_dict(labelled_run(), at=f"event:{event}")
    state = device.shown

    assert set(state.categories) == set(CATEGORIES)
    assert sum(state.categories.values()) == state.allocated
    assert sum(state.categories_requested.values()) == state.requested
    for category in CATEGORIES:
        assert sum(state.finer[category].values()) == state.categories[category]


def test_labels_become_categories_and_causes():
    device = break_down_dict(labelled_run())

    assert device.peak.categories[Category.WEIGHTS] == 512
    assert device.peak.finer[Category.ACTIVATIONS] == {"saved": 1024}
    largest = device.top[0]
    assert (largest.module, largest.op, largest.dtype, largest.shape) == (
        "lm_head",
        "aten::linear",
        "float32",
        (2, 125),
    )
    assert largest.saved


def test_unlabelled_allocation_of_a_labelled_file_is_unknown():
    snapshot = labelled_run()
    for column in snapshot["memprof"]["labels"].values():
        column.pop()

    peak = break_down_dict(snapshot).peak

    assert peak.categories[Category.UNKNOWN] == 1024


def test_unknown_category_name_is_refused():
    snapshot = labelled_run()
    snapshot["memprof"]["strings"][1] = "waits"

    with pytest.raises(InputError, match="'waits'"):
        break_down_dict(snapshot)


def test_device_used_is_reserved_plus_what_lies_outside():
    assert break_down_dict(labelled_run()).peak.device_used == 3 * MIB
    assert break_down_dict(small_run()).peak.device_used is None


def test_phases_are_peaks_between_marks():
    phases = break_down_dict(labelled_run()).phases

    assert [(phase.step, phase.phase, phase.peak_allocated) for phase in phases] == [
        (0, "forward", 1536),
        (1, "forward", 1536),
    ]


@pytest.mark.parametrize(
    ("moment", "event"), [("peak", 2), ("end", 4), ("event:1", 1), ("event:-1", -1), ("step:0", 2), ("step:1", 3)]
)
def test_moments(moment, event):
    device = break_down_dict(labelled_run(), at=moment)

    assert device.shown.event == event


@pytest.mark.parametrize(
    ("moment", "said"),
    [
        ("oom", "never ran out of memory"),
        ("event:5", "no event 5"),
        ("event:99999999999999999999", "no moment"),
        ("step:9", "steps 0 to 1"),
        ("later", "no moment"),
        ("", "no moment"),
        ("event:", "no moment"),
    ],
)
def test_moment_that_is_not_there_is_one_clear_line(moment, said):
    with pytest.raises(MemprofError, match=said) as caught:
        break_down_dict(labelled_run(), at=moment)
    assert "\n" not in str(caught.value)


def test_step_without_marks_says_that_nothing_marks_steps():
    with pytest.raises(InputError, match="nothing in it says where a step begins"):
        break_down_dict(small_run(), at="step:0")


def test_profiler_steps_serve_as_steps():
    snapshot = small_run()
    snapshot["external_annotations"] = [
        {"name": f"ProfilerStep#{step}", "stage": stage, "device": 0, "time_us": time}
        for step, stage, time in [(4, "START", 1), (4, "END", 2), (5, "START", 3), (5, "END", 9)]
    ]

    device = break_down_dict(snapshot, at="step:4")

    assert [(phase.step, phase.peak_allocated) for phase in device.phases] == [(4, 512), (5, 1536)]
    assert device.shown.event == 1


def test_device_that_is_not_there_names_those_that_are():
    with pytest.raises(InputError, match="device 3; the file has devices: 0"):
        break_down_dict(small_run(), device=3)


def test_failed_request_is_reported_with_its_state():
    snapshot = small_run()
    oom = {"action": "oom", "device_free": 4096, "size": 9 * MIB, "stream": 0, "time_us": 4, "frames": []}
    snapshot["device_traces"][0].insert(3, oom)

    device = break_down_dict(snapshot, at="oom")

    (failed,) = device.oom
    assert (failed.event, failed.requested, failed.free, failed.state.allocated) == (3, 9 * MIB, 4096, 1536)
    assert device.shown.event == 3
