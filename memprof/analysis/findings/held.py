"""Outputs, or the loss with its graph, that are still referenced after their backward."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from memprof.analysis.findings.leak import kept_every_step
from memprof.analysis.findings.steps import step_spans
from memprof.categories.category import Category
from memprof.units import format_bytes

if TYPE_CHECKING:
    from memprof.analysis.findings.finding import Finding
    from memprof.analysis.findings.view import View

__all__ = ["held_after_backward"]


def held_after_backward(view: View) -> Finding | None:
    """Find activations that are alive at the peak although the backward of their step had ended before it.

    Only what some op was given as a tensor (its dtype is known) can be held by a name; what `leak` finds is left to it.
    """
    if not view.labelled:
        return None
    step = view.account.classification.step
    ends = np.full(len(step), len(view.account.device.events))
    for span in step_spans(view):
        if span.backward_end is not None:
            ends[step == span.step] = span.backward_end
    held = view.of(Category.ACTIVATIONS) & view.text("dtype", lambda name: name != "") & ~kept_every_step(view)[0]
    return view.finding(
        held & (ends <= view.event),
        id="held-after-backward",
        title=lambda size: (
            f"Outputs or graph of a step whose backward is over are still referenced at the peak: {format_bytes(size)}"
        ),
        category=Category.ACTIVATIONS,
        fix=(
            "Let go of them before the next forward: del outputs, logits, loss at the end of the step, or do the step "
            "in a function that returns loss.detach()."
        ),
        grows=True,
        whole=held,
        freed=ends,
    )
