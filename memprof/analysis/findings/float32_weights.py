"""Weights in float32 in a run that has quantized weights, or had the same weights in half precision."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from memprof.analysis.findings.view import HALF, View
from memprof.categories.category import Category
from memprof.units import format_bytes

if TYPE_CHECKING:
    from memprof.analysis.findings.finding import Finding

__all__ = ["float32_weights"]


def float32_weights(view: View) -> Finding | None:
    """Find frozen float32 weights beside quantized ones, or that were half-precision before.

    Quantizers leave embeddings, norms and often the output layer as they are, and peft's
    ``prepare_model_for_kbit_training`` casts what is not quantized to float32 (peft/utils/other.py), on a model that
    is not quantized all of it. Where nothing computes in half precision, float32 weights are meant to be, and nothing
    is found. Bytes are half of each block: what float32 takes beyond half precision.
    """
    base = view.of(Category.WEIGHTS) & view.text("finer", {"base"})
    full = base & view.live & view.text("dtype", {"float32"})
    quantized = bool(view.quantized_modules)
    if not (quantized and view.half_modules):
        full &= view.text("parameter", view.texts("parameter", base & ~view.live & view.text("dtype", HALF)))
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
        sizes={row: int(view.size[row]) // 2 for row in np.flatnonzero(full).tolist()},
    )
