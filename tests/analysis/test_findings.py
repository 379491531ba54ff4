"""Findings on real runs of a small model on the CPU: what each run has is found, to the byte, and nothing else is."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("torch")
pytest.importorskip("bitsandbytes")
pytest.importorskip("peft")

import findings_runs as runs
from findings_cases import BLOCKS, CASES, HALF, MATRICES, MBS

pytestmark = pytest.mark.torch

WEIGHT = HALF * MATRICES // (2 * BLOCKS)
"""Bytes of a rebuilt one."""
LIKELY = {"nf4 layers that keep their input as it comes"}
"""Cases in which whose an activation is can only be told from the order of things."""


@pytest.mark.parametrize("name", CASES)
def test_run_has_its_findings_to_the_byte_and_no_others(name, found_in_case):
    findings = found_in_case(name)

    assert {kind: finding.size for kind, finding in findings.items()} == CASES[name][1]
    for finding in findings.values():
        assert finding.certainty.value == ("likely" if name in LIKELY else "certain")
        assert sum(row.size for row in finding.evidence) == finding.size
        if finding.per_sample is not None:
            assert finding.per_sample == finding.size / MBS


def test_leak_says_what_a_step_leaves(found_in_case):
    assert "65.54 kB every step" in found_in_case("outputs collected")["grows-every-step"].title


def test_layers_are_one_row_of_evidence(found_in_case):
    (row,) = found_in_case("nf4 under autocast")["quantized-output-float32"].evidence

    assert (row.module, row.op, row.dtype, row.count) == ("blocks.*.*", "aten::_to_copy", "float32", BLOCKS)


def test_without_labels_nothing_is_said_that_only_labels_know(tmp_path):
    loop, _ = CASES["nf4 under autocast"]

    assert runs.found_in(loop, tmp_path, labels=False) == {}


WITHOUT = {
    ("outputs collected", "grows-every-step"): {"keep": "nothing"},
    ("outputs of two steps kept", "held-after-backward"): {"keep": "nothing"},
    ("previous output alive", "held-after-backward"): {"keep": "nothing"},
    ("dropout", "dropout-masks"): {"mode": "eval"},
    ("evaluation collects", "evaluation-larger"): {"evaluate": 0},
    ("nf4 layers that keep their input as it comes", "quantized-inputs-kept"): {"model": "nf4 in float32"},
    ("product with a dequantized weight", "dequantized-weights-kept"): {"model": "nf4 in bf16"},
    ("nf4 under autocast", "quantized-output-float32"): {"model": "nf4 under autocast, cast first"},
    ("autocast, frozen weights", "frozen-weight-casts"): {"model": "autocast, frozen weights in half"},
    ("large vocabulary", "logits-dominate"): {"model": runs.with_checkpointed_loss(CASES["large vocabulary"][0].model)},
}
"""By case and finding: what takes the cause away and changes nothing else."""


@pytest.mark.parametrize(("name", "kind"), WITHOUT)
def test_what_a_finding_gives_back_is_what_the_same_run_needs_less_without_its_cause(
    name, kind, account_of_case, found_in_case, tmp_path
):
    change = dict(WITHOUT[name, kind])
    if isinstance(change.get("model"), str):
        change["model"] = CASES[change["model"]][0].model
    before = int(account_of_case(name).replay.allocated.max())

    without = runs.account_of(replace(CASES[name][0], **change), tmp_path)

    saved = before - int(without.replay.allocated.max())
    assert saved > 0
    # A weight that is not kept is rebuilt in backward, one at a time.
    rebuilt = WEIGHT if kind == "dequantized-weights-kept" else 0
    assert found_in_case(name)[kind].gives_back == pytest.approx(saved, rel=0.03, abs=4096 + rebuilt)
