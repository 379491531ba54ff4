"""Losses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memprof.simulate.kernels.reductions import reduce
from memprof.simulate.kernels.registry import temporaries

if TYPE_CHECKING:
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
