"""Quantized layers that return float32 although they compute in half precision."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from memprof.analysis.findings.view import TO_COPY, View
from memprof.categories.category import Category
from memprof.units import format_bytes

if TYPE_CHECKING:
    from memprof.analysis.findings.finding import Finding
    from memprof.analysis.findings.view import Mask, View
    from memprof.trace.model import Frame

__all__ = ["quantized_outputs"]

SOON = 8
"""Allocations before the cast within which the product is made."""


def quantized_outputs(view: View) -> Finding | None:
    """Find float32 copies that a quantized layer makes of its half-precision result.

    bitsandbytes' ``Linear4bit.forward`` ends in ``.to(inp_dtype)`` (bitsandbytes/nn/modules.py): under autocast the
    input comes in float32 from a norm or a residual, and so the output goes out in float32, where ``Linear`` would
    return half. Bytes are half of each block: what float32 takes beyond half precision. Without labels it is likely:
    a copy that the layer's own forward makes, of twice the bytes of a product that it made right before.
    """
    mask = _by_labels(view) if view.labelled else _by_stacks(view)
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
        counted=view.size // 2,
        gives_back=lambda: view.given_back_by("autocast-output") or None,  # without autocast the fix is another one
    )


def _by_labels(view: View) -> Mask:
    return (
        view.of(Category.ACTIVATIONS, Category.TEMPORARIES)
        & view.text("op", {TO_COPY})
        & view.text("dtype", {"float32"})
        & view.text("module", view.quantized_modules & view.half_modules)
    )


def _by_stacks(view: View) -> Mask:
    allocations = view.account.replay.allocations
    mask = view.of(Category.ACTIVATIONS) & view.stacks(_is_cast)
    inside = view.stacks(lambda stack: any(_is_layer(frame) for frame in stack)) & ~view.stacks(_is_cast)
    order = np.argsort(allocations.born, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    for row in np.flatnonzero(mask).tolist():
        before = order[max(0, place[row] - SOON) : place[row]]
        products = allocations.requested[before[inside[before]]]
        mask[row] = bool(np.any(products * 2 == allocations.requested[row]))
    return mask


def _is_cast(stack: tuple[Frame, ...]) -> bool:
    """Tell the stack of a cast in a layer's forward: what it multiplies is allocated further in."""
    python = next((frame for frame in stack if frame.filename.endswith(".py")), None)
    return python is not None and _is_layer(python)


def _is_layer(frame: Frame) -> bool:
    return frame.name == "forward" and frame.filename.endswith("bitsandbytes/nn/modules.py")
