"""Matrix products: copies of what cuBLAS does not take as it is, and the workspaces that cuBLAS and cuBLASLt keep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from memprof.simulate.kernels.registry import kernel, temporaries

if TYPE_CHECKING:
    from memprof.simulate.device import Device
    from memprof.simulate.memory import Temporary

__all__: list[str] = []

_LT_DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


@temporaries("dot", "vdot", "addr")
def _vectors(device: Device, _op: object, /, _outputs: Any, _args: Any, _kwargs: Any) -> None:
    device.libraries.cublas()


@temporaries("mv", "addmv")
def _matrix_and_vector(device: Device, _op: object, /, _output: torch.Tensor, args: Any, _kwargs: Any) -> None:
    """Copy a vector of one number, and a matrix without a dense dimension (``addmv_out_cuda``)."""
    matrix, vector = args[-2:]
    held = [_copy(device, vector, needed=vector.stride(0) == 0 and not vector.is_contiguous())]
    rows, columns = matrix.size()
    as_it_is = _dense_along(matrix, 0, rows) or _dense_along(matrix, 1, columns)
    held.append(_copy(device, matrix, needed=not as_it_is and not matrix.is_contiguous()))
    device.libraries.cublas()
    _free(held)


@temporaries("mm")
def _mm(device: Device, _op: object, /, output: torch.Tensor, args: Any, _kwargs: Any) -> None:
    held = _prepared(device, output, *args[:2])
    device.libraries.cublas()
    _free(held)


@temporaries("bmm")
def _bmm(device: Device, _op: object, /, output: torch.Tensor, args: Any, _kwargs: Any) -> None:
    held = _prepared_batches(device, output, *args[:2])
    device.libraries.cublas()
    _free(held)


@temporaries("baddbmm")
def _baddbmm(device: Device, _op: object, /, output: torch.Tensor, args: Any, _kwargs: Any) -> None:
    held = _prepared_batches(device, output, *args[1:3])
    device.libraries.cublas()
    _free(held)


@temporaries("addmm", "_addmm_activation")
def _addmm(device: Device, _op: object, /, output: torch.Tensor, args: Any, kwargs: Any) -> None:
    """Put a row bias into cuBLASLt's epilogue (``addmm_out_cuda_impl`` in ``ATen/native/cuda/Blas.cpp``)."""
    bias, a, b = args[:3]
    held = _prepared(device, output, a, b)
    device.libraries.cublas()
    if (
        bias.dim() == 1
        and bias.size(0) == b.size(1)
        and bias.is_contiguous()
        and output.is_contiguous()
        and kwargs.get("beta", 1) == 1
        and output.dtype in _LT_DTYPES
        and a.size(1) > 1
        and b.size(1) > 1
    ):
        device.libraries.cublas_lt()
    _free(held)


def _prepared(device: Device, output: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> list[Temporary]:
    """Copy what is neither dense nor has a dense dimension (``prepare_matrix_for_cublas``, ``cuda/Blas.cpp``)."""
    if not output.numel():
        return []
    as_rows = output.is_contiguous() or (not _is_dense(output) and not _dense_along(output, 0, output.size(0)))
    return [_copy(device, each, needed=not _taken(each)) for each in (output, *((b, a) if as_rows else (a, b)))]


def _taken(matrix: torch.Tensor) -> bool:
    rows, columns = matrix.size()
    return _is_dense(matrix) or _dense_along(matrix, 0, rows) or _dense_along(matrix, 1, columns)


def _prepared_batches(device: Device, output: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> list[Temporary]:
    """Copy batches of matrices without a dense dimension (``prepare_batch_matrix_for_cublas``)."""
    if not output.numel() or not a.size(2):
        return []
    _, rows, columns = output.size()
    by_columns = output.stride(1) == 1 and (columns == 1 or output.stride(2) >= max(1, rows))
    by_rows = output.stride(2) == 1 and (rows == 1 or output.stride(1) >= max(1, columns))
    held = [_copy(device, output, needed=not by_columns and not by_rows)]
    for each in (a, b) if by_columns or not by_rows else (b, a):
        as_it_is = _dense_along(each, 1, each.size(1)) or _dense_along(each, 2, each.size(2))
        whole = each.is_contiguous() and each.stride(1) != 0 and each.stride(2) != 0
        held.append(_copy(device, each, needed=not as_it_is and not whole))
    return held


def _dense_along(tensor: torch.Tensor, dim: int, extent: int) -> bool:
    """Tell whether one of the last two dimensions is dense, and the other's step is no shorter than it."""
    other = 2 * tensor.dim() - 3 - dim
    return tensor.stride(dim) == 1 and tensor.stride(other) >= max(1, extent)


def _is_dense(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor is dense in some order of its dimensions (``is_non_overlapping_and_dense``)."""
    return bool(torch.ops.aten.is_non_overlapping_and_dense(tensor))


def _copy(device: Device, tensor: torch.Tensor, *, needed: bool) -> Temporary:
    return device.temporary(tensor.numel() * tensor.element_size() if needed else 0)


def _free(held: list[Temporary]) -> None:
    for temporary in reversed(held):
        temporary.free()


@kernel("_grouped_mm")
def _grouped_mm(  # noqa: PLR0917  # torch's signature
    device: Device,
    _op: object,
    /,
    a: torch.Tensor,
    b: torch.Tensor,
    offs: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Make rows of a multiple of 16 bytes; take pointers, strides and sizes of each group, and tensor maps.

    ``_grouped_mm_cuda`` in ``ATen/native/cuda/GroupedBlas.cpp``, ``GroupedMMUtils.h``, and
    ``bf16bf16_grouped_gemm_impl_sm90_sm100`` in ``GroupMM.cu``. Other cards and dtypes multiply one group after the
    other (``_grouped_mm_fallback``).
    """
    del bias  # not supported by torch either
    dtype = out_dtype or a.dtype
    rows, columns = a.size(-2), b.size(-1)
    step = -(-columns // (16 // dtype.itemsize)) * (16 // dtype.itemsize)
    if a.dim() != b.dim():
        output = device.empty((rows, columns), (step, 1), dtype)
    else:
        batch = a.size(0) if a.dim() == 3 or offs is None else offs.size(0)
        output = device.empty((batch, rows, columns), (rows * step, step, 1), dtype)
    if not a.dtype == b.dtype == dtype == torch.bfloat16 or device.card.capability[0] not in (9, 10):
        device.libraries.cublas()
        return output
    groups = offs.numel() if offs is not None else a.size(0)
    pointers = -(-groups // 2) * 2 * 3 * 8
    arguments = device.temporary(pointers + groups * (3 * 8 + 3 * 4))
    device.temporary(device.card.multiprocessors * 4 * 128).free()
    arguments.free()
    return output
