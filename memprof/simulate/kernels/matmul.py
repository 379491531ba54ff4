"""Matrix products: the workspaces that cuBLAS and cuBLASLt keep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from memprof.simulate.kernels.registry import kernel, temporaries

if TYPE_CHECKING:
    from memprof.simulate.device import Device

__all__: list[str] = []

_LT_DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


@temporaries("mm", "bmm", "baddbmm", "dot", "vdot", "mv", "addmv", "addr")
def _gemm(device: Device, _op: object, /, _outputs: Any, _args: Any, _kwargs: Any) -> None:
    device.libraries.cublas()


@temporaries("addmm", "_addmm_activation")
def _addmm(device: Device, _op: object, /, output: torch.Tensor, args: Any, kwargs: Any) -> None:
    """Put a row bias into cuBLASLt's epilogue (``addmm_out_cuda_impl`` in ``ATen/native/cuda/Blas.cpp``)."""
    bias, a, b = args[:3]
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
