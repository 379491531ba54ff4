"""Optimizer state that is there before the first forward."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memprof.categories.category import Category
from memprof.units import format_bytes

if TYPE_CHECKING:
    from memprof.analysis.findings.finding import Finding
    from memprof.analysis.findings.view import View

__all__ = ["early_state"]


def early_state(view: View) -> Finding | None:
    """Find optimizer state that was made, while recorded, before the first forward began.

    A new run gets it in its first ``optimizer.step``: its first forward and backward do without.
    """
    first = next((phase.begin for phase in view.phases if phase.phase == "forward"), None)
    if first is None:
        return None
    born = view.account.replay.allocations.born
    return view.finding(
        view.of(Category.OPTIMIZER_STATE) & (born >= 0) & (born < first),
        id="optimizer-state-before-forward",
        title=lambda size: (
            f"The optimizer has its state before the first forward: {format_bytes(size)} that a new run's first step "
            "does without"
        ),
        category=Category.OPTIMIZER_STATE,
        fix=(
            "After a resume (or with an optimizer that makes its state at once) the first step needs what a new run "
            "needs from its second on: size the batch by that, or load the state onto the host first."
        ),
        grows=False,
        gives_back=lambda: None,  # later steps need it too
    )
