"""Elementwise ops with temporaries, and the names of ops without that torch does not tag as pointwise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from memprof.simulate.kernels.reductions import cub_scan_bytes, reduce
from memprof.simulate.kernels.registry import copied, kernel, plain, temporaries
from memprof.simulate.storages import contiguous_strides

if TYPE_CHECKING:
    from memprof.simulate.device import Device

__all__: list[str] = []

# TensorIterator kernels, fills and random fills.
plain(
    "fill_", "zero_", "copy_", "normal_", "uniform_", "random_", "exponential_", "log_normal_", "cauchy_",
    "geometric_", "gelu",
    "arange", "linspace", "logspace", "eye", "full", "scalar_tensor", "where",
    "masked_fill", "masked_fill_", "gelu_backward", "silu_backward", "threshold_backward", "sigmoid_backward",
    "tanh_backward", "leaky_relu_backward", "elu_backward", "mish_backward", "softplus_backward",
    "lerp_", "addcmul_", "addcdiv_",
    "range", "complex", "polar", "_fused_dropout", "glu", "tril_indices", "triu_indices",
    "elu", "softplus", "softshrink", "softshrink_backward", "threshold", "leaky_relu", "hardswish", "hardswish_",
    "floor_divide", "floor_divide_", "smooth_l1_loss_backward", "huber_loss_backward", "_prelu_kernel",
    "_prelu_kernel_backward", "hardsigmoid", "hardsigmoid_backward",
)  # fmt: skip
# Kernels of their own that write straight into the output.
plain(
    "gather", "index_select", "index", "take", "embedding", "index_copy", "index_copy_",
    "scatter", "scatter_", "scatter_add", "scatter_add_",
    "nll_loss_forward", "max_pool2d_with_indices", "avg_pool2d", "avg_pool2d_backward",
    "_adaptive_avg_pool2d", "_adaptive_avg_pool2d_backward", "upsample_nearest2d", "upsample_bilinear2d",
    "upsample_nearest2d_backward", "upsample_bilinear2d_backward",
    "replication_pad2d", "bucketize",
    "index_add", "index_add_", "histc", "searchsorted", "addbmm", "_cummax_helper",
    "_cdist_forward", "_weight_norm_interface_backward", "replication_pad1d", "replication_pad1d_backward",
    "replication_pad2d_backward", "replication_pad3d", "replication_pad3d_backward", "reflection_pad3d",
    "reflection_pad3d_backward", "_adaptive_avg_pool3d", "_adaptive_avg_pool3d_backward", "adaptive_max_pool3d",
    "adaptive_max_pool3d_backward", "max_pool3d_with_indices", "max_pool3d_with_indices_backward",
    "grid_sampler_2d", "grid_sampler_2d_backward", "_upsample_nearest_exact2d", "_upsample_nearest_exact2d_backward",
    "upsample_bicubic2d", "upsample_linear1d", "upsample_linear1d_backward", "upsample_nearest1d",
    "upsample_nearest1d_backward", "upsample_nearest3d", "upsample_nearest3d_backward", "upsample_trilinear3d",
    "upsample_trilinear3d_backward", "channel_shuffle",
    "_cudnn_init_dropout_state", "diag_embed", "split_with_sizes_copy", "_chunk_cat",
)  # fmt: skip


@temporaries("pow")
def _pow(device: Device, op: Any, _output: Any, args: Any, _kwargs: Any) -> None:
    """Make a scalar base a float64 tensor on the device (``pow_Scalar_out``, ``ATen/native/Pow.cpp``)."""
    if op._overloadname.startswith("Scalar") and args[0] != 1:
        device.temporary(8).free()


@kernel("native_dropout")
def _native_dropout(
    device: Device,
    _op: object,
    /,
    tensor: torch.Tensor,
    _p: float,
    _train: bool | None,  # noqa: FBT001  # torch's signature
) -> tuple[torch.Tensor, torch.Tensor]:
    """Allocate the mask before the output (``dropout_cuda``, ``ATen/native/cuda/Dropout.cu``)."""
    meta = torch.empty_like(torch.empty_strided(tensor.size(), tensor.stride(), device="meta"))
    mask = device.empty(meta.size(), meta.stride(), torch.bool)
    return device.empty(meta.size(), meta.stride(), tensor.dtype), mask


@temporaries("bernoulli_")
def _bernoulli(device: Device, _op: object, output: Any, args: Any, _kwargs: Any) -> None:
    """Take probabilities in half precision as float32 (``bernoulli_tensor_cuda_kernel``)."""
    if len(args) > 1 and isinstance(args[1], torch.Tensor) and args[1].dtype in (torch.float16, torch.bfloat16):
        device.temporary(output.numel() * 4).free()


@temporaries("isin")
def _isin(device: Device, op: Any, output: Any, args: Any, _kwargs: Any) -> None:
    """Compare all with all, where few are looked for (``isin_default_kernel``, ``TensorCompare.cpp``).

    Many are sorted: what that takes is not known.
    """
    if op._overloadname.startswith("Tensor_Tensor"):
        elements, wanted = args[0].numel(), args[1].numel()
        if wanted >= 10 * elements**0.145:
            device.caveats.add("temporaries", "aten::isin of many", (elements + wanted) * 8)
            return
        compared, found = device.temporary(elements * wanted), device.temporary(output.numel())
        found.free()
        compared.free()


@kernel("hardtanh_backward", "hardswish_backward")
def _after_gradient(
    device: Device, _op: Any, /, gradient: torch.Tensor, source: torch.Tensor, *_bounds: Any
) -> torch.Tensor:
    """Take the layout of the gradient first, where it differs from the input's (``ATen/native/Activation.cpp``)."""
    meta = device.shapes(torch.ops.aten.mul.Tensor, (gradient, source), {})
    return device.empty(meta.size(), meta.stride(), meta.dtype)


