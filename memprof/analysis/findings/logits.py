"""Logits: tensors as wide as the vocabulary."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from memprof.analysis.findings.finding import Certainty
from memprof.analysis.findings.view import HALF, TO_COPY, View
from memprof.categories.category import Category
from memprof.units import format_bytes

if TYPE_CHECKING:
    from memprof.analysis.findings.finding import Finding
    from memprof.analysis.findings.view import Mask

__all__ = ["logits_copies", "logits_dominate"]

DOMINATES = 0.25
"""Share of the peak from which on logits are what the run's memory is about."""
WIDE = 8
"""An output layer has at least this many times more outputs than inputs, where nothing names the logits."""
LOSSES = frozenset({"cross_entropy", "log_softmax", "nll_loss"})
"""Functions of torch/nn/functional.py that take logits."""
LARGE = 1 << 20
"""Bytes below which a tensor of a loss may have the size of anything."""


def logits_dominate(view: View) -> Finding | None:
    """Find vocabulary-wide tensors that take a quarter of the peak or more.

    The vocabulary's size is the last dimension of what the capture named logits. Where it named none, it is the first
    dimension of the highest weight, if that is at least eight times higher than wide; then the finding is likely, not
    certain. Without labels, sizes tell (`_as_large_as_the_loss`), and it is likely too.
    """
    mask, named = _logits(view)
    standing = mask & view.live
    if int(view.size[standing].sum()) < DOMINATES * view.peak:
        return None
    dtypes = sorted(view.texts("dtype", standing))
    ops = len(view.texts("op", standing))
    kinds = f": made by {ops} ops, in {' and '.join(dtypes)}" if ops > 1 else f": in {' and '.join(dtypes)}"
    what = "Tensors as wide as the vocabulary"
    if not view.labelled:
        kinds, what = "", "Logits, as it seems by the loss and by size,"
    return view.finding(
        mask,
        id="logits-dominate",
        title=lambda size: f"{what} take {size / view.peak:.0%} of the peak ({format_bytes(size)}){kinds}",
        category=Category.ACTIVATIONS,
        fix=(
            "Do not keep all logits at once: use a fused linear cross-entropy, or compute output layer and loss for a "
            "chunk of tokens at a time under checkpointing. Computing them in chunks without that keeps every chunk."
        ),
        grows=True,
        gives_back=lambda: view.given_back_by("checkpointed-loss"),
        certainty=Certainty.CERTAIN if named and view.labelled else Certainty.LIKELY,
    )


def logits_copies(view: View) -> Finding | None:
    """Find float32 copies of half-precision logits, such as ``logits.float()`` or autocast makes before the loss.

    What a quantized output layer returns in float32 is `quantized_outputs`'s.
    """
    mask, named = _logits(view)
    half = mask & view.text("dtype", HALF)
    mask &= (
        view.of(Category.ACTIVATIONS, Category.TEMPORARIES)
        & view.text("op", {TO_COPY})
        & view.text("dtype", {"float32"})
        & ~view.born_in("backward")
        & ~view.text("module", view.quantized_modules)
    )
    if not np.any(half):
        return None
    return view.finding(
        mask,
        id="logits-copied",
        title=lambda size: f"Logits are cast to float32, and the copies stand: {format_bytes(size)}",
        category=Category.ACTIVATIONS,
        fix=(
            "Leave the logits in their dtype and let the loss raise the precision inside its kernel (a fused linear "
            "cross-entropy does), instead of logits.float() or autocast's float32 cast before the loss."
        ),
        grows=True,
        certainty=Certainty.CERTAIN if named and view.labelled else Certainty.LIKELY,
    )


def _logits(view: View) -> tuple[Mask, bool]:
    """Return which allocations are as wide as the vocabulary, and whether the capture named the logits."""
    if not view.labelled:
        return _as_large_as_the_loss(view), False
    named = view.of(Category.ACTIVATIONS, Category.TEMPORARIES) & view.text("finer", {"logits"})
    widths = {text.rpartition(",")[2] for text in view.texts("shape", named)}
    if not widths:
        texts = view.texts("shape", view.of(Category.WEIGHTS))
        shapes = [[int(part) for part in text.split(",") if part] for text in texts]
        # Packed storage of quantized weights is one element wide.
        highest = max((shape for shape in shapes if len(shape) == 2 and shape[1] > WIDE), default=[0, 0])
        widths = {str(highest[0])} if highest[0] >= WIDE * highest[1] > 0 else set()
    flowing = view.of(Category.ACTIVATIONS, Category.GRADIENTS, Category.TEMPORARIES) & ~view.text(
        "finer", {"parameter", "init"}
    )
    return flowing & view.text("shape", lambda text: "," in text and text.rpartition(",")[2] in widths), bool(
        np.any(named)
    )


def _as_large_as_the_loss(view: View) -> Mask:
    """Tell, without labels, what has the bytes of something that a loss over classes made, or half or twice as many."""
    requested = view.account.replay.allocations.requested
    loss = view.stacks(lambda stack: any(frame.name in LOSSES for frame in stack))
    sizes = np.unique(requested[loss & (requested >= LARGE)])
    sizes = np.concatenate([sizes, sizes // 2, sizes * 2])
    return view.of(Category.ACTIVATIONS, Category.GRADIENTS, Category.TEMPORARIES) & np.isin(requested, sizes)
