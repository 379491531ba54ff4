"""Inputs of quantized layers that are kept although the weight is frozen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from memprof.analysis.findings.view import HALF, TO_COPY, View
from memprof.categories.category import Category
from memprof.units import format_bytes

if TYPE_CHECKING:
    from memprof.analysis.findings.finding import Finding

__all__ = ["quantized_inputs"]


def quantized_inputs(view: View) -> Finding | None:
    """Find casts of a quantized layer's input to its compute dtype that are alive when backward begins.

    Only the weight's gradient needs the input, and a quantized weight has none. bitsandbytes of 2023 kept it all the
    same. An input that had the compute dtype already is no copy of the layer's own, and is not found.
    """
    known = view.account.classification
    mask = (
        view.live
        & view.of(Category.ACTIVATIONS)
        & view.text("op", {TO_COPY})
        & view.text("dtype", HALF)
        & view.text("module", view.quantized_modules)
    )
    # A layer may also cast its output; what it multiplies in tells its compute dtype.
    multiplied = ~view.text("op", {TO_COPY}) & view.born_in("forward") & (known.module >= 0)
    computes = set(zip(known.module[multiplied].tolist(), known.dtype[multiplied].tolist(), strict=True))
    for row in np.flatnonzero(mask).tolist():
        mask[row] = (int(known.module[row]), int(known.dtype[row])) in computes
    return view.finding(
        mask,
        id="quantized-inputs-kept",
        title=lambda size: (
            f"Inputs of quantized layers are kept for backward though the weights are frozen: {format_bytes(size)}"
        ),
        category=Category.ACTIVATIONS,
        fix="Update bitsandbytes: its 4-bit product no longer keeps the input of a frozen weight.",
        grows=True,
    )
