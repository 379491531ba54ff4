"""Every finding that is registered fires on a real run that has its cause, and not on one that differs in the cause."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("bitsandbytes")
pytest.importorskip("peft")

from memprof.analysis.account import open_account  # noqa: E402 - beside the others
from memprof.analysis.findings import FINDINGS, find_all  # noqa: E402 - beside the others
from memprof.trace import load  # noqa: E402 - beside the others

pytestmark = pytest.mark.torch

ROOT = Path(__file__).parents[2]


@cache
def on_card(name):
    """What is found in a committed file, recorded on an H200."""
    return _found(load(ROOT / "traces" / "sweep-pythia-70m" / f"pythia-70m_16-mixed_{name}.pickle"))


def _found(trace):
    (device,) = trace.devices
    return {finding.id: finding for finding in find_all(open_account(trace, device))}


@pytest.fixture(scope="session")
def simulated(tmp_path_factory):
    """Recordings of `simulated_findings_runs`, by name; all are made by one process."""
    if not torch.__version__.startswith("2.13.") or torch.cuda.is_available():
        pytest.skip("the simulated card knows torch 2.13, and is not needed where there is a real one")
    folder = tmp_path_factory.mktemp("simulated")
    script = Path(__file__).with_name("simulated_findings_runs.py")
    done = subprocess.run(
        [sys.executable, str(script), str(folder)],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return lambda name: _found(load(folder / f"{name}.pickle"))


CARD, CPU, SIMULATED = "recorded on an H200", "trained on the CPU", "trained on a simulated H200"

AUDIT = {
    "quantized-output-float32": (CARD, "bnb.nf4_seq1037_mbs16", "none_seq1037_mbs16"),
    "logits-dominate": (CPU, "large vocabulary", "float32, everything trained"),
    "logits-copied": (CARD, "none_seq1037_mbs16", "bnb.nf4_seq1037_mbs16"),
    "weights-float32": (CARD, "bnb.nf4_seq1037_mbs16", "none_seq1037_mbs16"),
    "dequantized-weights-kept": (CPU, "product with a dequantized weight", "nf4 in bf16"),
    "frozen-weight-casts": (CPU, "autocast, frozen weights", "autocast, frozen weights in half"),
    "quantized-inputs-kept": (CPU, "nf4 layers that keep their input", "nf4 under autocast"),
    "dropout-masks": (CPU, "dropout", "dropout, eval()"),
    "checkpointing-not-working": (CPU, "checkpointing, eval()", "checkpointing"),
    "frozen-optimizer-state": (CPU, "Adam, blocks frozen later", "Adam"),
    "grows-every-step": (CPU, "outputs collected", "outputs of two steps kept"),
    "held-after-backward": (CPU, "previous output alive", "outputs collected"),
    "fragmentation": (SIMULATED, "longer and longer", "padded to the longest"),
    "cached-without-history": (SIMULATED, "after a larger run", "after a larger run, cache emptied"),
    "evaluation-larger": (CPU, "evaluation collects", "small evaluation"),
    "first-step-differs": (CPU, "Adam", "float32, everything trained"),
    "linears-not-quantized": (CPU, "nf4 in every other linear layer", "nf4 in bf16"),
    "optimizer-state-before-forward": (CPU, "Adam, resumed", "Adam"),
}
"""By id: where the two runs are from, the one that has the cause, and the one that has not."""


@pytest.fixture
def found_in(request, found_in_case):
    def find(where, name):
        if where is CARD:
            return on_card(name)
        return found_in_case(name) if where is CPU else request.getfixturevalue("simulated")(name)

    return find


@pytest.mark.parametrize("kind", FINDINGS)
def test_finding_fires_where_its_cause_is_and_only_there(kind, found_in):
    assert kind in AUDIT, f"{kind} is registered, and no two real runs say that it is right"
    where, positive, negative = AUDIT[kind]

    have, have_not = found_in(where, positive), found_in(where, negative)

    assert have[kind].id == kind
    assert have[kind].size > 0
    assert kind not in have_not


def test_audit_has_nothing_that_is_not_registered():
    assert set(AUDIT) == set(FINDINGS)
