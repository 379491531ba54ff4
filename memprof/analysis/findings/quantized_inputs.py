"""Inputs of quantized layers that are kept although the weight is frozen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from memprof.analysis.findings.finding import Certainty
from memprof.analysis.findings.view import HALF, TO_COPY
from memprof.categories.category import Category
from memprof.units import format_bytes

if TYPE_CHECKING:
    from memprof.analysis.findings.finding import Finding
    from memprof.analysis.findings.view import Mask, View

__all__ = ["quantized_inputs"]

SOON = 8
"""Allocations after an activation within which the layer that takes it makes its first."""


def quantized_inputs(view: View) -> Finding | None:
    """Find inputs of quantized layers that are alive when backward begins.

    Only the weight's gradient needs the input, and a quantized weight has none. bitsandbytes of 2023 kept it all the
    same, on its Function's ctx. Where the layer casts its input to its compute dtype, the kept copy is its own, and
    certain. Where it takes the input as it is, that is another module's: an activation that autograd did not save, made
    right before a quantized layer ran, and as wide as that layer's weight is; it is likely.
    """
    own = _own_casts(view)
    taken = _taken_as_they_are(view)
    return view.finding(
        own | taken,
        id="quantized-inputs-kept",
        title=lambda size: (
            f"Inputs of quantized layers are kept for backward though the weights are frozen: {format_bytes(size)}"
        ),
        category=Category.ACTIVATIONS,
        fix="Update bitsandbytes: its 4-bit product no longer keeps the input of a frozen weight.",
        grows=True,
        freed=view.soon_after(2),  # the layer's product, and what it is multiplied by
        certainty=Certainty.LIKELY if np.any(taken & view.live) else None,
    )


def _own_casts(view: View) -> Mask:
    known = view.account.classification
    mask = (
        view.of(Category.ACTIVATIONS)
        & view.text("op", {TO_COPY})
        & view.text("dtype", HALF)
        & view.text("module", view.quantized_modules)
    )
    # A layer may also cast its output; what it multiplies in tells its compute dtype.
    multiplied = ~view.text("op", {TO_COPY}) & view.born_in("forward") & (known.module >= 0)
    computes = set(zip(known.module[multiplied].tolist(), known.dtype[multiplied].tolist(), strict=True))
    for row in np.flatnonzero(mask).tolist():
        mask[row] = (int(known.module[row]), int(known.dtype[row])) in computes
    return mask


def _taken_as_they_are(view: View) -> Mask:
    known = view.account.classification
    mask = view.of(Category.ACTIVATIONS) & view.text("finer", {"held"}) & view.born_in("forward")
    mask &= (known.shape >= 0) & ~view.text("module", view.quantized_modules)
    if not np.any(mask & view.live):
        return np.zeros(len(mask), np.bool_)
    rebuilt = view.of(Category.DEQUANTIZED) & view.text("module", view.quantized_modules)
    widths = {
        (view.get("module", row), shape[-1])
        for row in np.flatnonzero(rebuilt).tolist()
        if (shape := view.shape(row)) is not None and len(shape) == 2
    }
    order = np.argsort(view.account.replay.allocations.born, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    for row in np.flatnonzero(mask).tolist():
        shape = view.shape(row) or ()
        trailing = set(np.cumprod(shape[::-1]).tolist())  # heads may still be apart from their size
        following = order[place[row] + 1 : place[row] + 1 + SOON].tolist()
        mask[row] = any((view.get("module", other), width) in widths for other in following for width in trailing)
    return mask
