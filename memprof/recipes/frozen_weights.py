"""Frozen linear weights in another dtype than the rest of the model."""

from __future__ import annotations

import torch

__all__ = ["halve_frozen"]


def halve_frozen(model: torch.nn.Module, dtype: torch.dtype) -> None:
    """Store the frozen weights and biases of plain linear layers in `dtype`; quantized layers stay as they are."""
    for module in model.modules():
        if type(module) is torch.nn.Linear:
            for parameter in module.parameters(recurse=False):
                if not parameter.requires_grad:
                    parameter.data = parameter.data.to(dtype)