@kernel("glu_backward")
def _glu_backward(device: Device, op: Any, /, *args: Any) -> torch.Tensor:
    """Write into a contiguous tensor (``glu_backward_cuda``)."""
    meta = device.shapes(op, args, {})
    return device.empty(meta.size(), contiguous_strides(meta.size()), meta.dtype)


@temporaries("rrelu_with_noise")
def _rrelu(device: Device, _op: object, _output: Any, args: Any, _kwargs: Any) -> None:
    copied(device, args[0])


@kernel("roll")
def _roll(device: Device, op: Any, /, tensor: torch.Tensor, shifts: Any, dims: Any = ()) -> torch.Tensor:
    """Roll one dimension after the other, each into a tensor of its own (``roll_common``), from a contiguous one."""
    meta = device.shapes(op, (tensor, shifts, dims), {})
    copy = device.temporary(0 if tensor.is_contiguous() else tensor.numel() * tensor.element_size())
    output = device.empty(meta.size(), contiguous_strides(meta.size()), meta.dtype)
    copy.free()
    for _ in range(len(dims) - 1):
        output = device.empty(meta.size(), contiguous_strides(meta.size()), meta.dtype)
    return output


@kernel("im2col", "col2im")
def _columns(device: Device, op: Any, /, tensor: torch.Tensor, *args: Any, **named: Any) -> torch.Tensor:
    """Make an output as large as the input, and resize it: a smaller one keeps its storage (``im2col_cuda``)."""
    output = device.empty(tensor.size(), contiguous_strides(tensor.size()), tensor.dtype)
    copy = device.temporary(0 if tensor.is_contiguous() else tensor.numel() * tensor.element_size())
    output.resize_(device.shapes(op, (tensor, *args), named).size())
    copy.free()
    return output


@temporaries("unfold_backward")
def _unfold_backward(device: Device, _op: object, _output: Any, args: Any, _kwargs: Any) -> None:
    """Write down the places that windows cover (``ATen/native/cuda/UnfoldBackwardKernel.cu``)."""
    gradient, sizes, dim, size, step = args
    if sizes:
        device.temporary(min(sizes[dim], (gradient.size(dim % len(sizes)) - 1) * step + size) * 8).free()


@temporaries("scatter_reduce", "scatter_reduce_")
def _scatter_reduce(device: Device, _op: object, output: Any, args: Any, _kwargs: Any) -> None:
    """Count what goes to each place, for a mean (``scatter_reduce_two``, ``TensorAdvancedIndexing.cpp``)."""
    if args[4] != "mean":
        return
    source, size = args[3], output.element_size()
    ones = device.temporary(source.numel() * source.element_size())
    count = device.temporary(output.numel() * size)
    device.temporary(output.numel()).free()
    count.free()
    ones.free()


@temporaries("_cdist_backward")
def _cdist_backward(device: Device, _op: object, output: torch.Tensor, args: Any, _kwargs: Any) -> None:
    """Write what each pair adds, then sum over the pairs (``cdist_backward_kernel_impl``, ``DistanceKernel.cu``)."""
    first, second = args[1:3]
    batch, rows, width = first.shape[:-2].numel(), first.size(-2), first.size(-1)
    size = (batch, second.size(-2), rows, width)
    steps = (size[1] * rows * width, rows * width, width, 1)
    held = device.temporary(batch * steps[0] * output.element_size())
    reduce(device, size, steps, (1,), 4)
    held.free()


@temporaries("abs", "angle")
def _absolute(device: Device, _op: object, output: Any, args: Any, _kwargs: Any) -> None:
    """Compute complex numbers, whose real parts are kept (``unary_op_impl_with_complex_to_float_out``)."""
    if args[0].is_complex() and not output.is_complex():
        device.temporary(args[0].numel() * args[0].element_size()).free()


@kernel("_weight_norm_interface")
def _weight_norm(
    device: Device, _op: object, /, direction: torch.Tensor, size: torch.Tensor, _dim: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Keep norms of half precision in float32 (``weight_norm_cuda``, ``ATen/native/cuda/WeightNorm.cu``)."""
    kind = torch.float32 if size.dtype.itemsize == 2 else size.dtype
    meta = torch.empty_like(torch.empty_strided(direction.size(), direction.stride(), device="meta"))
    weight = device.empty(meta.size(), meta.stride(), direction.dtype)
    return weight, device.empty(size.size(), size.stride(), kind)


@temporaries("masked_scatter", "masked_scatter_")
def _masked_scatter(device: Device, _op: object, output: Any, args: Any, _kwargs: Any) -> None:
    """Count the places up to each, in 64 bits; a mask that is expanded is copied (``masked_scatter_cuda``)."""
    mask = args[1]
    whole = mask.is_contiguous() and mask.numel() == output.numel()
    held = [device.temporary(output.numel() * 8), device.temporary(0 if whole else output.numel())]
    device.temporary(cub_scan_bytes(output.numel(), 8)).free()
    for each in reversed(held):
        each.free()


@temporaries("max_pool2d_with_indices_backward")
def _max_pool_backward(device: Device, _op: object, output: Any, args: Any, _kwargs: Any) -> None:
    """Copy a gradient that is not in the layout of the input (``DilatedMaxPool2d.cu``)."""
    gradient = args[0]
    layout = torch.contiguous_format if output.is_contiguous() else torch.channels_last
    if not gradient.is_contiguous(memory_format=layout):
        device.temporary(gradient.numel() * gradient.element_size()).free()
