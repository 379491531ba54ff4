"""``memprof run`` from outside: what a script sees, and what its caller sees of it."""

from __future__ import annotations

import os
import pickle
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

pytestmark = pytest.mark.torch

ROOT = Path(__file__).parents[2]
SCRIPT = """
import argparse, os, signal, sys, torch
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("-o")
parser.add_argument("--end", default="0")
arguments = parser.parse_args()
print("arguments", sys.argv[1:])
print("name", __name__, "path", sys.path[0] == os.path.dirname(os.path.abspath(__file__)))

def main():
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.lr)
    for number in range(3):
        x, y = torch.randn(32, 64), torch.randint(0, 10, (32,))
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print("trained", flush=True)
    if arguments.end == "error":
        raise ValueError("a fault of the script")
    if arguments.end == "interrupt":
        os.kill(os.getpid(), signal.SIGINT)
    if arguments.end == "wait":
        signal.pause()
    return model

if __name__ == "__main__":
    model = main()
    sys.exit(int(arguments.end))
"""
WEIGHTS = 4 * (64 * 256 + 256 + 256 * 10 + 10)


@pytest.fixture
def script(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path / "train.py"


def start(*arguments, cwd, **options):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    return subprocess.Popen(
        [sys.executable, "-m", "memprof", "run", *map(str, arguments)],
        cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options,
    )  # fmt: skip


def run(*arguments, cwd, **options):
    child = start(*arguments, cwd=cwd, **options)
    out, err = child.communicate(timeout=240)
    return child.returncode, out, err


def test_output_arguments_and_exit_code_are_the_scripts(script):
    # when
    code, out, err = run("-o", "run.pickle", "train.py", "--lr", "0.1", "-o", "x", "--end", "3", cwd=script.parent)

    # then
    assert code == 3
    assert out.splitlines() == [
        "arguments ['--lr', '0.1', '-o', 'x', '--end', '3']", "name __main__ path True", "trained",
    ]  # fmt: skip
    assert "wrote run.pickle" in err
    snapshot = pickle.loads((script.parent / "run.pickle").read_bytes())
    made_by = snapshot["memprof"]["made_by"]
    assert (made_by["script"], made_by["status"]) == ("train.py", "ok")
    assert made_by["command"] == "memprof run train.py"
    marks = [mark["name"] for mark in snapshot["memprof"]["marks"]]
    assert [name for name in marks if name.endswith("optimizer")] == [f"step {step} optimizer" for step in range(3)]
    # and the model, which the script keeps to its end, is live at the end
    strings, labels = snapshot["memprof"]["strings"], snapshot["memprof"]["labels"]
    entries, blocks = snapshot["device_traces"][0], {segment["address"] for segment in snapshot["segments"]}
    weights = [
        entry for entry, category in zip(labels["entry"], labels["category"], strict=True)
        if strings[category] == "weights"
    ]  # fmt: skip
    assert sum(entries[entry]["size"] for entry in weights) == WEIGHTS
    assert {entries[entry]["addr"] for entry in weights} <= blocks


def test_a_module_is_run_by_its_name(script):
    package = script.parent / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "work.py").write_text("import sys, package\nprint(__name__, sys.argv[1:], __package__)\n")
    code, out, err = run("-m", "package.work", "-m", "--lr", cwd=script.parent)
    assert (code, out) == (0, "__main__ ['-m', '--lr'] package\n"), err
    assert (script.parent / "run.pickle").exists()


def test_an_error_looks_as_without_memprof(script):
    code, _, err = run("train.py", "--lr", "0.1", "--end", "error", cwd=script.parent)
    assert code == 1
    assert err.startswith("Traceback (most recent call last):\n")
    assert err.endswith("ValueError: a fault of the script\n")
    assert "memprof" not in err
    assert [path.name for path in script.parent.iterdir()] == ["train.py"]


SWAPPING = """
import torch
torch.__future__.set_swap_module_params_on_conversion(True)
model = torch.nn.Linear(8, 8)
model(torch.randn(2, 8)).sum().backward()
model.to(torch.bfloat16)
"""


def test_what_the_profiler_keeps_a_script_from_is_said(script):
    # given
    (script.parent / "swap.py").write_text(SWAPPING)

    # when
    code, _, err = run("swap.py", cwd=script.parent)
    without, _, quiet = run("--labels", "none", "swap.py", cwd=script.parent)

    # then
    assert code == 1
    assert err.splitlines()[-1].startswith("memprof: torch does not swap tensors that its profiler has seen")
    assert without == 0, quiet


@pytest.mark.parametrize("sent", ["by itself", "from outside"])
def test_ctrl_c_ends_it_by_the_signal_and_keeps_what_was_recorded(script, sent):
    if sent == "by itself":
        code, _, err = run("train.py", "--lr", "0.1", "--end", "interrupt", cwd=script.parent)
    else:
        child = start("train.py", "--lr", "0.1", "--end", "wait", cwd=script.parent)
        while child.stdout.readline() != "trained\n":
            pass
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=240)
        code = child.returncode
    assert code == -signal.SIGINT
    assert "interrupted: the file has what happened until then" in err
    snapshot = pickle.loads((script.parent / "run.pickle").read_bytes())
    assert snapshot["memprof"]["made_by"]["status"] == "interrupted"


def test_kill_leaves_nothing_under_the_name(script):
    child = start("train.py", "--lr", "0.1", "--end", "wait", cwd=script.parent)
    while child.stdout.readline() != "trained\n":
        pass
    child.kill()
    child.communicate(timeout=240)
    assert [path.name for path in script.parent.iterdir()] == ["train.py"]


def test_a_full_disk_is_one_line(script):
    # given that no file may be larger than 10 kB
    code, out, err = run(
        "train.py", "--lr", "0.1", cwd=script.parent,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000)),
    )  # fmt: skip
    assert "trained" in out
    assert err == "memprof: run.pickle cannot be written: File too large; nothing was left there\n"
    # though the script itself ended well, by sys.exit(0)
    assert code == 1
    assert [path.name for path in script.parent.iterdir()] == ["train.py"]


def test_a_script_that_is_not_there(script):
    code, _, err = run("none.py", cwd=script.parent)
    assert (code, err) == (1, "memprof: none.py: no such script; give a file, or -m and the name of a module\n")


def test_two_processes_write_a_file_each(script):
    # given a script for torchrun, over gloo
    (script.parent / "distributed.py").write_text(
        """
import torch
torch.distributed.init_process_group("gloo")
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 10))
parallel = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
for _ in range(2):
    parallel(torch.randn(32, 64)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
torch.distributed.destroy_process_group()
"""
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "memprof", "run"]

    # when
    done = subprocess.run(
        [sys.executable, *command, "-o", "run.pickle", "distributed.py"],
        cwd=script.parent, env=environment, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip

    # then
    assert done.returncode == 0, done.stderr
    for rank in (0, 1):
        snapshot = pickle.loads((script.parent / f"run.rank{rank}.pickle").read_bytes())
        strings, labels = snapshot["memprof"]["strings"], snapshot["memprof"]["labels"]
        buckets = [
            snapshot["device_traces"][0][entry]["size"]
            for entry, finer in zip(labels["entry"], labels["finer"], strict=True)
            if finer >= 0 and strings[finer] == "bucket"
        ]
        # one for all gradients, made anew in the order of the first backward
        assert buckets == [WEIGHTS, WEIGHTS]
    assert not (script.parent / "run.pickle").exists()
