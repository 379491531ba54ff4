"""capture --profile and profile from outside: what is written, what is said of it, and that nothing else changes."""

from __future__ import annotations

import gzip
import importlib.util
import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from memprof.errors import UsageError

ROOT = Path(__file__).parents[2]
TRACES = sorted((ROOT / "traces").glob("*.trace.json.gz"))
SMALL = ("--device", "cpu", "--model", "pythia-14m", "--seq", "16", "--mbs", "1", "--precision", "bf16-mixed")


def memprof(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "memprof", *map(str, arguments)], capture_output=True, text=True, check=False, cwd=ROOT
    )


def said(*arguments):
    done = memprof("profile", "--json", *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class Tiny:
    """A recipe whose training steps take no time.

    Without autocast, whose cache is emptied in the order of its hash table: two plain runs would differ.
    """

    recipe = "tiny"
    micro_steps = 3

    def settings(self):
        return {}

    def check(self, device):
        pass

    def run(self, device, observer):
        import torch

        torch.manual_seed(0)
        with observer.phase("init", -1):
            model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 8)).to(device)
            optimizer = torch.optim.AdamW(model.parameters())
            observer.watch(model, optimizer)
        for number in range(self.micro_steps):
            with observer.phase("between", number):
                batch = torch.ones(16, 32, device=device)
                observer.see("inputs", "batch", (batch,))
            with observer.step(number):
                with observer.phase("forward", number):
                    loss = model(batch).square().sum()
                with observer.phase("backward", number):
                    loss.backward()
                with observer.phase("optimizer", number):
                    optimizer.step()
                    optimizer.zero_grad()
            observer.end_step(number)
        return model, optimizer, loss


def capture(path, **profile):
    pytest.importorskip("torch")
    from memprof.capture.recorder import capture
    from memprof.capture.step_profilers import ProfiledSteps

    return capture(Tiny(), output=path, device="cpu", profile=ProfiledSteps(**profile) if profile else None)


@pytest.fixture(scope="module")
def captured(tmp_path_factory):
    """Snapshots of one run, of which the later two are profiled, one of them with Python's calls."""
    folder = tmp_path_factory.mktemp("profile")
    capture(folder / "warm.pickle")  # what torch makes once in a process is made here
    assert capture(folder / "plain.pickle").profile is None
    assert not (folder / "plain.trace.json.gz").exists()
    for name, stacks in {"run": False, "stacks": True}.items():
        result = capture(folder / f"{name}.pickle", first=1, last=1, stacks=stacks)
        assert result.profile == folder / f"{name}.trace.json.gz"
        assert sorted(path.name for path in folder.glob(f"*{name}*")) == [f"{name}.pickle", f"{name}.trace.json.gz"]
    return folder


def events_of(path):
    return json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]


@pytest.mark.torch
def test_profiling_changes_neither_the_events_nor_the_labels(captured):
    found = []
    for name in ("plain", "run", "stacks"):
        snapshot = pickle.loads((captured / f"{name}.pickle").read_bytes())
        labels, strings = snapshot["memprof"]["labels"], snapshot["memprof"]["strings"]
        texts = {
            column: [strings[row] if row >= 0 else None for row in labels[column]]
            for column in ("category", "finer", "phase", "module", "op", "dtype", "shape", "parameter")
        }
        marks = [(mark["entry"], mark["name"]) for mark in snapshot["memprof"]["marks"]]
        entries = [(entry["action"], entry["size"]) for entry in snapshot["device_traces"][0]]
        found.append((entries, labels["entry"], labels["step"], labels["saved"], texts, marks))

    assert found[0] == found[1]
    assert found[0] == found[2]


