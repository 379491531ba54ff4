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
    over = np.zeros(len(step), np.bool_)
    for span in step_spans(view):
        if span.backward_end is not None and span.backward_end <= view.event:
            over |= step == span.step
    mask = view.live & view.of(Category.ACTIVATIONS) & over & view.text("dtype", lambda name: name != "")
    mask &= ~kept_every_step(view)[0]
    return view.finding(
        mask,
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
    )
