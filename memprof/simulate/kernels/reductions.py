"""Reductions, scans and sorts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from memprof.simulate.kernels.registry import plain, temporaries

if TYPE_CHECKING:
    from memprof.simulate.device import Device

__all__: list[str] = []

_HALF = (torch.float16, torch.bfloat16)

plain("amax", "amin", "all", "any", "argmax", "argmin", "max", "min", "std", "var", "var_mean", "cumsum", "logsumexp")


@temporaries("sum", "mean", "prod", "nansum")
def _reduce(device: Device, _op: object, /, outputs: Any, args: Any, _kwargs: Any) -> None:
    """Cast an input of another dtype than the output first, except half precision summed in float32.

    ``make_reduction_from_out_ty`` in ``ATen/native/ReduceOpsUtils.h``.
    """
    output = outputs[0] if isinstance(outputs, (list, tuple)) else outputs
    tensor = args[0]
    if tensor.dtype != output.dtype and not (tensor.dtype in _HALF and output.dtype == torch.float32):
        device.temporary(tensor.numel() * output.element_size()).free()


@temporaries("_softmax_backward_data")
def _softmax_backward(device: Device, _op: object, _output: Any, args: Any, _kwargs: Any) -> None:
    """Multiply gradient and output first (``softmax_backward_cuda_out``, ``ATen/native/cuda/SoftMax.cu``)."""
    gradient = args[0]
    device.temporary(gradient.numel() * gradient.element_size()).free()
