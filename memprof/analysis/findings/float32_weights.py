"""Weights in float32 in a run that has quantized weights, or had the same weights in half precision."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from memprof.analysis.findings.view import HALF, TO_COPY
from memprof.categories.category import Category
from memprof.units import format_bytes

if TYPE_CHECKING:
    from memprof.analysis.findings.finding import Finding
    from memprof.analysis.findings.view import Mask, View

__all__ = ["float32_weights"]


def float32_weights(view: View) -> Finding | None:
    """Find frozen float32 weights beside quantized ones, or that were half-precision before.

    Quantizers leave embeddings, norms and often the output layer as they are, and peft's
    ``prepare_model_for_kbit_training`` casts what is not quantized to float32 (peft/utils/other.py), on a model that
    is not quantized all of it. Where nothing computes in half precision, float32 weights beside quantized ones are
    meant to be. Bytes are half of each block: what float32 takes beyond half precision.
    """
    full = view.of(Category.WEIGHTS) & view.text("finer", {"base"}) & view.text("dtype", {"float32"})
    quantized = bool(view.quantized_modules)
    if not (quantized and view.half_modules):
        full &= _cast_up(view, full)
    why = "not quantized" if quantized else "half precision before they were cast up"
    return view.finding(
        full,
        id="weights-float32",
        title=lambda size: f"Frozen weights stand in float32 ({why}): {format_bytes(size)} more than in half precision",
        category=Category.WEIGHTS,
        fix=(
            "Load what is not quantized in bfloat16 (or float16) and keep it so; without gradient flow through float32 "
            "norms, leave out prepare_model_for_kbit_training or cast embeddings and output layer back after it."
        ),
        grows=False,
        counted=view.size // 2,
    )


def _cast_up(view: View, full: Mask) -> Mask:
    """Tell which of these weights are copies of a half-precision tensor of their shape that went away since."""
    allocations, shape = view.account.replay.allocations, view.account.classification.shape
    halves = np.flatnonzero(view.text("dtype", HALF) & ~view.born_in("forward") & ~view.live & (shape >= 0))
    found = np.zeros(len(full), np.bool_)
    for row in np.flatnonzero(full & view.text("op", {TO_COPY})).tolist():
        born = allocations.born[row]
        source = halves[shape[halves] == shape[row]]
        found[row] = bool(np.any((allocations.born[source] < born) & (allocations.freed[source] > born)))
    return found
