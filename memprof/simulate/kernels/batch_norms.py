"""Batch normalization where channels come last: cuDNN's, and torch's own for what cuDNN does not take (bfloat16).

In the usual layout neither takes more than its outputs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from memprof.simulate.kernels.registry import kernel, temporaries
from memprof.simulate.storages import contiguous_strides

if TYPE_CHECKING:
    from memprof.simulate.device import Device
    from memprof.simulate.memory import Temporary

__all__: list[str] = []

_CHANNELS = 64
_FORWARD_ROWS = {torch.float32: 64, torch.float16: 160}
_BACKWARD_ROWS = 96
"""Rows that a thread block of cuDNN sums up, for each 64 channels: fitted to 216 measured sizes (H200, cuDNN of torch
2.11+cu130), all of which they give."""


def _channels_last(tensor: torch.Tensor) -> bool:
    """Tell whether torch takes its kernels for channels-last (``batch_norm_choose_impl``)."""
    if tensor.is_contiguous():
        return tensor.stride(1) == 1
    return tensor.is_contiguous(memory_format=torch.channels_last) if tensor.dim() == 4 else False


def _rows(tensor: torch.Tensor) -> int:
    return tensor.numel() // max(tensor.size(1), 1)


def _parts(tensor: torch.Tensor, rows: int) -> tuple[int, int]:
    """Return how many parts the rows are summed in, and the bytes of two float32 sums for each part and channel."""
    parts = -(-_rows(tensor) // rows)
    groups = -(-tensor.size(1) // _CHANNELS)
    return parts, 8 * parts * groups * _CHANNELS


@temporaries("cudnn_batch_norm")
def _cudnn(device: Device, _op: object, _outputs: Any, args: Any, _kwargs: Any) -> None:
    source, training = args[0], args[5]
    rows = _FORWARD_ROWS.get(source.dtype)
    if training and rows is not None and _channels_last(source):
        parts, sums = _parts(source, rows)
        device.temporary(sums + 4 * (parts + 1) * -(-source.size(1) // _CHANNELS) + 1072).free()


@temporaries("cudnn_batch_norm_backward")
def _cudnn_backward(device: Device, _op: object, _outputs: Any, args: Any, _kwargs: Any) -> None:
    source = args[0]
    if source.dtype in _FORWARD_ROWS and _channels_last(source):
        _, sums = _parts(source, _BACKWARD_ROWS)
        device.temporary(sums + 4 * -(-source.size(1) // _CHANNELS) + 1056).free()


def _launch(rows: int, channels: int) -> tuple[int, int]:
    """Return the blocks of threads along channels and rows (``flexible_launch_configs``, ``Normalization.cuh``)."""

    def power(number: int) -> int:
        return 1 << max(number.bit_length() - 1, 0)

    wide = min(power(channels), 32)
    high = min(power(-(-rows // 16)), 512 // wide)
    if wide * high != 512:
        wide = min(power(channels), 512 // high)
    across, along = -(-channels // wide), min(-(-rows // (high * 16)), 128)
    return across, along if along >= 8 else 1


def _stage(device: Device, source: torch.Tensor, values: int) -> None:
    """Take what blocks of threads exchange: float32 values of each, and a counter."""
    across, along = _launch(_rows(source), source.size(1))
    if along > 1:
        held = [device.temporary(4 * values * source.size(1) * along), device.temporary(4 * across)]
        for each in reversed(held):
            each.free()


@temporaries("native_batch_norm")
def _native(device: Device, _op: object, _outputs: Any, args: Any, _kwargs: Any) -> None:
    """Add up mean and deviation of parts (``batch_norm_stats_channels_last_cuda_template``)."""
    source, training = args[0], args[5]
    if training and _channels_last(source):
        _stage(device, source, 4)


@kernel("native_batch_norm_backward")
def _native_backward(device: Device, op: object, /, *args: Any, **named: Any) -> Any:
    """Sum first, then write the gradient (``batch_norm_backward_cuda``); one kernel does both where it can.

    In evaluation the gradient of the input is contiguous, whatever the input's layout is.
    """
    source, train, mask = args[1], args[7], args[-1]
    metas = device.shapes(op, args, named)

    def make(place: int) -> torch.Tensor | None:
        meta = metas[place]
        return device.empty(meta.size(), meta.stride(), meta.dtype) if mask[place] and meta is not None else None

    reduced = train or mask[1] or mask[2]
    if reduced and mask[0] and not _channels_last(source):
        return tuple(make(place) for place in range(3))
    held = _statistics(device, args, reduced=reduced)
    weight = bias = gradient = None
    if reduced:
        held += [device.temporary(4 * source.size(1)) for _ in range(2 if mask[0] else 0)]
        weight, bias = make(1), make(2)
        if _channels_last(source):
            _stage(device, source, 2)
    if mask[0]:
        size = source.size()
        gradient = make(0) if train else device.empty(size, contiguous_strides(size), args[0].dtype)
    for each in reversed(held):
        each.free()
    return gradient, weight, bias


def _statistics(device: Device, args: Any, *, reduced: bool) -> list[Temporary]:
    """Take mean and deviation in float32, where the pass forward has not kept them."""
    source, running_mean, mean, deviation = args[1], args[3], args[5], args[6]
    half = source.dtype in (torch.float16, torch.bfloat16)
    held = []
    if not mean.numel() and reduced and half and running_mean.dtype != torch.float32:
        held.append(device.temporary(4 * source.size(1)))
    if not deviation.numel():
        held.append(device.temporary(source.size(1) * (4 if half else source.element_size())))
    return held
