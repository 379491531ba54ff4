"""Dequantized weights that stay until backward."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memprof.categories.category import Category
from memprof.units import format_bytes

if TYPE_CHECKING:
    from memprof.analysis.findings.finding import Finding
    from memprof.analysis.findings.view import View

__all__ = ["dequantized_kept"]


def dequantized_kept(view: View) -> Finding | None:
    """Find full-precision copies of quantized weights that were made in forward and are alive when it is over.

    bitsandbytes rebuilds a weight for one matrix product and lets go of it; a copy that autograd saves (a plain
    ``F.linear`` on the rebuilt weight does that) undoes what quantization saved. At a peak within forward only what
    autograd saved counts, since the others may be about to go.
    """
    kept = view.account.classification.saved | (view.account.replay.allocations.freed > _end_of_forward(view))
    mask = view.live & view.of(Category.DEQUANTIZED) & view.text("finer", {"forward"}) & kept
    return view.finding(
        mask,
        id="dequantized-weights-kept",
        title=lambda size: f"Dequantized copies of quantized weights are kept for backward: {format_bytes(size)}",
        category=Category.DEQUANTIZED,
        fix=(
            "Multiply through bitsandbytes.matmul_4bit (or Linear4bit), which rebuilds the weight again in backward, "
            "instead of F.linear on a dequantized weight; or checkpoint the layer."
        ),
        grows=False,
    )


def _end_of_forward(view: View) -> int:
    """Return the end of the forward phase that made the peak; the end of the trace where nothing marks it."""
    ends = [phase.end for phase in view.phases if phase.phase == "forward" and phase.begin <= view.event]
    return ends[-1] if ends else len(view.account.device.events)
