"""Normalization layers. Small buffers of cuDNN's batch normalization in channels-last layout are left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memprof.simulate.kernels.reductions import reduce
from memprof.simulate.kernels.registry import plain, temporaries

if TYPE_CHECKING:
    import torch

    from memprof.simulate.device import Device

__all__: list[str] = []

_MANY_ROWS = 64 * 1024
_ROWS_PER_PART = 32

plain(
    "native_layer_norm",
    "_fused_rms_norm",
    "native_batch_norm",
    "_native_batch_norm_legit",
    "native_batch_norm_backward",
    "cudnn_batch_norm",
    "cudnn_batch_norm_backward",
    "batch_norm_backward",
    "_batch_norm_with_update",
)


@temporaries("native_layer_norm_backward", "_fused_rms_norm_backward")
def _layer_norm_backward(device: Device, _op: object, outputs: Any, args: Any, _kwargs: Any) -> None:
    """Sum weight gradients over parts of the rows where there are very many short ones.

    ``LaunchGammaBetaBackwardCUDAKernel`` in ``ATen/native/cuda/layer_norm_kernel.cu``.
    """
    source = args[1]
    length = _normalized(args[2])
    rows = source.numel() // max(length, 1)
    wanted: list[torch.Tensor] = [tensor for tensor in outputs[1:] if tensor is not None]
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
