"""Losses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memprof.simulate.kernels.reductions import reduce
from memprof.simulate.kernels.registry import kernel, plain, temporaries

if TYPE_CHECKING:
    import torch

    from memprof.simulate.device import Device

__all__: list[str] = []


@temporaries("nll_loss_backward", "nll_loss2d_backward")
def _nll_loss_backward(device: Device, _op: object, /, _outputs: Any, args: Any, _kwargs: Any) -> None:
    """Make the incoming gradient contiguous: an expanded scalar, under ``reduction='none'`` and a sum."""
    gradient = args[0]
    if not gradient.is_contiguous():
        device.temporary(gradient.numel() * gradient.element_size()).free()


@temporaries("mse_loss", "smooth_l1_loss", "huber_loss")
def _elementwise_loss(device: Device, _op: object, _output: Any, args: Any, kwargs: dict[str, Any]) -> None:
    """Write the loss of every element, then average or sum them (``ATen/native/BinaryOps`` and ``Loss.cpp``)."""
    reduction = kwargs.get("reduction", args[2] if len(args) > 2 else 1)
    if reduction:
        tensor = args[0]
        held = device.temporary(tensor.numel() * tensor.element_size())
        reduce(device, tensor.size(), tensor.stride(), None, 4)
        held.free()


plain("log_sigmoid_backward")


@kernel("log_sigmoid_forward")
def _log_sigmoid(device: Device, op: Any, /, tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Leave the buffer empty, which only the CPU's kernel fills (``log_sigmoid_forward_cuda``)."""
    meta = device.shapes(op, (tensor,), {})[0]
    return device.empty(meta.size(), meta.stride(), meta.dtype), device.empty((0,), (1,), meta.dtype)
