"""The examples, which know nothing of memprof, under ``memprof run`` on the CPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import memprof

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

ROOT = Path(__file__).parents[2]
SMALL = ["--width", "64", "--layers", "2", "--batch", "2"]


def run(folder, *command):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, "-m", *map(str, command)],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def peak(path):
    """Bytes at the peak by category, and by category and finer one; nothing may be unknown."""
    state = memprof.break_down(memprof.load(path)).devices[0].peak
    categories = {category.value: size for category, size in state.categories.items() if size}
    assert "unknown" not in categories
    finer = {(category.value, name): size for category, names in state.finer.items() for name, size in names.items()}
    return categories, finer


def test_the_plain_loop(tmp_path):
    out = run(tmp_path, "memprof", "run", ROOT / "examples/plain_loop.py", *SMALL, "--tokens", "16")
    assert out.splitlines()[-1].startswith("validation: loss ")
    categories, finer = peak(tmp_path / "run.pickle")
    block = 3 * 64 * 64 + 3 * 64 + 64 * 64 + 64 + 2 * 4 * 64 * 64 + 4 * 64 + 64 + 4 * 64
    weights = 4 * (2 * 16000 * 64 + 16 * 64 + 2 * block + 2 * 64)
    assert categories["weights"] == weights
    assert finer["optimizer_state", "exp_avg"] == finer["optimizer_state", "exp_avg_sq"] == weights


def test_the_lightning_trainer(tmp_path):
    pytest.importorskip("lightning")
    out = run(tmp_path, "memprof", "run", ROOT / "examples/lightning_trainer.py", *SMALL, "--batches", "2")
    assert "accuracy" in out.splitlines()[-1]
    categories, _ = peak(tmp_path / "run.pickle")
    assert {"weights", "optimizer_state", "activations", "inputs"} <= set(categories)
    phases = {phase.phase for phase in memprof.break_down(memprof.load(tmp_path / "run.pickle")).devices[0].phases}
    assert {"forward", "backward", "optimizer", "eval"} <= phases


def test_the_hugging_face_trainer(tmp_path):
    for needed in ("transformers", "peft", "bitsandbytes", "accelerate"):
        pytest.importorskip(needed)
    out = run(tmp_path, "memprof", "run", ROOT / "examples/hugging_face_trainer.py", *SMALL, "--tokens", "16")
    assert out.splitlines()[-1].startswith("loss ")
    categories, finer = peak(tmp_path / "run.pickle")
    assert {"weights", "optimizer_state", "activations"} <= set(categories)
    # attention has four square layers and the MLP three, of four bits a weight
    assert finer["weights", "quantized"] == 2 * (4 * 64 * 64 + 3 * 64 * 3 * 64) // 2


@pytest.mark.parametrize("how", ["ddp", "fsdp"])
def test_two_processes(tmp_path, how):
    # when
    launch = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "memprof", "run"]
    out = run(tmp_path, *launch, "--device", "cpu", ROOT / "examples/distributed.py", how, *SMALL)

    # then each has a file in which everything is known, and half of the sharded weights
    assert out.count("rank") == 6
    block = 4 * 64 * 64 + 4 * 64 + 2 * 4 * 64 * 64 + 4 * 64 + 64 + 4 * 64
    weights = 4 * (1000 * 64 + 2 * block + 64 * 1000 + 1000)
    mine = weights // 2 if how == "fsdp" else weights
    for rank in (0, 1):
        path = tmp_path / f"run.rank{rank}.pickle"
        _, finer = peak(path)
        trace = memprof.load(path)
        assert finer["weights", "adapter"] == mine
        assert finer["optimizer_state", "exp_avg"] == finer["optimizer_state", "exp_avg_sq"] == mine
        labels = trace.devices[0].labels
        kinds = {(trace.texts[a], trace.texts[b]) for a, b in zip(labels.category, labels.finer, strict=True) if b >= 0}
        assert ("gradients", "bucket") in kinds
        assert ("gradients", "parameter") in kinds
        assert (("weights", "gathered") in kinds) == (how == "fsdp")
        if how == "fsdp":  # words and head, which forward leaves gathered for backward
            outer = 4 * (1000 * 64 + 64 * 1000 + 1000)
            # and a block, where another thread has not let go of it yet, or gathers it ahead, when the peak comes
            assert finer["weights", "gathered"] in (outer, outer + 4 * block)
