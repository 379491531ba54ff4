"""What of a file is calculated with, printed or walked over later: bad values are refused where it is read."""

from __future__ import annotations

import pytest

from memprof.analysis.account import open_account
from memprof.analysis.groups import group_live
from memprof.analysis.moment import step_phases
from memprof.errors import InputError
from memprof.trace.facts import read_made_by
from memprof.trace.snapshot import read_snapshot
from memprof.trace.stacks import DEPTH

EVENT = {"action": "alloc", "addr": 1 << 40, "size": 100, "stream": 0, "time_us": 1, "frames": []}


def written(events=1, shape="16,4", **memprof):
    labels = {"device": [0], "entry": [0], "category": [0], "shape": [1]}
    block = {"version": 1, "source": "recorded", "strings": ["weights", shape], "labels": labels} | memprof
    trace = [EVENT | {"addr": EVENT["addr"] + 512 * row} for row in range(events)]
    return {"segments": [], "device_traces": [trace], "memprof": block}


def refused(snapshot) -> str:
    with pytest.raises(InputError) as caught:
        read_snapshot(snapshot)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300
    return str(caught.value)


@pytest.mark.parametrize(
    "shape",
    [
        *("9" * 5000 + ",4", "9" * 19, "-4,x,\x1b", "-4", "\u0967,\u00b2", "1,", ",1", "1,,2", " 1", "1.0", "1\n", "x"),
        ",".join("1" * 65),
    ],
)
def test_a_shape_that_is_none(shape):
    assert "memprof.labels.shape" in refused(written(shape=shape))


@pytest.mark.parametrize("shape", ["", "0", "16,1037,512", "9" * 18, ",".join("1" * 64)])
def test_a_shape_that_is_one_is_a_group_s(shape):
    # given
    trace = read_snapshot(written(shape=shape))

    # when
    (group,) = group_live(open_account(trace, trace.devices[0]), 0, ["shape"])

    # then
    assert ",".join(map(str, group.shape)) == shape


def test_a_text_that_no_shape_points_at_may_be_anything():
    assert read_snapshot(written(strings=["weights", "1", "no, shape"])).texts[-1] == "no, shape"


@pytest.mark.parametrize("number", ["9" * 5000, "9" * 10, "\u0967"])
def test_a_step_that_is_no_number(number):
    marks = [{"device": 0, "entry": 0, "name": f"step {number} forward"}]

    assert "memprof.marks[0].name" in refused(written(marks=marks))


def test_marks_that_are_no_steps_are_names():
    names = ["init", "step x", "step", "my step 5", "step 3 forward", "step 999999999"]
    trace = read_snapshot(written(marks=[{"device": 0, "entry": 0, "name": name} for name in names]))

    phases = step_phases(open_account(trace, trace.devices[0]))

    assert [(phase.step, phase.phase) for phase in phases] == [
        *((-1, name) for name in names[:4]),
        (3, "forward"),
        (999999999, "between"),
    ]


def test_profiler_steps_of_a_stranger_with_endless_numbers_are_no_steps():
    # given: a snapshot of torch's own, whose regions have any name
    names = ("ProfilerStep#" + "9" * 5000, "ProfilerStep#\u0967", "ProfilerStep#7")
    regions = [{"stage": "START", "name": name, "device": 0, "time_us": 1} for name in names]
    trace = read_snapshot({"segments": [], "device_traces": [[EVENT]], "external_annotations": regions})

    # when
    phases = step_phases(open_account(trace, trace.devices[0]))

    # then
    assert [phase.step for phase in phases] == [7]


@pytest.mark.parametrize(
    ("config", "place"),
    [
        ({"mbs": "16"}, "config.mbs"),
        ({"mbs": True}, "config.mbs"),
        ({"mbs": 0}, "config.mbs"),
        ({"mbs": -4}, "config.mbs"),
        ({"mbs": 16.0}, "config.mbs"),
        ({"mbs": [16]}, "config.mbs"),
        ({"mbs": float("nan")}, "made_by"),
        ({"mbs": 1 << 31}, "config.mbs"),
        ({"mbs": 1 << 90}, "made_by"),
        ({"seq": {}}, "config.seq"),
        ({"seq": 0}, "config.seq"),
        ({"lm_head_chunk_size": -1}, "config.lm_head_chunk_size"),
        ({"model": ["pythia"]}, "config.model"),
        ({"fix": []}, "config.fix"),
        ({"quant": 4}, "config.quant"),
        ([], "made_by.config"),
        ("mbs 4", "made_by.config"),
    ],
)
def test_a_setting_that_memprof_calculates_with_is_of_its_type(config, place):
    assert place in refused(written(made_by={"config": config}))


@pytest.mark.parametrize("config", [None, {}, {"mbs": None, "model": None}, {"mbs": 4, "layers": [1, 2], "rate": 0.5}])
def test_other_settings_are_the_user_s(config):
    assert read_made_by({"config": config}, "made_by") == {"config": config}


def test_stacks_beyond_reason_are_cut_to_their_innermost_frames():
    # given: frames that the file has once, and two stacks of more of them than Python can be deep
    frames = [{"name": f"n{row}", "filename": "f.py", "line": row} for row in range(DEPTH + 2)]
    stacks = (frames, frames[1:], frames[:DEPTH])
    events = [EVENT | {"addr": 512 * row, "frames": stack} for row, stack in enumerate(stacks)]

    # when
    trace = read_snapshot({"segments": [], "device_traces": [events]})

    # then: the first and the last are one stack now
    rows = trace.devices[0].events.stack.tolist()
    assert rows == [0, 1, 0]
    assert [len(trace.stacks.stack(row)) for row in (0, 1)] == [DEPTH, DEPTH]
    assert trace.stacks.stack(1)[0].name == "n1"
    assert any("2 stacks are deeper than" in note for note in trace.notes)


@pytest.mark.parametrize("device", [128, -1, True])
def test_devices_are_those_that_torch_can_number(device):
    segment = {"device": device, "address": 0, "total_size": 512, "blocks": []}

    assert "segments[0].device" in refused({"segments": [segment], "device_traces": []})


def test_as_many_devices_as_torch_can_number():
    blocks = [{"size": 512, "requested_size": 1, "state": "active_allocated"}]
    segments = [{"device": row, "address": 4096, "total_size": 512, "blocks": blocks} for row in range(128)]

    assert len(read_snapshot({"segments": segments, "device_traces": []}).devices) == 128
