"""A capture boiled down to a point, and the plan of a sweep."""

from __future__ import annotations

import pytest
from growth_values import capture_of

from memprof.analysis.sweep import Cause, collapse_layers, point_of
from memprof.analysis.sweep_folder import differences, plan, read_folder
from memprof.categories.category import Category
from memprof.errors import InputError, UsageError

MIB = 2**20
VARIED = {"model": "tiny", "quant": "none,bnb.nf4", "precision": "16-mixed", "mbs": "4, 1,2,2", "seq": "64"}


def layered(size, layer, **more):
    return {"size": size, "category": "activations", "module": f"transformer.h.{layer}.mlp", "op": "aten::mm", **more}


def test_figures_are_those_of_the_peak():
    trace = capture_of(
        [
            {"size": 100, "category": "weights", "finer": "base", "phase": "init", "step": -1},
            layered(7 * MIB, 0, until=2),
            layered(MIB, 1, dtype="float16", phase="forward"),
            layered(9 * MIB, 2, dtype="float16", phase="backward"),
        ]
    )

    point = point_of(trace, "x.pickle")

    figures = point.figures
    assert (point.status, point.file, point.config["recipe"], point.labelled) == ("ok", "x.pickle", "tiny", True)
    assert figures.peak == (100 + 10 * MIB, 100 + 10 * MIB)
    assert figures.categories[Category.ACTIVATIONS].size == 10 * MIB
    assert figures.own_maximum[Category.ACTIVATIONS] == 10 * MIB
    assert figures.causes == {
        Cause(Category.WEIGHTS, "base", None, None, None): (100, 100),
        Cause(Category.ACTIVATIONS, None, "transformer.h.*.mlp", "aten::mm", "float16"): (10 * MIB, 10 * MIB),
    }
    assert figures.place == ("backward", 0, "transformer.h.*.mlp", "aten::mm")
    assert figures.reserved is None


def test_own_maximum_may_lie_elsewhere_than_the_peak():
    trace = capture_of(
        [{"size": 50, "category": "gradients", "until": 1}, {"size": 80, "category": "weights"}],
    )

    figures = point_of(trace, "x.pickle").figures

    assert (figures.categories[Category.GRADIENTS].size, figures.own_maximum[Category.GRADIENTS]) == (0, 50)


def test_first_and_steady_steps_are_told_apart_by_the_first_optimizer_step():
    trace = capture_of(
        [
            {"size": 500, "category": "temporaries", "until": 1},
            {"size": 10, "category": "activations", "until": 2},
            {"size": 30, "category": "activations", "until": 3},
            {"size": 5, "category": "optimizer_state"},
            {"size": 20, "category": "activations", "until": 5},
            {"size": 1, "category": "activations"},
        ],
        marks=[
            (0, "init"),
            (1, "step 0 forward"),
            (2, "step 1 forward"),
            (3, "step 1 optimizer"),
            (4, "step 2 forward"),
        ],
    )

    figures = point_of(trace, "x.pickle").figures

    assert figures.first_step.size == 10
    assert figures.steady.size == 25
    assert figures.peak.size == 500


def test_without_an_optimizer_step_there_is_no_steady_one():
    trace = capture_of([{"size": 10, "category": "activations"}], marks=[(0, "step 0 forward")])

    figures = point_of(trace, "x.pickle").figures

    assert (figures.first_step.size, figures.steady) == (10, None)


def test_capture_that_ran_out_of_memory_is_a_result():
    point = point_of(capture_of([{"size": 10, "category": "weights"}], status="oom"), "x.pickle")

    assert (point.status, point.reason, point.figures.peak.size) == ("oom", "out of memory", 10)


def test_snapshot_of_somebody_else_is_refused_in_words():
    from memprof.trace.snapshot import read_snapshot

    trace = read_snapshot({"segments": [], "device_traces": [[]]}, path="theirs.pickle")

    with pytest.raises(InputError, match=r"theirs\.pickle does not say with which configuration"):
        point_of(trace, "theirs.pickle")


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("transformer.h.0.mlp", "transformer.h.*.mlp"),
        ("h.12", "h.*"),
        ("conv1.2d", "conv1.2d"),
        (None, None),
        ("0", "0"),
    ],
)
def test_layers_are_collapsed(module, name):
    assert collapse_layers(module) == name


def test_plan_is_every_combination_once_in_rising_order():
    planned = plan(VARIED, {"steps": 2})

    assert [(each.config["quant"], each.config["mbs"]) for each in planned] == [
        ("none", 1),
        ("none", 2),
        ("none", 4),
        ("bnb.nf4", 1),
        ("bnb.nf4", 2),
        ("bnb.nf4", 4),
    ]
    assert planned[0].file == "tiny_16-mixed_none_seq64_mbs1.pickle"
    assert len({each.file for each in planned}) == len(planned)


@pytest.mark.parametrize(
    ("axis", "text", "said"),
    [("mbs", "1,x", "'x' is no whole number"), ("seq", "0", "'0' is no whole number"), ("quant", " , ", "no value")],
)
def test_wrong_axis_is_one_clear_line(axis, text, said):
    with pytest.raises(UsageError, match=said):
        plan({**VARIED, axis: text}, {})


def test_name_of_a_model_cannot_lead_out_of_the_directory():
    (planned,) = plan({**VARIED, "model": "../../evil/m", "quant": "none", "mbs": "1"}, {})

    assert "/" not in planned.file


def test_difference_between_plan_and_file_is_said():
    config = {
        "model": "tiny",
        "quant": "none",
        "precision": "16-mixed",
        "mbs": 1,
        "seq": 64,
        "steps": 2,
        "data": "d.json",
    }
    point = point_of(capture_of([{"size": 1, "category": "weights"}], config=config), "x")
    planned = plan(VARIED, {"steps": 2, "data": "/home/me/d.json"})[0]

    assert differences(planned, point, source="profiled", labels=True) is None
    assert differences(planned, point, source=None, labels=True) is None
    assert "source profiled" in differences(planned, point, source="recorded", labels=True)
    assert differences(plan(VARIED, {"steps": 4})[0], point, source=None, labels=True) == "steps 2 instead of 4"


def test_folder_without_captures_and_no_folder(tmp_path):
    assert read_folder(tmp_path).points == ()
    with pytest.raises(InputError, match="is not a directory"):
        read_folder(tmp_path / "none")


def test_file_that_is_no_capture_is_noted_and_the_rest_is_read(tmp_path):
    (tmp_path / "half.pickle").write_bytes(b"\x80\x04}")

    folder = read_folder(tmp_path)

    assert folder.points == ()
    assert "half.pickle" in folder.notes[0]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"over": "mbs", "groups": [{"points": [{}]}]}', "[" * 100_000])
def test_damaged_sweep_json_is_one_clear_line(tmp_path, text):
    (tmp_path / "sweep.json").write_text(text)

    with pytest.raises(InputError, match=r"sweep\.json is not a sweep\.json"):
        read_folder(tmp_path)
