"""What a fix saves, predicted from runs without it, against simulated runs with it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from memprof.analysis.account import open_account
from memprof.analysis.counterfactual import PREDICTIONS, lives_of, predict
from memprof.analysis.findings.view import view_of
from memprof.analysis.savings import measure_savings
from memprof.report.fixes import fixes_json, fixes_report
from memprof.trace import load

ROOT = Path(__file__).parents[2]
SWEEP = ROOT / "traces" / "sweep-pythia-70m"


def view(name):
    trace = load(SWEEP / f"pythia-70m_16-mixed_{name}.pickle")
    return view_of(open_account(trace, trace.devices[0]))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A small model with and without every fix, on a simulated card."""
    pytest.importorskip("litgpt")
    pytest.importorskip("bitsandbytes")
    folder = tmp_path_factory.mktemp("fixes")
    script = ROOT / "scripts" / "study_simulate.py"
    options = ["--model", "pythia-14m", "--seq", "500", "--mbs", "8", "--quant", "none,bnb.nf4"]
    command = [sys.executable, str(script), "-o", str(folder), *options, "--fix", ",".join(["none", *PREDICTIONS])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return folder


@pytest.mark.torch
@pytest.mark.timeout(280)
def test_predicted_and_measured_savings_agree_within_three_percent(runs):
    savings = measure_savings([load(path) for path in sorted(runs.glob("*.pickle"))])
    assert len(savings) == 2 * len(PREDICTIONS)
    for each in savings:
        saved = each.before - each.after
        assert each.before - each.predicted == pytest.approx(saved, rel=0.03, abs=100_000), each
    # then the fixes save what they are for, and only there
    saved = {(each.fix, each.config["quant"]): each.before - each.after for each in savings}
    assert saved["autocast-output", "bnb.nf4"] > 10e6
    assert saved["autocast-output", "none"] == 0
    assert saved["half-frozen-weights", "none"] > 10e6
    assert saved["half-frozen-weights", "bnb.nf4"] == 0


@pytest.mark.torch
@pytest.mark.timeout(280)
def test_command_prints_every_pair_and_its_json(runs, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "memprof", "fixes", str(runs), "--json"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    rows = json.loads(done.stdout)["fixes"]
    assert {(row["fix"], row["config"]["quant"]) for row in rows} == {
        (fix, quant) for fix in PREDICTIONS for quant in ("none", "bnb.nf4")
    }
    # given a folder in which no run has a counterpart
    for path in runs.glob("*fix-bf16-true.pickle"):
        shutil.copy(path, tmp_path)
    failed = subprocess.run(
        [sys.executable, "-m", "memprof", "fixes", str(tmp_path)], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert failed.returncode == 1
    assert "both with a fix and without" in failed.stderr


def measured():
    """Every fix that was measured on an H200, on a point of the committed sweep: its peak by torch's own figure."""
    data = ROOT / "docs" / "study" / "data"
    for row in json.loads((data / "measured.json").read_text(encoding="utf-8"))["fixes"]:
        yield row["fix"], row["config"]["quant"], row["config"]["mbs"], row["after_bytes"]
    for row in json.loads((data / "fixes-held-out.json").read_text(encoding="utf-8"))["rows"]:
        if "measured_bytes" in row and (row["model"], row["seq"]) == ("pythia-70m", 1037):
            yield row["fix"], row["quant"], row["mbs"], row["measured_bytes"]


def test_what_was_measured_is_all_fixes():
    assert {fix for fix, *_ in measured()} == set(PREDICTIONS)


@pytest.mark.parametrize(("fix", "quant", "mbs", "after"), sorted(measured()))
def test_saving_predicted_from_a_recorded_run_is_what_an_h200_measured(fix, quant, mbs, after):
    run = view(f"{quant}_seq1037_mbs{mbs}")
    assert run.peak - predict(fix, run) == pytest.approx(run.peak - after, rel=0.01)


@pytest.mark.parametrize("name", ["none_seq1037_mbs16", "bnb.nf4_seq1037_mbs1"])
def test_unedited_allocations_come_to_the_recorded_peak(name):
    run = view(name)
    assert lives_of(run).peak() == run.peak


def test_without_labels_nothing_is_predicted():
    trace = load(SWEEP / "pythia-70m_16-mixed_none_seq1037_mbs1.pickle")
    run = view_of(open_account(trace, replace(trace.devices[0], labels=None)))
    assert [predict(fix, run) for fix in PREDICTIONS] == [None] * len(PREDICTIONS)


def test_runs_without_counterpart_are_passed_over():
    savings = measure_savings([load(path) for path in sorted(SWEEP.glob("*mbs1.pickle"))])
    assert savings == ()
    assert fixes_json(savings) == {"format": 1, "fixes": []}
    assert fixes_report(savings).row_count == 0
