"""Reductions and scans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from memprof.simulate.kernels.reduction_plan import buffers, coalesce
from memprof.simulate.kernels.registry import kernel, plain, temporaries
from memprof.simulate.storages import contiguous_strides

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memprof.simulate.device import Device

__all__ = ["cub_scan_bytes", "cub_select_bytes", "reduce"]

_HALF = (torch.float16, torch.bfloat16)
_WELFORD_BYTES = {torch.float64: 32}
"""Mean, sum of squares and two counts of an accumulating variance; 16 bytes but for double precision."""

plain("argmax", "argmin", "logsumexp", "cummax", "cummin", "kthvalue", "mode", "median")


def reduce(
    device: Device, size: Sequence[int], stride: Sequence[int], dims: Sequence[int] | None, accumulator_bytes: int
) -> None:
    """Take and free what a reduction needs besides its output."""
    buffer, counters = buffers(device.card, coalesce(size, stride, dims), accumulator_bytes)
    if buffer:
        held = device.temporary(buffer)
        device.temporary(counters).free()
        held.free()


def _dims(args: Any, kwargs: dict[str, Any]) -> Sequence[int] | None:
    """Return the reduced dimensions: a list, or one number, second argument or ``dim``."""
    dims = kwargs.get("dim", args[1] if len(args) > 1 else None)
    if isinstance(dims, bool) or not isinstance(dims, (int, list, tuple)):
        return None
    return (dims,) if isinstance(dims, int) else dims


def _accumulator(dtype: torch.dtype) -> int:
    """Return the bytes in which values of a dtype are summed (``at::acc_type``)."""
    if dtype in _HALF:
        return 4
    return dtype.itemsize if dtype.is_floating_point or dtype.is_complex else 8


@temporaries("sum", "mean", "prod", "nansum")
def _sum(device: Device, _op: object, outputs: Any, args: Any, kwargs: dict[str, Any]) -> None:
    """Cast an input of another dtype than the output first, except half precision summed in float32.

    ``make_reduction_from_out_ty`` in ``ATen/native/ReduceOpsUtils.h``.
    """
    output = outputs[0] if isinstance(outputs, (list, tuple)) else outputs
    tensor = args[0]
    cast = None
    if tensor.dtype != output.dtype and not (tensor.dtype in _HALF and output.dtype == torch.float32):
        cast = device.temporary(tensor.numel() * output.element_size())
    reduce(device, tensor.size(), tensor.stride(), _dims(args, kwargs), _accumulator(output.dtype))
    if cast is not None:
        cast.free()


@temporaries("linalg_vector_norm", "norm")
def _norm(device: Device, op: Any, _outputs: Any, args: Any, kwargs: dict[str, Any]) -> None:
    """Reduce; the dimensions come after the order of the norm."""
    tensor = args[0]
    dims = kwargs.get("dim", args[2] if len(args) > 2 and isinstance(args[2], (list, tuple)) else None)
    del op
    reduce(device, tensor.size(), tensor.stride(), dims, _accumulator(tensor.dtype))


@temporaries("amax", "amin", "max", "min")
def _extremes(device: Device, op: Any, _outputs: Any, args: Any, kwargs: dict[str, Any]) -> None:
    tensor = args[0]
    dims = _dims(args, kwargs)
    if "dim" in op._overloadname:
        return  # value and index are found by a kernel of its own
    reduce(device, tensor.size(), tensor.stride(), dims, tensor.element_size())


@temporaries("all", "any")
def _truth(device: Device, _op: object, _outputs: Any, args: Any, kwargs: dict[str, Any]) -> None:
    """One value is cast (``allany_impl``, ``ATen/native/ReduceOps.cpp``)."""
    tensor = args[0]
    if tensor.numel() == 1 and tensor.dtype != torch.bool:
        device.temporary(1).free()
    reduce(device, tensor.size(), tensor.stride(), _dims(args, kwargs), 1)


@temporaries("std", "var", "var_mean", "std_mean")
def _spread(device: Device, _op: object, _outputs: Any, args: Any, kwargs: dict[str, Any]) -> None:
    tensor = args[0]
    size = _WELFORD_BYTES.get(tensor.dtype, 16)
    reduce(device, tensor.size(), tensor.stride(), _dims(args, kwargs), size)


@temporaries("cumsum", "cumprod")
def _scan(device: Device, _op: object, output: Any, args: Any, _kwargs: Any) -> None:
    """Cast an input of another dtype, and copy one that is not contiguous; what is one row is scanned by cub.

    ``impl_func_cum_ops`` in ``ATen/native/ReduceOps.cpp``, ``scan_dim`` in ``ATen/native/cuda/ScanUtils.cuh``.
    """
    tensor, dim = args[0], args[1]
    nbytes = tensor.numel() * output.element_size()
    held = [device.temporary(nbytes if tensor.dtype != output.dtype else 0)]
    held += [device.temporary(0 if each.is_contiguous() else nbytes) for each in (output, tensor)]
    if tensor.dim() and tensor.numel() == tensor.size(dim) > 0:
        device.temporary(cub_scan_bytes(tensor.numel(), output.element_size())).free()
    for each in reversed(held):
        each.free()


@kernel("_logcumsumexp")
def _logcumsumexp(device: Device, _op: object, /, tensor: torch.Tensor, dim: int) -> torch.Tensor:
    """Scan; torch has no shape kernel for it."""
    output = device.empty(tensor.size(), contiguous_strides(tensor.size()), tensor.dtype)
    _scan(device, _op, output, (tensor, dim), {})
    return output


_SCAN_TILES = {2: 7680, 4: 1920, 8: 896}
"""Items that a thread block scans, by bytes of an item: fitted to the sizes measured with up to a million."""


def cub_scan_bytes(items: int, item_bytes: int) -> int:
    """Return the temporary storage of cub's scan: a state for each thread block."""
    tiles = -(-items // _SCAN_TILES.get(item_bytes, 896)) + 32
    state = 8 if item_bytes == 4 else 16
    return -(-state * tiles // 256) * 256 + 511


def cub_select_bytes(items: int) -> int:
    """Return the temporary storage of cub's selection: a state for each thread block of 4,224 items, within bounds."""
    return -(-8 * (-(-items // 4224) + 32) // 256) * 256 + 511


@temporaries("_softmax", "_log_softmax")
def _softmax(device: Device, _op: object, _output: Any, args: Any, _kwargs: Any) -> None:
    """Make the input contiguous (``host_softmax``, ``ATen/native/cuda/SoftMax.cu``)."""
    _contiguous(device, args[0])


def _contiguous(device: Device, *tensors: torch.Tensor) -> None:
    """Take and free contiguous copies of those that are not."""
    copies = [
        device.temporary(tensor.numel() * tensor.element_size()) for tensor in tensors if not tensor.is_contiguous()
    ]
    for copy in reversed(copies):
        copy.free()


@temporaries("_log_softmax_backward_data")
def _log_softmax_backward(device: Device, _op: object, _output: Any, args: Any, _kwargs: Any) -> None:
    """Make gradient and output contiguous (``host_softmax_backward``, ``ATen/native/cuda/SoftMax.cu``)."""
    _contiguous(device, args[0], args[1])


@temporaries("_softmax_backward_data")
def _softmax_backward(device: Device, _op: object, _output: Any, args: Any, _kwargs: Any) -> None:
    """Multiply gradient and output first (``softmax_backward_cuda_out``), then make both contiguous."""
    gradient, output = args[0], args[1]
    product = device.shapes(torch.ops.aten.mul.Tensor, (gradient, output), {})
    held = device.temporary(product.numel() * product.element_size())
    _contiguous(device, product, output)
    held.free()


@temporaries("multinomial")
def _multinomial(device: Device, _op: object, _output: Any, args: Any, kwargs: dict[str, Any]) -> None:
    """Check the weights, and take the largest of random quotients (``multinomial_out`` in ``Distributions.cpp``).

    Drawing several with replacement takes the weights, their shares and the sums of these
    (``multinomial_with_replacement_kernel_impl`` in ``ATen/native/cuda/MultinomialKernel.cu``).
    """
    tensor, samples = args[0], args[1]
    if samples > 1 and (kwargs.get("replacement") or (len(args) > 2 and args[2])):
        for each in [device.temporary(tensor.numel() * tensor.element_size()) for _ in range(3)]:
            each.free()
        return
    flags = []
    for _ in range(2):
        extreme = device.temporary(tensor.element_size())
        reduce(device, tensor.size(), tensor.stride(), None, tensor.element_size())
        flags.append(device.temporary(1))
        extreme.free()
    flags.append(device.temporary(1))
    for flag in flags:
        flag.free()
    if tensor.dim() > 1:
        held = [device.temporary(nbytes) for nbytes in (tensor.size(0) * tensor.element_size(), tensor.size(0), 1, 1)]
        for each in held:
            each.free()
    quotients = device.temporary(tensor.numel() * tensor.element_size())
    values = tensor.numel() // tensor.size(-1) * samples * tensor.element_size() if samples > 1 else 0
    device.temporary(values).free()
    quotients.free()