@pytest.mark.torch
def test_the_trace_names_steps_and_modules_and_no_machine(captured):
    content = gzip.decompress((captured / "stacks.trace.json.gz").read_bytes()).decode()
    whole = json.loads(content)

    names = {event["name"] for event in whole["traceEvents"] if event.get("cat") == "user_annotation"}
    assert {"ProfilerStep#1", "memprof.phase forward of step 1", "memprof.module (root)"} <= names
    assert {"memprof.module 0", "memprof.module 1", "memprof.module 2"} <= names
    assert "ProfilerStep#0" not in names
    assert not any(event["name"] == "unknown" for event in whole["traceEvents"])
    assert whole["distributedInfo"]["rank"] == 0
    assert "host_name" not in whole
    assert str(ROOT) not in content
    assert str(Path.home()) + "/" not in content
    assert any(event.get("cat") == "python_function" for event in whole["traceEvents"])
    assert not any(event.get("cat") == "python_function" for event in events_of(captured / "run.trace.json.gz"))


@pytest.mark.torch
@pytest.mark.parametrize("name", ["run", "stacks"])
def test_profile_agrees_with_the_snapshot_beside_it(captured, name):
    result = said(captured / f"{name}.trace.json.gz")

    (check,) = result["check"]
    (memory,) = (each for each in result["memory"] if each["device"] == "cpu")
    assert check["agrees"]
    assert check["events"] == check["matched"] == check["allocated_equal"] == memory["events"] > 50
    # The profiler's counter of the CPU is that of the process, which has profiled before.
    assert check["profile_peak"] == memory["peak_allocated_bytes"]
    assert check["profile_peak"] + check["allocated_offset"] == check["replay_peak"]
    assert result["snapshot"] == str(captured / f"{name}.pickle")
    assert [step["step"] for step in result["steps"]] == [1]
    held = {module["name"]: module["held_at_peak_bytes"] for module in result["modules"]}
    assert held["0"] >= 16 * 64 * 4  # its output, kept for the activation's backward
    assert sum(held.values()) <= check["replay_peak"]
    for table in ("modules", "ops"):
        assert sum(row["allocated_bytes"] for row in result[table]) == memory["allocated_bytes"]
        assert sum(row["cpu_ns"] for row in result[table]) == result["cpu_ns"]


@pytest.mark.torch
def test_a_figure_that_differs_is_said(captured, tmp_path):
    values = json.loads(gzip.decompress((captured / "run.trace.json.gz").read_bytes()))
    memory = [event for event in values["traceEvents"] if event["name"] == "[memory]"]
    memory[7]["args"]["Total Allocated"] += 512
    (tmp_path / "run.trace.json.gz").write_bytes(gzip.compress(json.dumps(values).encode()))

    (check,) = said(tmp_path / "run.trace.json.gz", "--snapshot", captured / "run.pickle")["check"]

    assert not check["agrees"]
    assert check["allocated_equal"] == check["events"] - 1


@pytest.mark.torch
def test_a_snapshot_of_another_run_is_not_compared(captured):
    other = memprof("profile", captured / "run.trace.json.gz", "--snapshot", ROOT / "traces" / "README.md")
    (check,) = said(captured / "run.trace.json.gz", "--snapshot", captured / "plain.pickle")["check"]

    assert other.returncode == 1
    assert len(other.stderr.splitlines()) == 1
    assert not check["agrees"]


@pytest.mark.torch
@pytest.mark.parametrize("last", [0, 3])
def test_a_few_events_at_the_same_addresses_are_another_run(captured, tmp_path, last):
    # given a profile whose events from one of the first on are at addresses that the snapshot does not have
    values = json.loads(gzip.decompress((captured / "run.trace.json.gz").read_bytes()))
    for event in [event for event in values["traceEvents"] if event["name"] == "[memory]"][last:]:
        event["args"]["Addr"] += 1
    (tmp_path / "run.trace.json.gz").write_bytes(gzip.compress(json.dumps(values).encode()))

    (check,) = said(tmp_path / "run.trace.json.gz", "--snapshot", captured / "run.pickle")["check"]

    assert (check["agrees"], check["matched"]) == (False, 0)
    assert check["reason"].startswith(f"no more than {last} of" if last else "none of")
    assert check["reason"].endswith("it is of another run")


