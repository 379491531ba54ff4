"""Normalization layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from memprof.simulate.kernels.reductions import reduce
from memprof.simulate.kernels.registry import kernel, plain, temporaries
from memprof.simulate.storages import contiguous_strides

if TYPE_CHECKING:
    from collections.abc import Callable

    from memprof.simulate.device import Device

__all__: list[str] = []

_MANY_ROWS = 64 * 1024
_ROWS_PER_PART = 32

plain(
    "native_batch_norm",
    "_native_batch_norm_legit",
    "native_batch_norm_backward",
    "batch_norm_backward",
    "_batch_norm_with_update",
)


@kernel("native_layer_norm", "_fused_rms_norm")
def _layer_norm(device: Device, op: object, /, source: torch.Tensor, *args: Any, **named: Any) -> Any:
    """Make the input contiguous first; so is the output (``layer_norm_cuda``)."""
    copy = device.temporary(_copy_bytes(source))
    output, *statistics = device.shapes(op, (source, *args), named)
    made = [device.empty(output.size(), contiguous_strides(output.size()), output.dtype)]
    made += [device.empty(each.size(), each.stride(), each.dtype) for each in statistics]
    copy.free()
    return tuple(made)


@kernel("native_layer_norm_backward", "_fused_rms_norm_backward")
def _layer_norm_backward(
    device: Device, op: object, /, gradient: torch.Tensor, source: torch.Tensor, shape: Any, *args: Any, **named: Any
) -> Any:
    """Make input and gradient contiguous; sum weight gradients over parts where there are very many short rows.

    ``layer_norm_backward_cuda`` and ``LaunchGammaBetaBackwardCUDAKernel`` in ``ATen/native/cuda/layer_norm_kernel.cu``.
    """
    copy = device.temporary(_copy_bytes(source))
    metas = device.shapes(op, (gradient, source, shape, *args), named)
    outputs = tuple(
        None if meta is None else device.empty(meta.size(), contiguous_strides(meta.size()), meta.dtype)
        for meta in metas
    )
    gradient_copy = device.temporary(_copy_bytes(gradient))
    _sum_parts(device, source, _normalized(shape), [each for each in outputs[1:] if each is not None])
    gradient_copy.free()
    copy.free()
    return outputs


def _copy_bytes(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_contiguous() else tensor.numel() * tensor.element_size()


def _sum_parts(device: Device, source: torch.Tensor, length: int, wanted: list[torch.Tensor]) -> None:
    rows = source.numel() // max(length, 1)
    if not wanted or rows <= _MANY_ROWS or length // _ROWS_PER_PART >= device.card.multiprocessors // 2:
        return
    parts = -(-rows // _ROWS_PER_PART)
    item = wanted[0].element_size()
    held = [device.temporary(parts * length * item) for _ in wanted]
    for _ in wanted:
        total = device.temporary(length * item)
        reduce(device, (parts, length), (length, 1), (0,), 4)
        total.free()
    for temporary in held:
        temporary.free()


def _normalized(shape: Any) -> int:
    length = 1
    for size in shape:
        length *= size
    return length


@temporaries("native_group_norm")
def _group_norm(device: Device, _op: object, _outputs: Any, args: Any, _kwargs: Any) -> None:
    """Fold mean, deviation and weights into a scale and a shift per channel, in float32."""
    samples, channels = args[3], args[4]
    for temporary in [device.temporary(samples * channels * 4) for _ in range(2)]:
        temporary.free()


@temporaries("native_group_norm_backward")
def _group_norm_backward(device: Device, _op: object, _outputs: Any, args: Any, _kwargs: Any) -> None:
    """Sum over each channel, then over each group, in float32 (``GroupNormBackwardKernelImplInternal``)."""
    samples, channels, groups = args[5], args[6], args[8]
    by_channel, by_group = samples * channels * 4, samples * groups * 4
    sizes = (by_channel, by_channel, by_group, by_group, by_channel)
    held = [device.temporary(nbytes) for nbytes in sizes]
    for place in (2, 3, 4, 1, 0):
        held[place].free()


@temporaries("cudnn_batch_norm")
def _cudnn_batch_norm(device: Device, _op: object, _outputs: Any, args: Any, _kwargs: Any) -> None:
    """Take partial sums in channels-last training; none in the usual layout."""
    source, training = args[0], args[5]
    if training:
        _batch_norm_workspace(device, source, _ROWS_FORWARD, lambda parts: parts + 1, _FORWARD_BYTES)


@temporaries("cudnn_batch_norm_backward")
def _cudnn_batch_norm_backward(device: Device, _op: object, _outputs: Any, args: Any, _kwargs: Any) -> None:
    _batch_norm_workspace(device, args[0], _ROWS_BACKWARD, lambda _parts: 1, _BACKWARD_BYTES)


_ROWS_FORWARD, _FORWARD_BYTES = 160, 1072
_ROWS_BACKWARD, _BACKWARD_BYTES = 96, 1056
"""Rows that a thread block sums up, and bytes besides the sums: fitted to 24 measured sizes in float16 (H200, cuDNN of
torch 2.11+cu130), all of which they give."""
_CHANNELS = 64


def _batch_norm_workspace(
    device: Device, source: torch.Tensor, rows_of_part: int, counters: Callable[[int], int], more: int
) -> None:
    """Take two sums in float32 for each channel and part of the rows, and counters for each 64 channels."""
    if source.is_contiguous() or not source.is_contiguous(memory_format=torch.channels_last):
        return
    channels = source.size(1)
    parts = -(-source.numel() // channels // rows_of_part)
    nbytes = 8 * parts * channels + 4 * counters(parts) * -(-channels // _CHANNELS) + more
    if source.dtype != torch.float16 or channels % _CHANNELS:
        device.caveats.add("library", "cuDNN's workspace for batch normalization is an estimate", nbytes)
    device.temporary(nbytes).free()
