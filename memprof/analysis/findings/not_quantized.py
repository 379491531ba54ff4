"""Linear layers that were left as they are in a model whose other layers are quantized."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from memprof.analysis.findings.view import HALF, owner
from memprof.categories.category import Category
from memprof.units import format_bytes

if TYPE_CHECKING:
    from memprof.analysis.findings.finding import Finding
    from memprof.analysis.findings.view import View

__all__ = ["linears_left"]

PRODUCTS = frozenset({"aten::mm", "aten::addmm", "aten::bmm", "aten::linear"})
BITS = 4.5
"""Of a weight in 4 bits: itself, and a float32 number for each 64 (bitsandbytes' blocksize)."""


def linears_left(view: View) -> Finding | None:
    """Find frozen weights of linear layers that are not quantized though others are.

    A linear layer is a module that made a product in forward and has a frozen weight of two dimensions. What is as
    high as an embedding is the output layer: quantizers leave that out on purpose. Bytes are what 4 bits would save.
    """
    if not view.quantized_modules:
        return None
    multiplied = view.texts("module", view.text("op", PRODUCTS) & view.born_in("forward"))
    base = view.of(Category.WEIGHTS) & view.text("finer", {"base"}) & view.text("dtype", HALF | {"float32"})
    base &= view.text("parameter", lambda name: name.endswith("weight"))
    linear = base & view.text("parameter", lambda name: owner(name) in multiplied)
    heights = {shape[0] for row in np.flatnonzero(base & ~linear).tolist() if len(shape := view.shape(row) or ()) == 2}
    saved = np.zeros(len(linear), np.int64)
    for row in np.flatnonzero(linear).tolist():
        shape = view.shape(row) or ()
        if len(shape) == 2 and shape[0] not in heights:
            saved[row] = int(view.size[row]) - int(shape[0] * shape[1] * BITS) // 8
    return view.finding(
        saved > 0,
        id="linears-not-quantized",
        title=lambda size: (
            f"Linear layers are not quantized beside others that are: {format_bytes(size)} more than in 4 bits"
        ),
        category=Category.WEIGHTS,
        fix="Quantize every linear layer, not only those that get adapters.",
        grows=False,
        counted=saved,
    )
