"""What only CUDA has, on the device that is not there: history, workspaces, a late start, 8-bit and managed state."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not str(torch.__version__).startswith("2.13."), reason="the simulation knows torch 2.13"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="there is a real CUDA device"),
]

ROOT = Path(__file__).parents[2]
WEIGHTS = 4 * (64 * 256 + 256 + 256 * 10 + 10)
CUBLAS, CUBLASLT = 33_554_432, 1_048_576
"""Bytes of the workspaces on an H200: one of the first for each thread that multiplies."""
LOOP = """
import torch
def build():
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 10)).to("cuda")
    return model, torch.optim.AdamW(model.parameters())
def train(model, optimizer, steps):
    for _ in range(steps):
        x, y = torch.randn(32, 64, device="cuda"), torch.randint(0, 10, (32,), device="cuda")
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
"""


def child(folder, *arguments):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def requested(run, before):
    """Requested bytes of what was allocated in the recording and is live before an entry, by category and finer."""
    found = {}
    for row in run.live_before(before):
        name = run.labels[row]["category"], run.labels[row]["finer"]
        found[name] = found.get(name, 0) + run.entries[row]["size"]
    return found


def test_a_script_on_a_card_that_is_not_there(tmp_path, read):
    # given
    (tmp_path / "train.py").write_text(LOOP + "model, optimizer = build()\ntrain(model, optimizer, 2)\n")

    # when
    child(tmp_path, "-m", "memprof", "run", "--simulate", "h200", "train.py")

    # then every alloc of the allocator's history has its label
    run = read(tmp_path / "run.pickle")
    assert run.memprof["source"] == "simulated"
    assert sorted(run.labels) == [row for row, entry in enumerate(run.entries) if entry["action"] == "alloc"]
    found = requested(run, run.mark("step 1 backward"))
    assert found[("weights", "adapter")] == found[("optimizer_state", "exp_avg")] == WEIGHTS
    assert found[("activations", "saved")] == 4 * 32 * (256 + 256 + 10) + 4
    # forward and backward run on threads of their own, each with a handle of cuBLAS
    assert found[("workspace", "cublas")] == 2 * CUBLAS
    assert found[("workspace", "cublaslt")] == CUBLASLT
    assert "unknown" not in {category for category, _ in found}


def test_a_late_start_and_an_end_without_memory(tmp_path, read):
    # given a model that was trained before, and a request that is too large
    (tmp_path / "late.py").write_text(
        "from memprof.simulate import install\n"
        "from memprof.simulate.recording import RecordedSimulation\n"
        "device = RecordedSimulation(install('h200'))\n"
        "import memprof\n" + LOOP + "model, optimizer = build()\n"
        "train(model, optimizer, 1)\n"
        "try:\n"
        "    with memprof.record('run.pickle', device=device):\n"
        "        kept = model(torch.randn(32, 64, device='cuda'))\n"
        "        torch.empty(1 << 45, device='cuda', dtype=torch.uint8)\n"
        "except torch.OutOfMemoryError as error:\n"
        "    print(error)\n"
    )

    # when
    told = child(tmp_path, "late.py")

    # then the error went on to the script, and the file has everything up to it
    assert told.startswith("CUDA out of memory. Tried to allocate 32768.00 GiB.")
    run = read(tmp_path / "run.pickle")
    assert run.memprof["made_by"]["status"] == "oom"
    assert [entry["size"] for entry in run.entries if entry["action"] == "oom"] == [1 << 45]
    assert requested(run, run.end)[("activations", "saved")] == 4 * 32 * (256 + 256)
    # and what was there before is known by its address
    strings, base = run.memprof["strings"], run.memprof["base_labels"]
    blocks = {b["address"]: b["requested_size"] for segment in run.snapshot["segments"] for b in segment["blocks"]}
    sizes = {}
    for category, finer, address in zip(base["category"], base["finer"], base["address"], strict=True):
        name = strings[category], strings[finer]
        sizes[name] = sizes.get(name, 0) + blocks[address]
    assert sizes == {
        ("weights", "adapter"): WEIGHTS,
        ("optimizer_state", "exp_avg"): WEIGHTS,
        ("optimizer_state", "exp_avg_sq"): WEIGHTS,
        ("workspace", "cublas"): 2 * CUBLAS,
    }


@pytest.mark.parametrize("optimizer", ["adamw8bit", "paged-adamw"])
def test_optimizers_of_bitsandbytes(tmp_path, read, optimizer):
    # given adapters whose every tensor is large enough to be quantized, or paged
    pytest.importorskip("litgpt")
    pytest.importorskip("bitsandbytes")
    options = ["--model", "pythia-70m", "--lora-r", "256", "--seq", "16", "--optimizer", optimizer, "--steps", "1"]

    # when
    child(tmp_path, "-m", "memprof", "capture", "--simulate", "h200", *options, "-o", "run.pickle")

    # then
    run = read(tmp_path / "run.pickle")
    found = requested(run, run.end)
    count = found[("weights", "adapter")] // 4
    managed = run.memprof["stats"][-1]["managed_bytes"]
    if optimizer == "adamw8bit":
        # a byte for each weight and moment, and a float32 for each 256 of them
        assert found[("optimizer_state", "state1")] == found[("optimizer_state", "state2")] == count
        assert found[("optimizer_state", "absmax1")] == 4 * count // 256
        assert managed == 0
    else:
        assert managed == 2 * 4 * count
        assert not [name for name in found if name[0] == "optimizer_state"]
    assert "unknown" not in {category for category, _ in found}
