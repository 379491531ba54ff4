"""`memprof check` from outside: budgets on recordings of this repository, on broken runs, on captures made for it."""

from __future__ import annotations

import importlib.util
import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from memprof.allocator.counters import OutOfMemory
from memprof.allocator.driver import Driver
from memprof.allocator.simulation import CachingAllocator
from memprof.allocator.snapshot import torch_segments
from memprof.errors import UnsupportedError
from memprof.simulate.support import check_build
from memprof.trace.model import Settings

ROOT = Path(__file__).parents[2]
NF4 = ROOT / "traces/h200-pythia-70m-16-mixed-bnb.nf4-mbs16.pickle"
CPU = ROOT / "traces/cpu-pythia-14m-bf16-mixed-none-mbs2.pickle"
ALLOCATED, RESERVED, USED = 9_369_105_920, 10_001_317_888, 10_817_961_984
MIB = 1 << 20
SMALL = ("--model", "pythia-14m", "--seq", "16", "--precision", "bf16-mixed", "--steps", "1")


def check(*words):
    command = [sys.executable, "-m", "memprof", "check", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


def budgets_of(*words):
    done = check("--json", *words)
    assert done.stdout, done.stderr
    assert "run.pickle" not in done.stderr  # a capture that is thrown away has no file to name
    document = json.loads(done.stdout)
    assert done.returncode == (0 if document["passed"] else 1)
    (device,) = document["devices"]
    return document, device["budgets"]


@pytest.mark.parametrize(
    ("budget", "what", "size"),
    [
        ("{}", "reserved", RESERVED),
        ("reserved={}", "reserved", RESERVED),
        ("allocated={}", "allocated", ALLOCATED),
        ("device={}", "device", USED),
    ],
)
def test_a_budget_is_kept_to_the_byte(budget, what, size):
    kept, (within,) = budgets_of("--budget", budget.format(size), NF4)
    broken, (beyond,) = budgets_of("--budget", budget.format(size - 1), NF4)

    assert (kept["passed"], broken["passed"]) == (True, False)
    assert (within["what"], within["bytes"], within["over_bytes"]) == (what, size, 0)
    assert (beyond["bytes"], beyond["limit_bytes"], beyond["over_bytes"]) == (size, size - 1, 1)


def test_a_category_is_held_against_its_own_highest_and_its_holders_sum_to_it():
    _, (spent,) = budgets_of("--budget", "activations=8GB", NF4)

    assert spent["bytes"] == spent["categories"]["activations"] == sum(row["bytes"] for row in spent["holders"])
    assert spent["over_bytes"] == spent["bytes"] - 8_000_000_000
    assert {row["category"] for row in spent["holders"]} == {"activations"}
    # at the allocated peak there were fewer: some are freed before the gradients are there
    breakdown = subprocess.run(
        [sys.executable, "-m", "memprof", "breakdown", str(NF4), "--json"], capture_output=True, text=True, check=True
    )
    peak = json.loads(breakdown.stdout)["devices"][0]["peak"]["categories"]["activations"]
    assert spent["bytes"] >= peak


def test_what_went_over_is_listed_and_what_did_not_is_not():
    done = check("--budget", "activations=8GB", "--budget", "weights=1GB", "--budget", "12GB", "--top", "3", NF4)

    assert done.returncode == 1
    lines = done.stdout.splitlines()
    (over,) = (line for line in lines if " over: who holds it" in line)
    assert over.startswith("activations is")
    assert "lm_head.linear" in lines[lines.index(over) + 2]
    assert sum("more" in line for line in lines) == 1
    assert lines[-1] == "failed: 2 of 3 budgets kept"


def test_the_cpu_has_nothing_reserved():
    _, (spent,) = budgets_of("--budget", "1GB", CPU)

    assert (spent["budget"], spent["what"]) == ("total", "allocated")
    done = check("--budget", "reserved=1GB", CPU)
    assert (done.returncode, done.stdout) == (1, "")
    assert "the CPU has none; use --budget allocated=SIZE" in done.stderr


def test_a_request_that_failed_counts(tmp_path):
    # given 60 of 100 MiB in use, and a request for 50 that failed
    allocator = CachingAllocator(Settings(), Driver(100 * MIB))
    allocator.malloc(60 * MIB)
    with pytest.raises(OutOfMemory):
        allocator.malloc(50 * MIB)
    trace = [{"time_us": 0, "frames": [], **entry} for entry in allocator.trace.entries()]
    file = tmp_path / "oom.pickle"
    file.write_bytes(pickle.dumps({"segments": torch_segments(allocator), "device_traces": [trace]}, protocol=4))

    _, (total, allocated) = budgets_of("--budget", 105 * MIB, "--budget", f"allocated={110 * MIB}", file)

    assert (total["bytes"], total["over_bytes"], total["failed_request_bytes"]) == (110 * MIB, 5 * MIB, 50 * MIB)
    assert (allocated["bytes"], allocated["over_bytes"]) == (110 * MIB, 0)


def test_a_run_that_ended_for_want_of_memory_keeps_no_budget(tmp_path):
    # given a file of a capture that says so
    snapshot = pickle.loads(NF4.read_bytes())
    snapshot["memprof"]["made_by"]["status"] = "oom"
    file = tmp_path / "oom.pickle"
    file.write_bytes(pickle.dumps(snapshot, protocol=4))

    done = check("--budget", "100GB", file)

    assert done.returncode == 1
    assert "the run did not come to its end, and so keeps no budget: it ran out of memory" in done.stdout
    assert done.stdout.splitlines()[-1] == "failed: 0 of 1 budgets kept"


@pytest.mark.parametrize(
    ("word", "code", "said"), [(".", 1, ". is a directory"), ("", 2, "the name of the file is empty")]
)
def test_a_folder_or_an_empty_name_is_no_file(word, code, said):
    done = check("--budget", "15GB", word)

    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr == f"memprof: {said}: name the snapshot file{' in it' if word else ''}\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--budget", "many", NF4], "'many' is not a size"),
        (["--budget", "colour=1GB", NF4], "'colour' is nothing that is counted"),
        (["--budget", "1GB", "--budget", "2GB", NF4], "another budget for total"),
        (["--budget", "1GB", NF4, CPU], "is a file: give no other"),
        (["--budget", "1GB", "--", "--mbs", "1", "-o", "x.pickle"], "give it before the --"),
    ],
)
def test_wrong_options_exit_2_in_one_line(words, said):
    done = check(*words)

    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.torch
