"""Optimizer state of parameters that are not trained."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memprof.categories.category import Category
from memprof.units import format_bytes

if TYPE_CHECKING:
    from memprof.analysis.findings.finding import Finding
    from memprof.analysis.findings.view import View

__all__ = ["frozen_state"]


def frozen_state(view: View) -> Finding | None:
    """Find optimizer state whose parameter does not require grad, as the capture last saw it."""
    weights = view.of(Category.WEIGHTS)
    frozen = view.texts("parameter", weights & view.text("finer", {"base", "quantized"}))
    frozen -= view.texts("parameter", weights & view.text("finer", {"adapter"}))
    return view.finding(
        view.of(Category.OPTIMIZER_STATE) & view.text("parameter", frozen),
        id="frozen-optimizer-state",
        title=lambda size: f"The optimizer keeps state of frozen parameters: {format_bytes(size)}",
        category=Category.OPTIMIZER_STATE,
        fix=(
            "Give the optimizer only parameters that require grad, and when freezing later make a new optimizer or "
            "delete their entries of optimizer.state."
        ),
        grows=False,
    )
