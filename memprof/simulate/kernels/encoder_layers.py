"""The one op that a layer of ``nn.TransformerEncoder`` is in evaluation, and that of ``nn.MultiheadAttention``.

Sources: ``ATen/native/transformers/transformer.cpp`` and ``cuda/attention.cu``. What they call is called here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812  # the name that everybody gives it

from memprof.simulate.kernels.registry import kernel
from memprof.simulate.storages import contiguous_strides

if TYPE_CHECKING:
    from memprof.simulate.device import Device

    Optional = torch.Tensor | None

__all__: list[str] = []

_FUSED = (torch.float32, torch.float16, torch.bfloat16)
"""Dtypes that fused attention has kernels for; the other passes are done by products and a softmax."""


@kernel("_transformer_encoder_layer_fwd")
def _encoder_layer(  # noqa: PLR0917  # torch's signature
    device: Device,
    _op: object,
    /,
    source: torch.Tensor,
    width: int,
    heads: int,
    qkv_weight: torch.Tensor,
    qkv_bias: torch.Tensor,
    given_weight: torch.Tensor,
    given_bias: torch.Tensor,
    use_gelu: bool,  # noqa: FBT001
    norm_first: bool,  # noqa: FBT001
    eps: float,
    norm_weight_1: torch.Tensor,
    norm_bias_1: torch.Tensor,
    norm_weight_2: torch.Tensor,
    norm_bias_2: torch.Tensor,
    weight_1: torch.Tensor,
    bias_1: torch.Tensor,
    weight_2: torch.Tensor,
    bias_2: torch.Tensor,
    mask: Optional = None,
    _mask_type: int | None = None,
) -> torch.Tensor:
    """Attend, then pass on, each with a norm before or behind and the sum taken in place."""
    x = F.layer_norm(source, (width,), norm_weight_1, norm_bias_1, eps) if norm_first else source
    x = _attend(device, x, x, x, heads, qkv_weight, qkv_bias, given_weight, given_bias, mask, need_weights=False)[0]
    x.add_(source)
    if not norm_first:
        x = F.layer_norm(x, (width,), norm_weight_1, norm_bias_1, eps)
    before = x
    if norm_first:
        x = F.layer_norm(x, (width,), norm_weight_2, norm_bias_2, eps)
    inner = torch.ops.aten._addmm_activation(bias_1, x.view(-1, width), weight_1.t(), use_gelu=use_gelu)
    inner = torch.addmm(bias_2, inner, weight_2.t())
    x = inner.view(x.shape)
    del inner
    x.add_(before)
    return x if norm_first else F.layer_norm(x, (width,), norm_weight_2, norm_bias_2, eps)


@kernel("_native_multi_head_attention")
def _attention(  # noqa: PLR0917  # torch's signature
    device: Device,
    _op: object,
    /,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    _width: int,
    heads: int,
    qkv_weight: torch.Tensor,
    qkv_bias: torch.Tensor,
    given_weight: torch.Tensor,
    given_bias: torch.Tensor,
    mask: Optional = None,
    need_weights: bool = True,  # noqa: FBT001, FBT002
    average: bool = True,  # noqa: FBT001, FBT002
    _mask_type: int | None = None,
) -> tuple[torch.Tensor, Optional]:
    output, weights = _attend(
        device,
        query,
        key,
        value,
        heads,
        qkv_weight,
        qkv_bias,
        given_weight,
        given_bias,
        mask,
        need_weights=need_weights,
    )
    if need_weights and average and weights is not None:
        weights = weights.sum(1)
        weights.div_(heads)
    return output, weights


def _attend(  # noqa: PLR0917  # torch's order
    device: Device,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    heads: int,
    qkv_weight: torch.Tensor,
    qkv_bias: torch.Tensor,
    given_weight: torch.Tensor,
    given_bias: torch.Tensor,
    mask: Optional,
    *,
    need_weights: bool,
) -> tuple[torch.Tensor, Optional]:
    """Use fused attention where there is neither a mask nor a wish for weights, else products and a softmax."""
    batch, length, width = query.shape
    each = width // heads
    itself = query.data_ptr() == key.data_ptr() == value.data_ptr()
    if itself and not need_weights and mask is None and each % 8 == 0 and query.dtype in _FUSED:
        projected = F.linear(query, qkv_weight, qkv_bias)  # its parts are kept until all is done
        q, k, v = (part.view(batch, -1, heads, each).transpose(1, 2) for part in projected.chunk(3, -1))
        found = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, -1, width)
        return F.linear(found, given_weight, given_bias), None
    projected = F.linear(query, qkv_weight)  # one product, or three that are put together in as many bytes
    size = (3, batch, heads, length, each)
    split = device.empty(size, contiguous_strides(size), query.dtype)
    del projected
    first, second = (part.reshape(batch * heads, length, each) for part in split[:2])
    scores = torch.bmm(first, second.transpose(1, 2)).view(batch, heads, length, length)
    if mask is not None:  # else the softmax is taken in place
        chosen = mask if mask.dtype == torch.bool else mask.to(torch.bool)
        scores = device.empty(scores.size(), scores.stride(), scores.dtype)
        del chosen
    weights = scores if need_weights else None
    del scores
    together = split[0].transpose(1, 2).contiguous().view(batch * length, width)
    output = torch.addmm(given_bias, together, given_weight.t()).view(batch, length, width)
    return output, weights
