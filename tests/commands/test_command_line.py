"""The command line from outside: exit codes, one-line errors, plain text through a pipe, JSON, a light start."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

STATE_KEYS = {
    "event",
    "allocated_bytes",
    "requested_bytes",
    "pending_free_bytes",
    "reserved_bytes",
    "device_used_bytes",
    "context_bytes",
    "other_processes_bytes",
    "managed_bytes",
    "categories",
    "requested",
    "counts",
    "finer",
}
CATEGORY_NAMES = {
    "weights",
    "optimizer_state",
    "gradients",
    "dequantized",
    "weight_casts",
    "inputs",
    "activations",
    "workspace",
    "temporaries",
    "unknown",
}
ADDRESS = 0x7F0000000000
ESCAPE = "\x1b[2Jevil"


def memprof(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "memprof", *map(str, arguments)], capture_output=True, text=True, check=False, **options
    )


@pytest.fixture
def snapshot(tmp_path):
    """One live allocation, whose function name tries to clear the screen."""
    frames = [{"name": ESCAPE, "filename": "train.py", "line": 3}]
    common = {"addr": ADDRESS, "stream": 0, "frames": frames}
    trace = [
        {"action": "segment_alloc", "size": 2**21, "time_us": 1, **common},
        {"action": "alloc", "size": 1000, "time_us": 2, **common},
    ]
    blocks = [
        {"address": ADDRESS, "size": 1024, "requested_size": 1000, "state": "active_allocated", "frames": frames},
        {"address": ADDRESS + 1024, "size": 2**21 - 1024, "requested_size": 0, "state": "inactive", "frames": []},
    ]
    segment = {
        "device": 0,
        "address": ADDRESS,
        "total_size": 2**21,
        "stream": 0,
        "segment_type": "small",
        "blocks": blocks,
    }
    path = tmp_path / "run.pickle"
    path.write_bytes(pickle.dumps({"segments": [segment], "device_traces": [trace]}, protocol=4))
    return path


def test_breakdown_prints_plain_text_through_a_pipe(snapshot):
    done = memprof("breakdown", snapshot, "--by", "stack")

    assert done.returncode == 0, done.stderr
    assert "allocated" in done.stdout
    assert "1,024 B" in done.stdout
    assert "\x1b" not in done.stdout


def test_json_has_the_documented_shape(snapshot):
    done = memprof("breakdown", snapshot, "--json", "--at", "end")

    value = json.loads(done.stdout)
    (device,) = value["devices"]
    assert (value["format"], value["source"], device["classified_by"], device["events"]) == (1, "unknown", "rules", 2)
    for name in ("base", "peak", "end"):
        assert set(device[name]) == STATE_KEYS
        assert set(device[name]["categories"]) == CATEGORY_NAMES
        assert sum(device[name]["categories"].values()) == device[name]["allocated_bytes"]
    assert device["at"] is None  # the end is the peak here
    assert device["max_reserved_bytes"] == 2**21
    assert device["top"][0]["bytes"] == 1024


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["breakdown", "no-such-file.pickle"], "no-such-file.pickle"),
        (["breakdown", "{file}", "--at", "event:99"], "no event 99"),
        (["breakdown", "{file}", "--device", "7"], "device 7"),
    ],
)
def test_our_errors_are_one_line_and_exit_1(snapshot, arguments, said):
    done = memprof(*[argument.format(file=snapshot) for argument in arguments])

    assert done.returncode == 1
    assert done.stdout == ""
    assert said in done.stderr
    assert done.stderr.startswith("memprof: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["breakdown", "{file}", "--at", "tomorrow"], "--at 'tomorrow'"),
        (["breakdown", "{file}", "--by", "colour"], "--by 'colour'"),
        (["growth", "{folder}", "--over", "time"], "--over time"),
    ],
)
def test_a_value_that_an_option_cannot_have_is_one_line_and_exit_2(snapshot, arguments, said):
    done = memprof(*[argument.format(file=snapshot, folder=snapshot.parent) for argument in arguments])

    assert done.returncode == 2
    assert done.stderr.startswith(f"memprof: {said}")
    assert done.stderr.count("\n") == 1


def test_json_has_the_grouping_that_was_asked_for(snapshot):
    (device,) = json.loads(memprof("breakdown", snapshot, "--json", "--by", "op").stdout)["devices"]

    assert device["by"] == "op"
    assert sum(group["bytes"] for group in device["groups"]) == device["peak"]["allocated_bytes"]


@pytest.mark.parametrize("extra", [[], ["--json"]])
def test_a_full_disk_behind_stdout_is_one_line(snapshot, extra):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-m", "memprof", "breakdown", str(snapshot), *extra], check=False,
                              stdout=full, stderr=subprocess.PIPE, text=True)  # fmt: skip

    assert done.returncode == 1
    assert done.stderr == "memprof: the output cannot be written: No space left on device\n"


def test_a_closed_stdout_is_no_fault(snapshot):
    line = f"'{sys.executable}' -m memprof breakdown '{snapshot}' --json >&-"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_an_encoding_without_our_bars_gets_question_marks(snapshot, encoding):
    done = memprof("breakdown", snapshot, env={**os.environ, "PYTHONIOENCODING": encoding}, encoding=encoding)

    assert (done.returncode, done.stderr) == (0, "")
    assert "allocated" in done.stdout


@pytest.mark.parametrize("arguments", [["breakdown"], ["no-such-command"], ["breakdown", "a", "--top", "many"]])
def test_wrong_usage_exits_2(arguments):
    assert memprof(*arguments).returncode == 2


@pytest.mark.parametrize("arguments", [["--help"], ["breakdown", "--help"], ["capture", "--help"]])
def test_help(arguments):
    done = memprof(*arguments)

    assert done.returncode == 0
    if len(arguments) > 1:
        assert "Example:" in done.stdout


def test_reader_that_goes_away_is_told_nothing(snapshot):
    pipe = f"'{sys.executable}' -m memprof breakdown '{snapshot}' | true"
    done = subprocess.run(["bash", "-c", pipe], capture_output=True, text=True, check=True)

    assert done.stderr == ""


def test_breakdown_imports_neither_torch_nor_plotly(snapshot):
    code = (
        "import sys\nfrom memprof.cli import app\n"
        f"app(['breakdown', {str(snapshot)!r}], standalone_mode=False)\n"
        "print({'torch', 'plotly', 'pandas'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)

    assert done.stdout.rstrip().endswith("set()")


def test_public_names_are_there():
    import memprof

    assert sorted(memprof.__all__) == memprof.__all__
    for name in memprof.__all__:
        assert getattr(memprof, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = memprof.nothing


def test_what_a_simulated_run_did_not_know_is_listed_largest_first(snapshot):
    # given a file with seven caveats, one with an escape sequence, and things that are none
    document = pickle.loads(snapshot.read_bytes())
    found = [{"kind": "library", "what": f"guess {n}", "where": "", "count": n, "bytes": n * 1000} for n in range(6)]
    found += [{"kind": "value", "what": ESCAPE, "where": "", "count": 2, "bytes": 3_500}]
    wrong = [7, {"kind": "card"}, {**found[0], "bytes": "many"}, {**found[0], "count": -1}]
    environment = {"card": "NVIDIA H200", "caveats": [*found, *wrong]}
    document["memprof"] = {"version": 1, "source": "simulated", "environment": environment, "stats": []}
    snapshot.write_bytes(pickle.dumps(document, protocol=4))

    lines = memprof("breakdown", snapshot).stdout.splitlines()
    caveats = json.loads(memprof("breakdown", snapshot, "--json").stdout)["caveats"]

    first = lines.index("uncertain by 5.000 kB: guess 5")
    assert lines[first + 1] == "uncertain by 4.000 kB: guess 4"
    assert lines[first + 2] == "uncertain by 3.500 kB: ?[2Jevil"
    assert lines[first + 5 : first + 7] == ["and 2 more: --json lists all", ""]
    assert [caveat["bytes"] for caveat in caveats] == [5000, 4000, 3500, 3000, 2000, 1000, 0]
    assert caveats[2] == {"kind": "value", "what": ESCAPE, "count": 2, "bytes": 3500}


def test_a_run_that_was_measured_has_no_caveats(snapshot):
    assert json.loads(memprof("breakdown", snapshot, "--json").stdout)["caveats"] == []
    assert "uncertain" not in memprof("breakdown", snapshot).stdout


@pytest.mark.parametrize("words", [["capture"], ["check", "--budget", "1GB", "--", "--mbs", "1"]])
def test_a_file_in_no_directory_is_told_before_the_capture_with_the_next_step(words):
    place = ["-o", "/no-such-folder/run.pickle"]

    done = memprof(words[0], *place, *words[1:])

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "memprof: -o /no-such-folder/run.pickle: give the name of a file in a directory that exists\n"
    )
