"""What dropout keeps for backward."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memprof.categories.category import Category
from memprof.units import format_bytes

if TYPE_CHECKING:
    from memprof.analysis.findings.finding import Finding
    from memprof.analysis.findings.view import View

__all__ = ["dropout_masks"]

MASKED = frozenset({"aten::native_dropout"})
"""Returns result and mask; the mask is bool (aten/src/ATen/native/cuda/Dropout.cu)."""
NOISE = frozenset({"aten::dropout", "aten::feature_dropout", "aten::alpha_dropout", "aten::bernoulli"})
"""Make noise in the input's dtype (``_dropout_impl`` in aten/src/ATen/native/Dropout.cpp); the result is a product."""


def dropout_masks(view: View) -> Finding | None:
    """Find the masks that dropout keeps: bool on CUDA, and in the input's own dtype on the CPU."""
    masks = (view.text("op", MASKED) & view.text("dtype", {"bool"})) | view.text("op", NOISE)
    return view.finding(
        view.of(Category.ACTIVATIONS) & masks & view.account.classification.saved,
        id="dropout-masks",
        title=lambda size: f"Dropout keeps its masks for backward: {format_bytes(size)}",
        category=Category.ACTIVATIONS,
        fix="Set dropout to 0 where it does not pay, or use attention kernels, which make their mask anew in backward.",
        grows=True,
    )
