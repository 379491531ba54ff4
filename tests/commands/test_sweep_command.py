"""`memprof sweep` from outside: real captures on the CPU, killed half way, resumed, damaged, and failing."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time

import pytest

import memprof

pytestmark = pytest.mark.torch
SETTINGS = ("--model", "pythia-14m", "--precision", "bf16-mixed", "--seq", "16", "--steps", "1", "--device", "cpu")
POINT = "pythia-14m_bf16-mixed_{quant}_seq16_mbs{mbs}.pickle"
TOO_LARGE = "Llama-3.1-405B"
"""Its float32 weights fit no machine that tests run on."""
KEYS = {
    "at",
    "file",
    "status",
    "reason",
    "allocated_bytes",
    "reserved_bytes",
    "device_used_bytes",
    "first_step_allocated_bytes",
    "steady_allocated_bytes",
}


def command(folder, *more):
    return [sys.executable, "-m", "memprof", "sweep", *SETTINGS, "-o", str(folder), *more]


def sweep(folder, *more):
    return subprocess.run(command(folder, *more), capture_output=True, text=True, check=False)


def points_of(folder):
    document = json.loads((folder / "sweep.json").read_text())
    return [point for group in document["groups"] for point in group["points"]]


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    """A sweep of two points that got Ctrl-C when its first one was done, and what it said."""
    folder = tmp_path_factory.mktemp("sweep") / "new" / "sweep"
    process = subprocess.Popen(command(folder, "--mbs", "1,2"), stderr=subprocess.PIPE, text=True)
    begun = time.monotonic()
    while not (folder / "sweep.json").exists() and process.poll() is None and time.monotonic() < begun + 120:
        time.sleep(0.1)
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    return folder, process.returncode, said


@pytest.fixture(scope="module")
def resumed(interrupted):
    """The same sweep, run again."""
    folder, _, _ = interrupted
    before = (folder / POINT.format(quant="none", mbs=1)).stat().st_mtime_ns
    done = sweep(folder, "--mbs", "1,2", "--json")
    assert done.returncode == 0, done.stderr
    return folder, before, json.loads(done.stdout)


def test_a_sweep_that_is_interrupted_before_its_first_point_says_so(tmp_path):
    process = subprocess.Popen(command(tmp_path / "sweep", "--mbs", "1,2"), stderr=subprocess.PIPE, text=True)
    begun = time.monotonic()
    while not (tmp_path / "sweep").exists() and process.poll() is None and time.monotonic() < begun + 60:
        time.sleep(0.05)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)

    assert process.returncode == 1
    assert said.splitlines()[-1].startswith("memprof: interrupted after 0 of 2 points; the same command goes on")


def test_interrupted_sweep_says_so_and_leaves_whole_files_only(interrupted):
    folder, code, said = interrupted

    assert code == 1
    assert said.splitlines()[-1].startswith("memprof: interrupted after 1 of 2 points; the same command goes on")
    assert sorted(path.name for path in folder.iterdir()) == [POINT.format(quant="none", mbs=1), "sweep.json"]
    assert [point["status"] for point in points_of(folder)] == ["ok"]
    memprof.load(folder / POINT.format(quant="none", mbs=1))


def test_resumed_sweep_keeps_what_was_finished(resumed):
    folder, before, document = resumed

    assert (folder / POINT.format(quant="none", mbs=1)).stat().st_mtime_ns == before
    assert json.loads((folder / "sweep.json").read_text()) == document
    (group,) = document["groups"]
    assert (document["format"], document["over"], group["config"]["quant"]) == (1, "mbs", "none")
    assert [(point["at"], point["status"]) for point in group["points"]] == [(1, "ok"), (2, "ok")]
    assert set(group["points"][0]) >= KEYS
    one, two = (point["allocated_bytes"] for point in group["points"])
    assert group["total"]["slope_bytes"] == two - one > 0
    assert group["total"]["fixed_bytes"] == 2 * one - two
    assert len(group["categories"]) == 10


def test_points_are_what_breakdown_says(resumed):
    folder, _, document = resumed

    for point in document["groups"][0]["points"]:
        peak = memprof.break_down(memprof.load(folder / point["file"])).devices[0].peak
        assert (point["allocated_bytes"], point["reserved_bytes"]) == (peak.allocated, None)


def test_finished_sweep_runs_nothing(resumed):
    folder, _, _ = resumed

    done = sweep(folder, "--mbs", "1,2")

    assert done.returncode == 0
    assert "0 of them new" in done.stdout
    assert ".pickle" not in done.stderr


def test_half_file_is_done_again_and_a_failed_point_stops_no_other(resumed, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(resumed[0], folder)
    half = folder / POINT.format(quant="none", mbs=2)
    whole = half.read_bytes()
    half.write_bytes(whole[: len(whole) // 2])

    done = sweep(folder, "--mbs", "2", "--model", f"{TOO_LARGE},pythia-14m", "--jobs", "2")

    assert done.returncode == 0
    assert "1 failed" in done.stdout
    points = {(point["file"]): point for point in points_of(folder)}
    failed = points[POINT.format(quant="none", mbs=2).replace("pythia-14m", TOO_LARGE)]
    assert failed["status"] == "failed"
    assert failed["reason"].startswith(f"--model {TOO_LARGE}: its weights need")
    assert failed["allocated_bytes"] is None
    assert points[half.name]["status"] == points[POINT.format(quant="none", mbs=1)]["status"] == "ok"
    memprof.load(half)


def test_file_of_another_sweep_in_the_way_is_not_replaced(resumed):
    folder, _, _ = resumed

    done = sweep(folder, "--mbs", "1,2", "--lora-r", "4")

    assert done.returncode == 1
    assert "was made with lora_r 8 instead of 4" in done.stderr
    assert len(list(folder.glob("*.pickle"))) == 2


def test_sweep_in_which_every_point_fails_is_an_error(tmp_path):
    done = sweep(tmp_path, "--mbs", "1", "--model", TOO_LARGE)

    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"memprof: every point failed; the first with: --model {TOO_LARGE}")


def test_wrong_value_is_one_line_and_makes_no_directory(tmp_path):
    done = sweep(tmp_path / "new", "--mbs", "1,two")

    assert (done.returncode, done.stderr) == (2, "memprof: --mbs 1,two: 'two' is no whole number from 1 on\n")
    assert not (tmp_path / "new").exists()


def test_a_value_with_which_no_point_is_possible_is_refused_before_anything_runs(tmp_path):
    done = sweep(tmp_path / "sweep", "--mbs", "1,2", "--quant", "none,bnb.nf5")

    assert done.returncode == 2, done.stderr
    assert done.stderr.splitlines()[-1].startswith("memprof: --quant bnb.nf5: unknown; it can be none, bnb.nf4")
    assert not (tmp_path / "sweep").exists()
