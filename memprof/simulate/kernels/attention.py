"""Scaled dot-product attention: what each fused kernel allocates.

Which kernel runs is decided in `memprof.simulate.sdpa`. Sources: ``ATen/native/transformers/cuda/attention.cu`` and
``attention_backward.cu``, ``flash_attn/flash_api.cpp``, ``ATen/native/cudnn/MHA.cpp``; sizes of cuDNN's workspaces are
measured (H200, cuDNN of torch 2.11+cu130).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from memprof.simulate.kernels.registry import kernel
from memprof.simulate.storages import contiguous_strides

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memprof.simulate.cards import Card
    from memprof.simulate.device import Device

    Optional = torch.Tensor | None

__all__ = ["cudnn_forward_workspace"]


def _contiguous(device: Device, size: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    return device.empty(size, contiguous_strides(size), dtype)


def _like(device: Device, tensor: torch.Tensor) -> torch.Tensor:
    """Allocate what ``empty_like`` gives."""
    meta = torch.empty_like(torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="meta"))
    return device.empty(meta.size(), meta.stride(), tensor.dtype)


def _round(value: int, multiple: int) -> int:
    return (value + multiple - 1) // multiple * multiple


@kernel("_scaled_dot_product_cudnn_attention")
def _cudnn(
    device: Device,
    _op: object,
    /,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    _bias: Optional,
    compute_logsumexp: bool,  # noqa: FBT001  # torch's signature
    *_options: Any,
    **_named: Any,
) -> tuple[Any, ...]:
    batch, heads, rows, _ = query.shape
    seed = device.empty((), (), torch.int64)
    offset = device.empty((), (), torch.int64)
    output = _matching_layout(device, query, (batch, heads, rows, value.size(-1)))
    logsumexp = _contiguous(device, (batch, heads, rows, 1), torch.float32) if compute_logsumexp else None
    device.temporary(cudnn_forward_workspace(device.card, query, key, value)).free()
    return output, logsumexp, None, None, rows, key.size(2), seed, offset, None


_CUDNN_FORWARD = 256
"""Workspace bytes of the forward graph of more than one row."""


def cudnn_forward_workspace(card: Card, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> int:
    """Return the workspace of the forward graph.

    A single row whose keys are worked on in parts wants room for each part's rows and, twice, their sums, in float32.
    How many parts there are, a power of two, is a rule fitted to the recorded calls of single rows.
    """
    batch, heads, rows, _ = query.shape
    if rows > 1:
        return _CUDNN_FORWARD
    if key.size(2) <= _CUDNN_WHOLE:
        return 0
    most = min(2 * card.multiprocessors // (batch * key.size(1)), key.size(2) // 128)
    parts = 1 << max(most.bit_length() - 1, 0)
    if parts < _CUDNN_PARTS:
        return 0
    sums = parts * batch * heads * 4
    return _round(sums * value.size(-1), 128) + 2 * _round(sums, 128) + 128


_CUDNN_WHOLE = 512
"""Keys up to which a single row is never worked on in parts: recorded with 512 keys, and in parts with 700."""
_CUDNN_PARTS = 4
"""Parts that are the least recorded."""


@kernel("_scaled_dot_product_cudnn_attention_backward")
def _cudnn_backward(
    device: Device,
    _op: object,
    /,
    gradient: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *_others: Any,
    **_named: Any,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    batch, heads, rows, size = query.shape
    outputs = (
        _matching_layout(device, query, tuple(query.shape)),
        _matching_layout(device, key, tuple(key.shape)),
        _matching_layout(device, value, tuple(value.shape)),
    )
    # Workspace of the backward graph: dQ accumulated in float32, a row sum in float32, 256 bytes; dK and dV of every
    # query head where several share a key head.
    workspace = batch * heads * rows * (size * 4 + 4) + 256
    if key.size(1) != heads:
        workspace += batch * heads * key.size(2) * (size + value.size(-1)) * key.element_size()
    # A gradient whose last dimension is not dense (that of a sum) is copied.
    dense = gradient.size(-1) == 1 or gradient.stride(-1) == 1
    copy = device.temporary(0 if dense else gradient.numel() * gradient.element_size())
    device.temporary(workspace).free()
    copy.free()
    return outputs


def _matching_layout(device: Device, tensor: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """Allocate `shape` with the order of dimensions of `tensor` (``alloc_with_matching_layout``)."""
    order = sorted(range(tensor.dim()), key=lambda dim: (tensor.stride(dim), tensor.size(dim)))
    strides, step = [0] * tensor.dim(), 1
    for dim in order:
        strides[dim] = step
        step *= shape[dim]
    return device.empty(shape, strides, tensor.dtype)


@kernel("_scaled_dot_product_flash_attention")
def _flash(
    device: Device,
    _op: object,
    /,
    query: torch.Tensor,
    key: torch.Tensor,
    _value: torch.Tensor,
    dropout: float = 0.0,
    *_options: Any,
    **_named: Any,
) -> tuple[Any, ...]:
    batch, heads, rows, size = query.shape
    output = _like(device, query.transpose(1, 2)).transpose(1, 2)
    logsumexp = _contiguous(device, (batch, heads, rows), torch.float32)
    split = None if dropout else _flash_split(device, query, key)
    held = []
    if split is not None:
        splits, split_heads, split_rows = split
        accumulated = splits * batch * split_heads * split_rows * 4
        held = [device.temporary(accumulated), device.temporary(accumulated * _flash_size(size))]
    seed = device.empty((2,), (1,), torch.uint64)
    unused = device.empty((), (), torch.uint64)
    mask = device.empty((0,), (1,), query.dtype)
    if dropout:
        device.temporary(16).free()
    for temporary in reversed(held):
        temporary.free()
    return output, logsumexp, None, None, rows, key.size(2), seed, unused, mask


def _flash_size(size: int) -> int:
    """Return the size of a head that the kernels compute with (``head_size_rounded``, ``flash_api.cpp``)."""
    return _round(size, 32 if size <= 128 else 64)


def _flash_split(device: Device, query: torch.Tensor, key: torch.Tensor) -> tuple[int, int, int] | None:
    """Return in how many parts keys are worked on (with heads and rows), None for one (``set_params_splitkv``)."""
    batch, heads, rows, size = query.shape
    if rows == 1 and heads > key.size(1):
        rows, heads = heads // key.size(1), key.size(1)  # groups become rows (seqlenq_ngroups_swapped)
    columns = 256 if size <= 64 else 128 if size <= 128 else 64
    blocks = -(-key.size(2) // columns)
    tasks = batch * heads * -(-rows // 64)
    processors = 2 * device.card.multiprocessors
    splits = _best_splits(tasks, processors, blocks)
    return (splits, heads, rows) if splits > 1 else None


def _best_splits(tasks: int, processors: int, blocks: int) -> int:
    """Return the least number of splits that fills the multiprocessors nearly best (``num_splits_heuristic``)."""
    if tasks >= 0.8 * processors:
        return 1
    efficiency = {}
    for splits in range(1, min(128, processors, blocks) + 1):
        if splits == 1 or -(-blocks // splits) != -(-blocks // (splits - 1)):
            waves = tasks * splits / processors
            efficiency[splits] = waves / math.ceil(waves)
    best = max(efficiency.values())
    return next(splits for splits, value in efficiency.items() if value >= 0.85 * best)


@kernel("_scaled_dot_product_flash_attention_backward")
def _flash_backward(  # noqa: PLR0917  # torch's signature
    device: Device,
    _op: object,
    /,
    gradient: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    output: torch.Tensor,
    *_others: Any,
    **_named: Any,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    batch, heads, rows, size = query.shape
    columns = key.size(2)
    # The kernel wants (batch, row, head, size) for the gradient and the output.
    copies = [
        device.temporary(t.numel() * t.element_size())
        for t in (gradient, output)
        if not t.transpose(1, 2).is_contiguous()
    ]
    outputs = tuple(_like(device, tensor.transpose(1, 2)).transpose(1, 2) for tensor in (query, key, value))
    rounded_rows = _round(rows, 128)
    held = [
        device.temporary(batch * heads * rounded_rows * 4),  # softmax_d
        device.temporary(batch * rounded_rows * heads * _flash_size(size) * 4),  # dq_accum
    ]
    if key.size(1) != heads:
        # dk_expanded and dv_expanded, summed over the groups afterwards
        held += [device.temporary(batch * columns * heads * size * query.element_size()) for _ in range(2)]
    for temporary in reversed(copies + held):
        temporary.free()
    return outputs[0], outputs[1], outputs[2]


@kernel("_scaled_dot_product_efficient_attention")
def _efficient(
    device: Device,
    _op: object,
    /,
    query: torch.Tensor,
    _key: torch.Tensor,
    value: torch.Tensor,
    _bias: Optional,
    compute_logsumexp: bool,  # noqa: FBT001  # torch's signature
    *_options: Any,
    **_named: Any,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    batch, heads, rows, size = query.shape
    output = _contiguous(device, (batch, rows, heads, value.size(-1)), query.dtype).transpose(1, 2)
    logsumexp = _contiguous(device, (batch, heads, _round(rows, 32) if compute_logsumexp else 0), torch.float32)
    if query.dtype != torch.float32 and max(size, value.size(-1)) > 128:
        device.temporary(output.numel() * 4).free()  # accumulated in float32
    # Seed and offset of the random numbers stay on the host.
    return output, logsumexp, torch.zeros((), dtype=torch.int64), torch.zeros((), dtype=torch.int64)


@kernel("_scaled_dot_product_efficient_attention_backward")
def _efficient_backward(  # noqa: PLR0917  # torch's signature
    device: Device,
    _op: object,
    /,
    gradient: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    bias: Optional,
    output: torch.Tensor,
    _logsumexp: torch.Tensor,
    _seed: torch.Tensor,
    _offset: torch.Tensor,
    _dropout: float,
    wanted: Sequence[bool],
    *_options: Any,
    **_named: Any,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, Optional]:
    # The kernel wants (batch, row, head, size) for the gradient.
    whole = gradient.transpose(1, 2).is_contiguous()
    held = [] if whole else [device.temporary(gradient.numel() * gradient.element_size())]
    outputs = [
        _contiguous(device, (t.size(0), t.size(2), t.size(1), t.size(3)), t.dtype).transpose(1, 2)
        for t in (query, key, value)
    ]
    bias_gradient = _efficient_bias_gradient(device, bias) if bias is not None and wanted[3] else None
    batch, heads, rows, _ = query.shape
    if query.dtype == torch.float32:
        # The row sums of gradient times output are computed by ATen: the product, the sums, their transpose.
        product = device.temporary(output.numel() * 4)
        sums = device.temporary(batch * heads * rows * 4)
        if rows > 1:
            held.append(device.temporary(batch * heads * rows * 4))
            sums.free()
        else:
            held.append(sums)
        product.free()
    else:
        held.append(device.temporary(batch * heads * rows * 4))
    held.append(device.temporary(_efficient_workspace(query, key, value)))
    for temporary in held:
        temporary.free()
    return outputs[0], outputs[1], outputs[2], bias_gradient


def _efficient_bias_gradient(device: Device, bias: torch.Tensor) -> torch.Tensor:
    """Allocate the gradient of a mask, its rows padded to a multiple of 16."""
    columns = bias.size(-1)
    return _contiguous(device, (*bias.shape[:-1], _round(columns, 16)), bias.dtype)[..., :columns]


def _efficient_workspace(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> int:
    """Return the bytes in which gradients are accumulated (``workspace_size`` of ``kernel_backward.h``).

    Block sizes are those of the kernels for compute capability 8.0 and up.
    """
    batch, heads, rows, size = query.shape
    value_size = value.size(-1)
    half = query.dtype != torch.float32
    widest = max(size, value_size)
    block_rows, block_columns = (64, 64) if widest <= 64 else (128, 128 if half and widest <= 128 else 64)
    blocks = -(-rows // block_rows) * -(-size // block_columns)
    nbytes = blocks * (16 + block_rows * block_columns * 4)
    if half and widest > 128:
        columns = _round(key.size(2), block_columns)
        nbytes += columns * (_round(size, block_rows) + _round(value_size, block_rows)) * 4
    return batch * heads * nbytes