@pytest.mark.torch
def test_the_table_says_it_in_words(captured):
    done = memprof("profile", captured / "run.trace.json.gz", "--top", "3")

    assert done.returncode == 0
    assert "against run.pickle, device 0: agrees: all" in done.stdout
    assert "\x1b" not in done.stdout
    tables = [line.split()[0] for line in done.stdout.splitlines() if line.startswith(("module ", "op ", "all "))]
    assert tables == ["module", "all", "op", "all"]


@pytest.mark.torch
def test_without_a_snapshot_it_says_how_to_give_one(captured, tmp_path):
    (tmp_path / "alone.trace.json.gz").write_bytes((captured / "run.trace.json.gz").read_bytes())

    result = said(tmp_path / "alone.trace.json.gz")

    assert result["snapshot"] is None
    assert result["check"] == []
    assert any("--snapshot" in note for note in result["notes"])


@pytest.mark.torch
@pytest.mark.parametrize(("first", "last"), [(0, 0), (0, 1), (1, 2), (0, 2)])
def test_one_step_or_several(tmp_path, first, last):
    capture(tmp_path / "run.pickle", first=first, last=last)

    result = said(tmp_path / "run.trace.json.gz")
    assert [step["step"] for step in result["steps"]] == list(range(first, last + 1))
    assert result["check"][0]["agrees"]


@pytest.mark.torch
def test_an_error_in_a_profiled_step_leaves_nothing_behind(tmp_path):
    torch = pytest.importorskip("torch")

    class Failing(Tiny):
        def run(self, device, observer):
            with observer.phase("forward", 0):
                torch.ones(3)
                raise ValueError("on purpose")

    from memprof.capture.recorder import capture as record
    from memprof.capture.step_profilers import ProfiledSteps

    with pytest.raises(ValueError, match="on purpose"):
        record(Failing(), output=tmp_path / "run.pickle", device="cpu", profile=ProfiledSteps(first=0, last=0))

    assert list(tmp_path.iterdir()) == []
    assert not torch.autograd.profiler._is_profiler_enabled
    capture(tmp_path / "again.pickle", first=0, last=0)
    assert said(tmp_path / "again.trace.json.gz")["check"][0]["agrees"]


@pytest.mark.torch
def test_the_command_profiles_the_last_step(tmp_path):
    pytest.importorskip("litgpt")

    done = memprof("capture", *SMALL, "--profile", "--json", "-o", tmp_path / "run.pickle")

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["profile"] == str(tmp_path / "run.trace.json.gz")
    result = said(tmp_path / "run.trace.json.gz")
    assert [step["step"] for step in result["steps"]] == [1]
    (check,) = result["check"]
    assert check["agrees"]
    assert check["allocated_offset"] == 0
    assert check["profile_peak"] == check["replay_peak"] == result["memory"][0]["peak_allocated_bytes"]


@pytest.mark.torch
@pytest.mark.parametrize(("text", "fact"), [("3", "the run has steps 0 to 2"), ("1-0", "a range"), ("x", "a range")])
def test_steps_that_are_none_are_refused(text, fact):
    pytest.importorskip("torch")
    from memprof.capture.step_profilers import chosen_steps

    with pytest.raises(UsageError, match=fact):
        chosen_steps(text, 3, stacks=False)


@pytest.mark.torch
@pytest.mark.parametrize(("text", "first", "last"), [(None, 2, 2), ("0", 0, 0), ("1-2", 1, 2)])
def test_steps_are_read(text, first, last):
    pytest.importorskip("torch")
    from memprof.capture.step_profilers import chosen_steps

    chosen = chosen_steps(text, 3, stacks=True)

    assert (chosen.first, chosen.last, chosen.stacks) == (first, last, True)


def test_a_file_that_is_no_trace_is_one_line(tmp_path):
    (tmp_path / "bad.json").write_text('{"nodes": []}')

    done = memprof("profile", tmp_path / "bad.json")

    assert done.returncode == 1
    assert done.stderr.startswith(f"memprof: {tmp_path / 'bad.json'} has no traceEvents")
    assert len(done.stderr.splitlines()) == 1


