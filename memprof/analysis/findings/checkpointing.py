"""Gradient checkpointing that was asked for and does not happen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from memprof.categories.category import Category
from memprof.units import format_bytes

if TYPE_CHECKING:
    from memprof.analysis.findings.finding import Finding
    from memprof.analysis.findings.view import View

__all__ = ["checkpointing_idle"]

FORWARD_ONLY = (
    "addmm",
    "native_layer_norm",
    "_fused_rms_norm",
    "gelu",
    "silu",
    "relu",
    "_softmax",
    "native_dropout",
    "dropout",
    "embedding",
    "rsqrt",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
    "convolution",
    "gemm_4bit",
)
"""Ops that backward does not run unless it runs forward again."""


def checkpointing_idle(view: View) -> Finding | None:
    """Find activations that checkpointing should have dropped: it was asked for, and backward recomputes nothing.

    Asked for is what the recorded configuration says: a true value under a name with ``checkpointing`` in it; or what
    `memprof.record` saw: a module with transformers' ``gradient_checkpointing`` switched on. Bytes are all saved
    activations of the model's submodules at the peak: what checkpointing could have dropped at most.
    """
    asked = [name for name, value in view.config.items() if "checkpointing" in str(name) and value is True]
    if (view.account.trace.made_by or {}).get("gradient_checkpointing_asked") is True:
        asked.append("gradient_checkpointing of its modules")
    backward = view.born_in("backward")
    if not asked or not view.labelled or not np.any(backward):
        return None
    again = view.text("finer", {"recomputed"}) | view.text("op", lambda op: op.rpartition("::")[2] in FORWARD_ONLY)
    if np.any(backward & again):
        return None
    return view.finding(
        view.of(Category.ACTIVATIONS)
        & view.account.classification.saved
        & view.text("module", lambda name: name != ""),
        id="checkpointing-not-working",
        title=lambda size: (
            f"Checkpointing was asked for ({asked[0]}), but backward recomputes nothing: {format_bytes(size)} of "
            "activations are saved"
        ),
        category=Category.ACTIVATIONS,
        fix=(
            "Make sure that the model is in train() (transformers does not checkpoint in eval()), that wrapping or "
            "reloading did not reset it, and that the inputs require grad (enable_input_require_grads)."
        ),
        grows=True,
        gives_back=lambda: None,  # how much is computed at a time, and so stays, is not known
    )
