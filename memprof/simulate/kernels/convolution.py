"""Convolutions through cuDNN.

Which of its engines cuDNN takes, and what workspace that wants, is its own heuristics'. What is here fits most of what
was measured on an H200 (cuDNN 9.19): in the usual layout (channels first) cuDNN rewrites its operands into
channels-last copies; in channels-last there is nothing to rewrite. Every workspace is a caveat.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from memprof.simulate.kernels.registry import kernel
from memprof.simulate.storages import contiguous_strides

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memprof.simulate.device import Device

__all__: list[str] = []

_HALF = (torch.float16, torch.bfloat16)
_ALIGNED = 8
"""Channels in half precision are padded to a multiple of it."""
_HEADER = 16
"""Bytes that a workspace with rewritten operands has besides them, per group."""


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _format(*tensors: torch.Tensor) -> torch.memory_format:
    """Return the layout that cuDNN computes in (``cudnn_conv_suggest_memory_format``)."""
    for tensor in tensors:
        if tensor.dim() == 4 and not tensor.is_contiguous() and tensor.is_contiguous(memory_format=torch.channels_last):
            return torch.channels_last
    return torch.contiguous_format


def _workspace(source: torch.Tensor, weight: torch.Tensor, output: Sequence[int], *, groups: int, strided: bool) -> int:
    """Return the bytes of channels-last copies of input, weight and output; 0 where none are needed."""
    item = source.element_size()
    pointwise = math.prod(weight.shape[2:]) == 1
    grouped = groups > 1
    whole = math.prod(source.shape[2:]) % _ALIGNED == 0
    if groups == source.size(1) > 1 or (pointwise and not strided and whole and not grouped):
        return 0
    channels = source.size(1)
    padded = -(-channels // _ALIGNED) * _ALIGNED if source.dtype in _HALF and not grouped else channels
    copies = (source.numel() + (0 if pointwise else weight.numel())) * padded // channels
    return (copies + math.prod(output)) * item + _HEADER * (2 if grouped else 1)


def _take(device: Device, name: str, nbytes: int) -> None:
    if nbytes:
        device.caveats.add("library", f"the workspace of cuDNN for aten::{name} is an estimate", nbytes)
        device.temporary(nbytes).free()


def _strided(stride: Sequence[int]) -> bool:
    return any(step != 1 for step in stride)


@kernel("convolution")
def _convolution(device: Device, op: Any, /, *args: Any) -> torch.Tensor:
    source, weight, _bias, stride, *_, transposed, _padding, groups = args
    layout = _format(source, weight)
    shape = device.shapes(op, args, {}).size()
    copies = [
        device.temporary(_bytes(tensor))
        for tensor in (source, weight)
        if not tensor.is_contiguous(memory_format=layout)
    ]
    output = _output(device, shape, source.dtype, layout)
    half = source.dtype in _HALF
    if not transposed and layout is torch.contiguous_format and not (half and groups > 1):
        nbytes = _workspace(source, weight, shape, groups=groups, strided=_strided(stride))
        _take(device, "convolution", nbytes)
    for temporary in reversed(copies):
        temporary.free()
    return output


@kernel("convolution_backward")
def _convolution_backward(
    device: Device,
    _op: Any,
    /,
    gradient: torch.Tensor,
    source: torch.Tensor,
    weight: torch.Tensor,
    *args: Any,
) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
    stride, groups, mask = args[1], args[-2], args[-1]
    layout = _format(source, weight)
    copies = [
        device.temporary(_bytes(tensor))
        for tensor in (source, gradient)
        if not tensor.is_contiguous(memory_format=layout)
    ]
    workspace = 0
    if layout is torch.contiguous_format and not args[4]:
        workspace = _workspace(source, weight, gradient.shape, groups=groups, strided=_strided(stride))
        if groups > 1 and workspace and math.prod(weight.shape[2:]) > 1:
            workspace -= _bytes(weight)
    results: list[torch.Tensor | None] = []
    for wanted, tensor in zip(mask, (source, weight), strict=False):
        if wanted:
            results.append(_output(device, tensor.size(), tensor.dtype, layout))
            _take(device, "convolution_backward", workspace)
        else:
            results.append(None)
    bias = device.empty((weight.size(0),), (1,), weight.dtype) if mask[2] else None
    for temporary in reversed(copies):
        temporary.free()
    return results[0], results[1], bias


def _output(device: Device, size: Sequence[int], dtype: torch.dtype, layout: torch.memory_format) -> torch.Tensor:
    if layout is torch.channels_last:
        meta = torch.empty(size, dtype=dtype, device="meta", memory_format=layout)
        return device.empty(size, meta.stride(), dtype)
    return device.empty(size, contiguous_strides(size), dtype)
