"""Multi-tensor ops, which optimizers and gradient clipping are made of.

On CUDA one kernel runs over whole lists: it makes its outputs in order and nothing else. Without a CUDA registration
torch would loop over single tensors, whose kernels can take temporaries of their own.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from memprof.simulate.kernels.registry import kernel, plain

if TYPE_CHECKING:
    from memprof.simulate.device import Device

__all__: list[str] = []

_CHUNK = 65536
"""Elements that a thread block works on (``kChunkSize``, ``ATen/native/cuda/MultiTensorApply.cuh``)."""
_UNARY = (
    *("abs", "acos", "asin", "atan", "ceil", "cos", "cosh", "erf", "erfc", "exp", "expm1", "floor", "frac", "lgamma"),
    *("log", "log10", "log1p", "log2", "neg", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh"),
    *("sqrt", "tan", "tanh", "trunc"),
)
_BINARY = ("add", "sub", "mul", "div", "clamp_min", "clamp_max", "maximum", "minimum", "pow")
_SCALES = {"add": (".Tensor",), "mul": (".Tensor",), "div": (".Tensor",)}
_TERNARY = ("addcmul", "addcdiv")
_PLAIN_OPS = (
    *(f"_foreach_{name}" for name in _UNARY),
    *(
        f"_foreach_{name}{overload}"
        for name in _BINARY
        for overload in (".Scalar", ".List", ".ScalarList", *_SCALES.get(name, ()))
    ),
    *(f"_foreach_{name}.{overload}" for name in _TERNARY for overload in ("Scalar", "ScalarList", "Tensor")),
    *(f"_foreach_lerp.{overload}" for overload in ("List", "Scalar", "ScalarList")),
)

plain("_fused_adamw_", "_fused_adam_", "_fused_sgd_", "_fused_adagrad_", "_amp_update_scale_", "_foreach_copy_")
plain(*(f"_foreach_{name}_" for name in (*_UNARY, *_BINARY, *_TERNARY, "lerp", "zero")))


def _like(device: Device, tensor: torch.Tensor) -> torch.Tensor:
    meta = torch.empty_like(torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="meta"))
    return device.empty(meta.size(), meta.stride(), tensor.dtype)


@kernel(*_PLAIN_OPS)
def _foreach(device: Device, _op: object, /, tensors: list[torch.Tensor], *_args: Any, **_named: Any) -> Any:
    return [_like(device, tensor) for tensor in tensors]


@kernel("_foreach_pow.ScalarAndTensor")
def _foreach_pow(device: Device, _op: object, /, _base: float, exponents: list[torch.Tensor]) -> Any:
    return [_like(device, tensor) for tensor in exponents]


@kernel("_foreach_norm.Scalar")
def _foreach_norm(
    device: Device,
    _op: object,
    /,
    tensors: list[torch.Tensor],
    order: float = 2,
    dtype: torch.dtype | None = None,
) -> list[torch.Tensor]:
    """Sum each chunk, then the chunks (``foreach_tensor_norm_cuda``, ``ATen/native/cuda/ForeachReduceOp.cu``).

    Other norms than these are taken one after the other.
    """
    if order not in (1, 2, math.inf):
        return [torch.linalg.vector_norm(tensor, order, dtype=dtype) for tensor in tensors]
    chunks = max(-(-tensor.numel() // _CHUNK) for tensor in tensors)
    kind = dtype or tensors[0].dtype
    partial = device.temporary(len(tensors) * chunks * (8 if kind == torch.float64 else 4))
    outputs = [device.empty((), (), kind) for _ in tensors]
    partial.free()
    return outputs


@kernel("_amp_foreach_non_finite_check_and_unscale_")
def _unscale(
    device: Device,
    _op: object,
    /,
    gradients: list[torch.Tensor],
    _found: torch.Tensor,
    _inverse_scale: torch.Tensor,
) -> None:
    """Take gradients as finite, so that ``GradScaler`` steps: the flag keeps its value.

    A skipped first step makes no optimizer state: at most two tensors of a gradient's size, in most optimizers.
    """
    nbytes = 2 * sum(tensor.numel() * tensor.element_size() for tensor in gradients)
    device.caveats.add("value", "gradients are taken as finite, so GradScaler never skips a step", nbytes)
