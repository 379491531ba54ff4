"""Memory kept from step to step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from memprof.analysis.findings.steps import step_spans
from memprof.categories.category import CATEGORIES, Category
from memprof.units import format_bytes

if TYPE_CHECKING:
    from memprof.analysis.findings.finding import Finding
    from memprof.analysis.findings.view import Mask, View

__all__ = ["kept_every_step", "leak"]

KEPT_ON_PURPOSE = (Category.WEIGHTS, Category.OPTIMIZER_STATE, Category.WORKSPACE)
LEAST_STEPS = 3
"""Two births that each outlived the next step: fewer could be something made once."""


def leak(view: View) -> Finding | None:
    """Find what every step makes and later steps still hold. Bytes are those of it that are alive at the peak."""
    mask, per_step = kept_every_step(view)
    standing = mask & view.live
    codes = view.account.classification.category[standing]
    category = CATEGORIES[np.bincount(codes, view.size[standing]).argmax()] if len(codes) else Category.UNKNOWN
    born = view.account.replay.allocations.born
    ends = np.array([span.end for span in step_spans(view)] + [len(view.account.device.events)])
    return view.finding(
        mask,
        id="grows-every-step",
        title=lambda size: (
            f"Memory grows by {format_bytes(per_step)} every step and is not freed: {format_bytes(size)} at the peak"
        ),
        category=category,
        fix=(
            "Find what keeps the tensors below: a list or a running sum of losses or outputs. Keep .item() or "
            ".detach().cpu() of them instead."
        ),
        grows=True,
        freed=ends[np.searchsorted(ends[:-1], born, side="right")],
    )


def kept_every_step(view: View) -> tuple[Mask, int]:
    """Return which allocations are of a kind that every step leaves behind, and how many bytes of them a step leaves.

    A kind is what agrees in module, op, dtype and shape, or in stack where the file has no labels. Left behind is what
    lives until the end of the last step: what is kept for a fixed number of steps, as batches that are fetched ahead
    are, does not grow. The first step may do without, and weights, optimizer state, gradients of parameters and
    workspaces are meant to stay.
    """
    allocations, known = view.account.replay.allocations, view.account.classification
    none = np.zeros(len(allocations), np.bool_)
    spans = step_spans(view)
    if len(spans) < LEAST_STEPS:
        return none, 0
    begins = np.array([span.begin for span in spans])
    ends = np.array([span.end for span in spans])
    step = np.searchsorted(begins, allocations.born, side="right") - 1
    eligible = (step >= 0) & (step < len(spans) - 1)
    left = eligible & (allocations.freed >= ends[-1])
    left &= ~view.of(*KEPT_ON_PURPOSE) & ~(view.of(Category.GRADIENTS) & view.text("finer", {"parameter"}))
    rows = np.flatnonzero(left)
    if not len(rows):
        return none, 0
    columns = (known.module, known.op, known.dtype, known.shape) if view.labelled else (allocations.stack, known.op)
    kinds = np.unique(np.stack([column[rows] for column in columns], axis=1), axis=0, return_inverse=True)[1]
    kinds = kinds.reshape(-1)
    needed = set(range(1, len(spans) - 1))
    per_step = 0
    for kind in np.unique(kinds).tolist():
        members = rows[kinds == kind]
        steps = set(step[members].tolist())
        if needed <= steps and len(steps) > 1:
            none[members] = True
            per_step += int(view.size[members[step[members] == max(needed)]].sum())
    return none, per_step
