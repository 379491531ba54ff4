"""The optimizers that a recipe offers by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from memprof.errors import CaptureError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["OPTIMIZERS", "build_optimizer"]

OPTIMIZERS = ("adamw", "paged-adamw", "adamw8bit", "sgd")
"""``adamw`` and ``sgd`` are torch's, the others bitsandbytes'."""


def build_optimizer(
    name: str, parameters: Sequence[torch.nn.Parameter], *, lr: float, weight_decay: float
) -> torch.optim.Optimizer:
    """Build the optimizer called `name` (one of `OPTIMIZERS`) for `parameters`."""
    if name == "adamw":
        return torch.optim.AdamW(parameters, lr=lr, weight_decay=weight_decay)
    if name == "sgd":
        return torch.optim.SGD(parameters, lr=lr, weight_decay=weight_decay)
    try:
        import bitsandbytes
    except ImportError as error:
        raise CaptureError(f"--optimizer {name} needs bitsandbytes: pip install 'memprof[capture]' ({error})") from None
    classes = {"paged-adamw": bitsandbytes.optim.PagedAdamW, "adamw8bit": bitsandbytes.optim.AdamW8bit}
    optimizer: torch.optim.Optimizer = classes[name](parameters, lr=lr, weight_decay=weight_decay)
    return optimizer
