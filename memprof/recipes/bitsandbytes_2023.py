"""The 4-bit linear layer as bitsandbytes 0.41 (2023) computed it, on today's quantized storage.

It rebuilt the whole weight, called ``F.linear``, and kept the layer's input for backward, although only the gradient of
the weight would need it and a quantized weight has none. Today's bitsandbytes keeps no input.
"""

from __future__ import annotations

from typing import Any

import bitsandbytes
import torch
from bitsandbytes.functional import dequantize_4bit

__all__ = ["Linear4bit2023"]


class _MatMul4Bit(torch.autograd.Function):
    """``MatMul4Bit`` of ``bitsandbytes/autograd/_functions.py``, version 0.41."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, state: Any) -> torch.Tensor:
        # Attributes, not save_for_backward: so did they, and what is kept is not what autograd counts as saved.
        ctx.state = state
        ctx.bias_dtype = None if bias is None else bias.dtype
        ctx.tensors = (x, weight) if any(ctx.needs_input_grad[:2]) else (None, None)
        return torch.nn.functional.linear(x, dequantize_4bit(weight, state).to(x.dtype), bias)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, None, torch.Tensor | None, None]:
        _, weight = ctx.tensors
        for_input, _, for_bias, _ = ctx.needs_input_grad
        # Theirs is sum(0), which is right for matrices only; a frozen model's bias never asks.
        bias = gradient.flatten(0, -2).sum(0, dtype=ctx.bias_dtype) if for_bias else None
        x = None
        if for_input:
            x = torch.matmul(gradient, dequantize_4bit(weight, ctx.state).to(gradient.dtype))
        return x, None, bias, None


class Linear4bit2023(bitsandbytes.nn.Linear4bit):  # type: ignore[misc] # bitsandbytes has no types
    """``Linear4bit`` with the forward pass of version 0.41 (``bitsandbytes/nn/modules.py``)."""

    compute_type_is_set: bool

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        # Params4bit.cuda began with .half(), so that weights were rebuilt in float16 whatever they had been.
        self.weight.data = self.weight.data.half()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply in the compute dtype, and return the input's dtype."""
        if not self.compute_type_is_set:
            self.set_compute_type(x)
            self.compute_type_is_set = True
        dtype = x.dtype
        if self.bias is not None and self.bias.dtype != dtype:
            self.bias.data = self.bias.data.to(dtype)
        if self.compute_dtype is not None:
            x = x.to(self.compute_dtype)
        bias = self.bias if self.bias is None or self.compute_dtype is None else self.bias.to(self.compute_dtype)
        result: torch.Tensor = _MatMul4Bit.apply(x, self.weight, bias, self.weight.quant_state)  # type: ignore[no-untyped-call]
        return result.to(dtype)
