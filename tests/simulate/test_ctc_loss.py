"""The loss of connectionist temporal classification."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from children import run_child, simulate

pytestmark = pytest.mark.torch

_SETUP = """
    import torch.nn.functional as F
    def lengths(steps, targets):
        filled = lambda value: torch.full((4,), value, dtype=torch.int64, device="cuda")
        return filled(steps), filled(targets)
    def sizes(steps, **options):
        log_probs = torch.zeros(steps, 4, 40, device="cuda", requires_grad=True)
        targets = torch.zeros(120, dtype=torch.int64, device="cuda")
        both = lengths(steps, 30)
        torch.cuda.memory._record_memory_history()
        F.ctc_loss(log_probs, targets, *both, reduction="sum", **options).backward()
        entries = torch.cuda.memory._snapshot()["device_traces"][0]
        torch.cuda.memory._record_memory_history(None)
        return [entry["size"] for entry in entries if entry["action"] == "alloc"]
"""


def test_loss_and_gradient_take_a_table_of_states() -> None:
    # given 149 steps of 40 letters, 30 of them wanted, as the run `wav2vec2_ctc_fp32` has them
    answers = simulate(_SETUP + "    report(sizes=sizes(149))\n")
    # then lengths, table, losses and their sum are taken as the H200's run took them, and the same for the gradient
    assert answers["sizes"] == [32, 32, 32, 145424, 16, 4, 4, 32, 32, 32, 145424, 95360]


def test_gradient_of_many_steps_is_computed_by_whole_tensors() -> None:
    # given 300 steps: more than the kernel for small problems takes
    answers = simulate(_SETUP + "    report(plain=sizes(300), zeroed=sizes(300, zero_infinity=True))\n")
    # then the blanks' states, every other one, are added up and reduced besides
    table, gradient, blanks, row = 4 * 300 * 61 * 4, 300 * 4 * 40 * 4, 4 * 300 * 31 * 4, 4 * 300 * 4
    assert answers["plain"][:10] == [32, 32, 32, table, 16, 4, 4, 32, 32, 32]
    assert answers["plain"][10:13] == [table, gradient, blanks]
    assert row in answers["plain"][13:]
    # and the gradient is written once more where infinite losses are zeroed
    assert answers["zeroed"].count(gradient) == answers["plain"].count(gradient) + 1


def test_cudnn_is_refused() -> None:
    result = run_child("""
        import torch.nn.functional as F
        log_probs = torch.zeros(9, 2, 5, device="cuda")
        F.ctc_loss(log_probs, torch.ones(4, dtype=torch.int32), (9, 9), (2, 2))
    """)
    assert "ctc_loss with cuDNN cannot be simulated" in result.stderr
