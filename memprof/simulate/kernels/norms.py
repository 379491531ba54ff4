"""Normalization layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memprof.simulate.kernels.reductions import reduce
from memprof.simulate.kernels.registry import kernel, plain, temporaries
from memprof.simulate.storages import contiguous_strides

if TYPE_CHECKING:
    import torch

    from memprof.simulate.device import Device

__all__: list[str] = []

_MANY_ROWS = 64 * 1024
_ROWS_PER_PART = 32

plain(
    "_native_batch_norm_legit",
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
    """Fold mean, deviation and weights, where there are some, into a scale and a shift per channel, in float32."""
    if args[1] is None and args[2] is None:
        return
    samples, channels = args[3], args[4]
    for temporary in [device.temporary(samples * channels * 4) for _ in range(2)]:
        temporary.free()


@temporaries("native_group_norm_backward")
def _group_norm_backward(device: Device, _op: object, _outputs: Any, args: Any, _kwargs: Any) -> None:
    """Sum over each channel, then over each group, in float32 (``GroupNormBackwardKernelImplInternal``)."""
    samples, channels, groups = args[5], args[6], args[8]
    by_channel, by_group = samples * channels * 4, samples * groups * 4
    sizes = (by_channel, by_channel, by_group, by_group, by_channel if args[4] is not None else 0)
    held = [device.temporary(nbytes) for nbytes in sizes]
    for place in (2, 3, 4, 1, 0):
        held[place].free()