def test_names_from_a_file_cannot_write_to_the_terminal(tmp_path):
    event = {"ph": "X", "cat": "cpu_op", "name": "\x1b[2Jevil", "pid": 1, "tid": 1, "ts": 1, "dur": 1}
    (tmp_path / "t.json").write_text(json.dumps([event]))

    done = memprof("profile", tmp_path / "t.json")

    assert done.returncode == 0
    assert "evil" in done.stdout
    assert "\x1b" not in done.stdout


def kernel_trace(tmp_path):
    step = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 1, "tid": 1, "ts": 0.0, "dur": 100.0}
    op = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 5.0, "dur": 20.0}
    launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 6.0, "dur": 2.0}
    kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "dur": 10.125}
    events = [{**step, "args": {"External id": 1}}, {**op, "args": {"External id": 2}}]
    for number, start in enumerate((10.0, 30.5, 32.25), start=3):
        events.append({**launch, "ts": 5.0 + number, "args": {"External id": 2, "correlation": number}})
        events.append(
            {**kernel, "ts": start, "args": {"External id": 2, "correlation": number, "device": 0, "stream": 7}}
        )
    path = tmp_path / "gpu.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"distributedInfo": {"rank": 0}, "traceEvents": events}).encode()))
    return path


def test_without_hta_the_rest_is_said_and_how_to_install_it(tmp_path):
    if importlib.util.find_spec("hta") is not None:
        pytest.skip("Holistic Trace Analysis is installed")

    result = said(kernel_trace(tmp_path))

    assert result["hta"] is None
    assert any("pip install 'memprof[hta]'" in note for note in result["notes"])
    assert result["kernel_ns"] == 3 * 10_125


def test_hta_agrees_on_kernels(tmp_path):
    pytest.importorskip("hta")

    result = said(kernel_trace(tmp_path))

    hta = result["hta"]
    assert hta["idle_ns"] + hta["compute_ns"] + hta["non_compute_ns"] == hta["span_ns"] == 32_375
    assert [(each["hta_ns"], each["memprof_ns"]) for each in hta["agreements"]] == [(22_000, 22_000), (30_375, 30_375)]


@pytest.mark.parametrize("trace", TRACES, ids=lambda path: path.name)
def test_recorded_profiles_agree_with_the_allocator(trace):
    result = said(trace)

    checks = [check for check in result["check"] if check["events"]]
    assert checks
    assert all(check["agrees"] for check in checks)
    assert 0 < result["gpu_busy_ns"] <= result["kernel_ns"]
    assert not result["notes"] or all("hta" in note for note in result["notes"])
    assert result["kernels"] > 0
    if importlib.util.find_spec("hta") is not None:
        for each in result["hta"]["agreements"]:
            assert each["memprof_ns"] > 0
            assert abs(each["hta_ns"] - each["memprof_ns"]) <= 2


SCRIPT = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 8))
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(4):
    model(torch.ones(16, 32)).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()
print("done")
"""


@pytest.mark.torch
def test_an_unmodified_script_is_profiled_in_the_steps_asked_for(tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(SCRIPT)

    done = memprof("run", "--profile-steps", "1-2", "-o", tmp_path / "run.pickle", tmp_path / "train.py")

    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    result = said(tmp_path / "run.trace.json.gz")
    assert [step["step"] for step in result["steps"]] == [1, 2]
    assert result["check"][0]["agrees"]
    assert {"0", "1", "2"} <= {module["name"] for module in result["modules"]}


@pytest.mark.torch
def test_step_0_of_a_script_cannot_be_profiled(tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(SCRIPT)

    done = memprof("run", "--profile-steps", "0", "-o", tmp_path / "run.pickle", tmp_path / "train.py")

    assert done.returncode == 2
    assert "begin with 1 or later" in done.stderr
