"""Quantized layers that return float32 although they compute in half precision."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from memprof.analysis.findings.view import TO_COPY, View
from memprof.categories.category import Category
from memprof.units import format_bytes

if TYPE_CHECKING:
    from memprof.analysis.findings.finding import Finding

__all__ = ["quantized_outputs"]


def quantized_outputs(view: View) -> Finding | None:
    """Find float32 copies that a quantized layer makes of its half-precision result.

    bitsandbytes' ``Linear4bit.forward`` ends in ``.to(inp_dtype)`` (bitsandbytes/nn/modules.py): under autocast the
    input comes in float32 from a norm or a residual, and so the output goes out in float32, where ``Linear`` would
    return half. Bytes are half of each block: what float32 takes beyond half precision.
    """
    modules = view.quantized_modules & view.half_modules
    mask = (
        view.live
        & view.of(Category.ACTIVATIONS, Category.TEMPORARIES)
        & view.text("op", {TO_COPY})
        & view.text("dtype", {"float32"})
        & view.text("module", modules)
    )
    return view.finding(
        mask,
        id="quantized-output-float32",
        title=lambda size: f"Quantized layers return float32: {format_bytes(size)} more than in half precision",
        category=Category.ACTIVATIONS,
        fix=(
            "Give the quantized layers inputs in half precision: run in bf16-true instead of mixed precision, or cast "
            "their input (or output) to the autocast dtype."
        ),
        grows=True,
        sizes={row: int(view.size[row]) // 2 for row in np.flatnonzero(mask).tolist()},
    )
