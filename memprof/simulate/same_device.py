"""Tensors left on the CPU among those of an op on the device: torch's generated wrappers refuse them, and so do we.

A CPU build has no wrappers for the device. The ops here are those whose tensors must all be on one device in
``native_functions.yaml`` and that programs meet with a module or an input that was left behind; elementwise ops,
indexing and copies take tensors of the CPU, and are not among them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    Arguments = tuple[tuple[int, str], ...]

__all__ = ["check_same_device", "checked_arguments"]

_CONVOLUTIONS = ("convolution", "_convolution", "convolution_overrideable")
_CHECKED = frozenset(
    (
        *("mm", "addmm", "_addmm_activation", "bmm", "baddbmm", "addbmm", "mv", "addmv", "addmv_", "dot", "vdot"),
        *("native_layer_norm", "native_group_norm", "native_batch_norm", "cudnn_batch_norm", "_fused_rms_norm"),
        *("_native_batch_norm_legit", "_batch_norm_with_update"),
        *("cudnn_convolution", "cudnn_convolution_transpose", "cudnn_convolution_relu", "_conv_depthwise2d"),
        *("conv_depthwise3d", "_slow_conv2d_forward", *_CONVOLUTIONS),
        *("embedding", "index_select", "gather", "cat", "nll_loss_forward", "nll_loss2d_forward"),
        *("scatter", "scatter_", "scatter_add", "scatter_add_", "scatter_reduce", "scatter_reduce_"),
        *("_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention"),
        *("_scaled_dot_product_cudnn_attention", "_flash_attention_forward", "_efficient_attention_forward"),
    )
)
_SET_APART = ("philox", "cum_seq")
"""What names of arguments start with that may be on the CPU: seeds, and lengths that a kernel reads on the host."""
_TENSORS = ("Tensor", "Optional[Tensor]", "List[Tensor]")


def checked_arguments(op: Any, base: str) -> Arguments:
    """Return position and name of the arguments that must be on one device; none for an op that takes any."""
    if base not in _CHECKED or op.namespace != "aten":
        return ()
    return tuple(
        (index, argument.name)
        for index, argument in enumerate(op._schema.arguments)
        # An output is made where the first is.
        if str(argument.type) in _TENSORS and not argument.is_out and not argument.name.startswith(_SET_APART)
    )


def check_same_device(op: Any, base: str, checked: Arguments, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """Raise torch's error if the arguments are not all on one device.

    Raises
    ------
    RuntimeError
        As ``common_device_check_failure`` of ``ATen/core/adaption.cpp`` words it; of convolutions as
        ``check_input_same_type_as_parameters`` of ``ATen/native/Convolution.cpp`` does.
    """
    first: torch.Tensor | None = None
    for index, name in checked:
        value = args[index] if index < len(args) else kwargs.get(name)
        for tensor in value if isinstance(value, (list, tuple)) else (value,):
            if not isinstance(tensor, torch.Tensor):
                continue
            if first is None:
                first = tensor
            elif tensor.is_cpu != first.is_cpu:
                _refuse(op, base, name, tensor, first)


def _refuse(op: Any, base: str, name: str, tensor: torch.Tensor, first: torch.Tensor) -> None:
    if base in _CONVOLUTIONS:
        raise RuntimeError(f"Input type ({first.type()}) and {name} type ({tensor.type()}) should be the same")
    method, name = _wrapper(op, base), "index" if base == "embedding" else name
    raise RuntimeError(
        f"Expected all tensors to be on the same device, but got {name} is on {tensor.device}, different from other "
        f"tensors on {first.device} (when checking argument in method wrapper_CUDA_{method})"
    )


def _wrapper(op: Any, base: str) -> str:
    """Return how torch's generator names the wrapper: of structured ops the name first, of others the overload."""
    if base == "embedding":
        return "_index_select"  # which it calls
    overload = op._overloadname if op._overloadname != "default" else ""
    plain = "" if overload == "output" else overload.removesuffix("out").rstrip("_")
    full = f"aten::{base}.{plain}" if plain else f"aten::{base}"
    if torch._C._dispatch_has_kernel_for_dispatch_key(full, "CompositeExplicitAutogradNonFunctional"):
        # It came as its ``out`` version, which the composite kernel calls.
        return f"{base}_{plain}" if plain else base
    return f"{overload}_{base}"
