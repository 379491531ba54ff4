"""Convolutions through cuDNN."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memprof.simulate.kernels.registry import kernel
from memprof.simulate.storages import contiguous_strides

if TYPE_CHECKING:
    import torch

    from memprof.simulate.device import Device

__all__: list[str] = []


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


@kernel("convolution")
def _convolution(device: Device, op: Any, /, *args: Any) -> torch.Tensor:
    shape = device.shapes(op, args, {})
    source = args[0]
    held = None if source.is_contiguous() else device.temporary(_bytes(source))
    output = device.empty(shape.size(), contiguous_strides(shape.size()), shape.dtype)
    if held is not None:
        held.free()
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
    mask = args[-1]
    held = [device.temporary(_bytes(tensor)) for tensor in (source, gradient) if not tensor.is_contiguous()]
    workspace = _bytes(gradient) + _bytes(source) + 32
    results: list[torch.Tensor | None] = []
    for wanted, tensor in zip(mask, (source, weight), strict=False):
        if wanted:
            results.append(device.empty(tensor.size(), contiguous_strides(tensor.size()), tensor.dtype))
            device.temporary(workspace).free()
        else:
            results.append(None)
    bias = device.empty((weight.size(0),), (1,), weight.dtype) if mask[2] else None
    for temporary in reversed(held):
        temporary.free()
    return results[0], results[1], bias
