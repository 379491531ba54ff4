"""Multi-tensor ops, which optimizers and gradient clipping are made of.

On CUDA one kernel runs over whole lists: it makes its outputs in order and nothing else. Without a CUDA registration
torch would loop over single tensors, whose kernels can take temporaries of their own.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from memprof.simulate.kernels.registry import kernel, plain
from memprof.simulate.storages import contiguous_strides

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
_OPERAND_COUNT = {"add": 1, "sub": 1, "addcmul": 2, "addcdiv": 2}
"""Operands behind the first list, where a factor follows them, which changes no dtype."""
_INEXACT = frozenset((*_UNARY, "div")) - {"abs", "ceil", "floor", "frac", "neg", "round", "sign", "trunc"}
"""Give the default floating-point dtype for integers."""
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


def _like(device: Device, tensor: torch.Tensor, dtype: torch.dtype, size: torch.Size | None = None) -> torch.Tensor:
    if size is not None and size != tensor.size():
        return device.empty(size, contiguous_strides(size), dtype)
    meta = torch.empty_like(torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="meta"))
    return device.empty(meta.size(), meta.stride(), dtype)


@kernel(*_PLAIN_OPS)
def _foreach(device: Device, op: Any, /, tensors: list[torch.Tensor], *args: Any, **named: Any) -> Any:
    """Make outputs of the dtype that the op gives of one pair, as torch's loop over single tensors would."""
    name = op._schema.name.removeprefix("aten::_foreach_")
    others = [*args, *named.values()][: _OPERAND_COUNT.get(name)]
    outputs = []
    for row, tensor in enumerate(tensors):
        pair = [other[row] if isinstance(other, (list, tuple)) else other for other in others]
        dtype = _promoted(tensor, [one for one in pair if isinstance(one, _OPERANDS)])
        if name in _INEXACT and not (dtype.is_floating_point or dtype.is_complex):
            dtype = torch.get_default_dtype()
        if name == "abs":
            dtype = dtype.to_real()
        size = tensor.size()
        for one in pair:
            if isinstance(one, torch.Tensor) and one.size() != size:
                size = torch.broadcast_shapes(size, one.size())  # type: ignore[no-untyped-call]  # torch's
        outputs.append(_like(device, tensor, dtype, size))
    return outputs


def _promoted(tensor: torch.Tensor, others: list[Any]) -> torch.dtype:
    if len(others) == 1:
        return torch.result_type(tensor, others[0])
    dtype = tensor.dtype
    for other in others:
        dtype = torch.promote_types(dtype, torch.result_type(tensor, other))
    return dtype


_OPERANDS = (torch.Tensor, bool, int, float, complex)


@kernel("_foreach_pow.ScalarAndTensor")
def _foreach_pow(device: Device, _op: object, /, base: float, exponents: list[torch.Tensor]) -> Any:
    return [_like(device, tensor, torch.result_type(base, tensor)) for tensor in exponents]


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