def test_a_capture_is_made_checked_and_kept_if_asked_for(tmp_path):
    file = tmp_path / "kept.pickle"
    done = check("--budget", "allocated=10MB", "-o", file, "--", *SMALL, "--device", "cpu")

    assert done.returncode == 1
    assert str(file) in done.stdout
    assert "allocated is" in done.stdout
    assert "peak allocated" in done.stderr  # what the capture says does not mix with the check
    again, (spent,) = budgets_of("--budget", "allocated=1GB", file)
    assert again["passed"]
    assert spent["bytes"] > 10_000_000


@pytest.mark.torch
def test_a_capture_that_fails_ends_the_check_as_it_ended():
    wrong = check("--budget", "1GB", "--", "--precision", "17-mixed")

    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "17-mixed" in wrong.stderr


@pytest.mark.torch
def test_a_simulated_capture_is_held_against_the_least_lucky_order():
    torch = pytest.importorskip("torch", reason="simulation needs torch")
    try:
        check_build(torch.__version__, torch.version.cuda, torch.version.hip)
    except UnsupportedError as error:
        pytest.skip(str(error))
    if importlib.util.find_spec("litgpt") is None:
        pytest.skip("the recipe needs litgpt")
    document, (spent,) = budgets_of("--budget", "1GB", "--", *SMALL, "--simulate", "h200")

    assert document["passed"]
    assert document["source"] == "simulated"
    assert spent["reserved_bytes"] <= spent["bytes"] < 1_000_000_000
    assert document["file"].startswith("memprof capture --model pythia-14m")
