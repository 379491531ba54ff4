"""Dequantized weights that stay until backward."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from memprof.categories.category import Category
from memprof.categories.rules import WORKSPACE_SIZES
from memprof.units import format_bytes

if TYPE_CHECKING:
    from memprof.analysis.findings.finding import Finding
    from memprof.analysis.findings.view import Mask, View

__all__ = ["dequantized_kept"]


def dequantized_kept(view: View) -> Finding | None:
    """Find full-precision copies of quantized weights that were made in forward and are alive when backward begins.

    bitsandbytes rebuilds a weight for one matrix product and lets go of it; a copy that autograd saves (a plain
    ``F.linear`` on the rebuilt weight does that) undoes what quantization saved. At a peak within forward only what
    autograd saved counts, since the others may be about to go.
    """
    kept = view.account.classification.saved | _alive_in_backward(view)
    if not view.labelled:
        # What cuBLAS takes inside of a dequantizing product has that stack too, and stays.
        kept &= ~np.isin(view.account.replay.allocations.requested, WORKSPACE_SIZES)
    return view.finding(
        view.of(Category.DEQUANTIZED) & view.text("finer", {"forward"}) & kept,
        id="dequantized-weights-kept",
        title=lambda size: f"Dequantized copies of quantized weights are kept for backward: {format_bytes(size)}",
        category=Category.DEQUANTIZED,
        fix=(
            "Multiply through bitsandbytes.matmul_4bit (or Linear4bit), which rebuilds the weight again in backward, "
            "instead of F.linear on a dequantized weight; or checkpoint the layer."
        ),
        grows=False,
        freed=view.soon_after(2),  # the next allocation is the product
    )


def _alive_in_backward(view: View) -> Mask:
    """Tell which allocations are alive when the first allocation of backward after their own is made."""
    allocations = view.account.replay.allocations
    starts = np.sort(allocations.born[view.born_in("backward")])
    if not len(starts):
        return np.zeros(len(allocations), np.bool_)
    at = np.searchsorted(starts, allocations.born)
    follows = at < len(starts)
    return np.asarray(follows & (allocations.freed > starts[np.minimum(at, len(starts) - 1)]), np.bool_)
