"""Which attention kernel PyTorch takes on a card, and the call that it then makes.

``scaled_dot_product_attention`` is composite, and asks a table of device types that a CPU build does not fill for CUDA:
the choice is made here. Conditions and their order are those of ``select_sdp_backend`` in
``ATen/native/transformers/cuda/sdp_utils.cpp`` and of ``ATen/native/transformers/attention.cpp``.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from memprof.simulate.cards import Card

__all__ = ["Attention", "Backend"]

aten = torch.ops.aten
_HALF = (torch.float16, torch.bfloat16)


class Backend(Enum):
    """An implementation of attention, in ``at::SDPBackend``'s names."""

    CUDNN = "cudnn"
    FLASH = "flash"
    EFFICIENT = "efficient"
    MATH = "math"


class Attention:
    """``scaled_dot_product_attention`` of a card."""

    def __init__(self, card: Card) -> None:
        self._capability = card.capability

    def choose(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        mask: torch.Tensor | None,
        *,
        dropout: float,
        causal: bool,
        enable_gqa: bool,
    ) -> Backend | None:
        """Return the implementation that torch chooses; None if those that could are switched off."""
        enabled: Any = torch.backends.cuda  # untyped in torch
        dense = all(tensor.dim() == 4 and tensor.numel() and tensor.stride(-1) == 1 for tensor in (query, key, value))
        grouped = dense and query.size(1) != key.size(1)
        if dense:
            # Only the composite broadcasts batches and heads (``check_batch_size_and_num_heads_dense``).
            same = query.size(0) == key.size(0) == value.size(0) and key.size(1) == value.size(1)
            dense = same and (not grouped or (enable_gqa and query.size(1) % key.size(1) == 0))
        low_precision = query.dtype == torch.float16 or (query.dtype == torch.bfloat16 and self._capability >= (8, 0))
        size, value_size = query.size(-1), value.size(-1)
        modern = self._capability >= (8, 0)
        cudnn = (
            dense
            and enabled.cudnn_sdp_enabled()
            and modern
            and low_precision
            and max(size, value_size) <= (256 if self._capability[0] in (9, 10) else 128)
            and size % 8 == 0
            and value_size % 8 == 0
            and key.size(2) > 1
            and not (dropout > 0 and query.size(2) == 1)
            and not (mask is not None and mask.requires_grad)
        )
        flash = (
            dense
            and enabled.flash_sdp_enabled()
            and modern
            and low_precision
            and mask is None
            and size == value_size <= 256
            and not (causal and query.size(2) != key.size(2))
        )
        if flash and self._capability in ((8, 6), (8, 9)) and query.requires_grad:
            flash = size <= 192 or (dropout == 0 and size > 224)
        alignment = self._gemm_alignment(query.dtype)
        efficient = (
            dense
            and enabled.mem_efficient_sdp_enabled()
            and query.dtype in ((*_HALF, torch.float32) if modern else (torch.float16, torch.float32))
            and size % alignment == 0
            and value_size % alignment == 0
            and not grouped
        )
        order = [(Backend.FLASH, flash), (Backend.EFFICIENT, efficient)]
        # check_prefer_cudnn_attention: Hopper and datacenter Blackwell
        order.insert(0 if self._capability[0] in (9, 10) else 2, (Backend.CUDNN, cudnn))
        order.append((Backend.MATH, enabled.math_sdp_enabled()))
        return next((backend for backend, usable in order if usable), None)

    def __call__(  # noqa: PLR0917  # torch's signature
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,  # noqa: FBT001, FBT002  # torch's signature
        scale: float | None = None,
        enable_gqa: bool = False,  # noqa: FBT001, FBT002
    ) -> torch.Tensor:
        """Run attention as ``at::native::scaled_dot_product_attention`` does."""
        backend = self.choose(query, key, value, attn_mask, dropout=dropout_p, causal=is_causal, enable_gqa=enable_gqa)
        if backend is None:
            raise RuntimeError("No available kernel. Aborting execution.")
        needs_gradient = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
        mask = attn_mask
        if mask is not None and mask.dtype == torch.bool:
            mask = _additive(mask, query.dtype)
        result: torch.Tensor
        if backend is Backend.CUDNN:
            result = aten._scaled_dot_product_cudnn_attention(
                query, key, value, mask, needs_gradient, dropout_p, is_causal, False, scale=scale
            )[0]
        elif backend is Backend.FLASH:
            size = query.size(-1)
            padded = [_pad(tensor) for tensor in (query, key, value)]
            result = aten._scaled_dot_product_flash_attention(
                *padded, dropout_p, is_causal, False, scale=scale if scale is not None else 1 / math.sqrt(size)
            )[0]
            result = result if size % 8 == 0 else result[..., :size]
        elif backend is Backend.EFFICIENT:
            mask = None if mask is None else _aligned_bias(mask, query, key)  # the unpadded one ends here
            result = aten._scaled_dot_product_efficient_attention(
                query, key, value, mask, needs_gradient, dropout_p, is_causal, scale=scale
            )[0]
        else:
            result = aten._scaled_dot_product_attention_math(
                query, key, value, mask, dropout_p, is_causal, None, scale=scale, enable_gqa=enable_gqa
            )[0]
        return result

    def _gemm_alignment(self, dtype: torch.dtype) -> int:
        """Elements that the head size must be a multiple of (``minimum_gemm_alignment``)."""
        half = dtype in _HALF
        modern = self._capability >= (8, 0)
        aligned = 4 if modern else 1
        tensor_cores = modern or (self._capability >= (7, 0) and half)
        return max(aligned, 128 // (16 if half else 32)) if tensor_cores else aligned


def _additive(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Turn a boolean mask into one that is added (``convert_boolean_attn_mask``)."""
    minus_infinity = aten.scalar_tensor(-math.inf, dtype=dtype, device=mask.device)
    additive: torch.Tensor = aten.where.ScalarSelf(mask, 0.0, minus_infinity)
    return additive


def _pad(tensor: torch.Tensor) -> torch.Tensor:
    missing = -tensor.size(-1) % 8
    return torch.nn.functional.pad(tensor, (0, missing)) if missing else tensor


def _aligned_bias(mask: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """Pad rows, by 1 to 8 columns, where a step is no multiple of 8, and expand (``preprocess_mask``)."""
    if mask.stride(-1) != 1 or any(step % 8 for step in mask.stride()[:-1]):
        columns = mask.size(-1)
        mask = torch.nn.functional.pad(mask, (0, 8 - columns % 8))[..., :columns]
    return mask.expand(query.size(0), query.size(1), query.size(2), key.size(2))
