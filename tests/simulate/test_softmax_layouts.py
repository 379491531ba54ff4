"""Softmax of tensors that are not contiguous."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from children import simulate

pytestmark = pytest.mark.torch


def test_gradients_in_another_layout_are_made_contiguous() -> None:
    # given a gradient with channels last of a contiguous output, as a one-hot target multiplied with it gives
    answers = simulate("""
        def sizes(function):
            scores = torch.zeros(8, 6, 256, 256, device="cuda", requires_grad=True)
            found = function(scores, 1)
            gradient = torch.zeros(8, 256, 256, 6, device="cuda").permute(0, 3, 1, 2)
            plain = torch.zeros_like(found)
            torch.cuda.memory._record_memory_history()
            torch.autograd.grad(found, scores, gradient, retain_graph=True)
            torch.autograd.grad(found, scores, plain)
            entries = torch.cuda.memory._snapshot()["device_traces"][0]
            torch.cuda.memory._record_memory_history(None)
            return [entry["size"] for entry in entries if entry["action"] == "alloc"]
        report(softmax=sizes(torch.softmax), log=sizes(torch.log_softmax))
    """)
    # then softmax takes result, product and its copy, as in the run `segment_transposed_bf16`, else no copy;
    # log_softmax takes no product
    whole = 8 * 6 * 256 * 256 * 4
    assert answers["softmax"] == [whole] * 3 + [whole] * 2
    assert answers["log"] == [whole] * 2 + [whole]
