"""Losses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from memprof.simulate.kernels.reductions import reduce
from memprof.simulate.kernels.registry import kernel, plain, temporaries
from memprof.simulate.storages import contiguous_strides

if TYPE_CHECKING:
    from memprof.simulate.device import Device

__all__: list[str] = []


@temporaries("nll_loss_backward", "nll_loss2d_backward")
def _nll_loss_backward(device: Device, _op: object, /, _outputs: Any, args: Any, _kwargs: Any) -> None:
    """Make the incoming gradient contiguous: an expanded scalar, under ``reduction='none'`` and a sum."""
    gradient = args[0]
    if not gradient.is_contiguous():
        device.temporary(gradient.numel() * gradient.element_size()).free()


@temporaries("mse_loss", "smooth_l1_loss")
def _elementwise_loss(device: Device, _op: object, _output: Any, args: Any, kwargs: dict[str, Any]) -> None:
    """Write the loss of every element, then average or sum them (``ATen/native/BinaryOps`` and ``Loss.cpp``)."""
    if kwargs.get("reduction", args[2] if len(args) > 2 else 1):
        tensor = args[0]
        held = device.temporary(tensor.numel() * tensor.element_size())
        reduce(device, tensor.size(), tensor.stride(), None, 4)
        held.free()


@kernel("mse_loss_backward")
def _mse_backward(device: Device, op: Any, /, *args: Any, **kwargs: Any) -> torch.Tensor:
    """Write into a contiguous tensor, whatever the input's layout is (``mse_loss_backward``, ``Loss.cpp``)."""
    meta = device.shapes(op, args, kwargs)
    return device.empty(meta.size(), contiguous_strides(meta.size()), meta.dtype)


@kernel("nll_loss2d_forward")
def _nll_loss2d(device: Device, op: Any, /, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Make the total weight first (``nll_loss2d_forward_cuda``)."""
    output, total = device.shapes(op, args, kwargs)
    weight = device.empty(total.size(), total.stride(), total.dtype)
    return device.empty(output.size(), output.stride(), output.dtype), weight


@kernel("binary_cross_entropy")
def _cross_entropy(device: Device, op: Any, /, *args: Any, **kwargs: Any) -> torch.Tensor:
    """Keep what the loss of every element took for the one number that they are reduced to.

    ``binary_cross_entropy_out_cuda`` in ``ATen/native/cuda/Loss.cu`` makes the tensor smaller, its storage stays.
    """
    source = args[0]
    meta = torch.empty_like(torch.empty_strided(source.size(), source.stride(), device="meta"))
    loss = device.empty(meta.size(), meta.stride(), source.dtype)
    reduction = kwargs.get("reduction", args[3] if len(args) > 3 else 1)
    if reduction:
        final = device.shapes(op, args, kwargs)
        reduced = device.temporary(final.element_size())
        reduce(device, source.size(), source.stride(), None, 4)
        device.resize(loss, final.size(), final.stride())
        reduced.free()
    return loss


@kernel("huber_loss")
def _huber_loss(
    _device: Device, _op: object, /, tensor: torch.Tensor, target: torch.Tensor, reduction: int = 1, _delta: float = 1.0
) -> torch.Tensor:
    """Write the loss of every element, then the output (``apply_loss_reduction``, ``ATen/native/Loss.cpp``)."""
    losses = tensor.sub(target)
    return losses.mean() if reduction == 1 else losses.sum() if reduction else losses


@temporaries("multi_margin_loss")
def _multi_margin_loss(device: Device, _op: object, output: torch.Tensor, args: Any, _kwargs: Any) -> None:
    """Sum the losses of the samples (``multi_margin_loss_cuda_out``, ``ATen/native/cuda/MultiMarginLoss.cu``)."""
    if args[0].dim() > 1 and not output.dim():
        samples = args[0].size(0)
        held = device.temporary(samples * output.element_size())
        reduce(device, (samples,), (1,), (0,), 4)
        held.free()


@kernel("multi_margin_loss_backward")
def _multi_margin_backward(
    device: Device, _op: object, /, _gradient: torch.Tensor, tensor: torch.Tensor, *_args: Any, **_named: Any
) -> torch.Tensor:
    return device.empty(tensor.size(), contiguous_strides(tensor.size()), tensor.dtype)


plain("log_sigmoid_backward")


@kernel("log_sigmoid_forward")
def _log_sigmoid(device: Device, op: Any, /, tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Leave the buffer empty, which only the CPU's kernel fills (``log_sigmoid_forward_cuda``)."""
    meta = device.shapes(op, (tensor,), {})[0]
    return device.empty(meta.size(), meta.stride(), meta.dtype), device.empty((0,), (1,), meta.dtype)
