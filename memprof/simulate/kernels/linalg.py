"""Factorizations of matrices, and solving with them: permutations, pointers to the matrices of a batch, workspaces.

``ATen/native/cuda/linalg/BatchLinearAlgebra.cpp``. What cuSOLVER wants as workspace was
recorded with few sizes, and is taken to lie on lines between these.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from memprof.simulate.kernels.registry import kernel, temporaries
from memprof.simulate.storages import contiguous_strides

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from memprof.simulate.device import Device
    from memprof.simulate.memory import Temporary

__all__: list[str] = []

_POINTER = 8
_INDEX = 8
_WORKSPACES = {
    "LU": ((32, 768), (64, 1280), (300, 6912), (384, 7424), (1500, 21152)),
    "Cholesky": ((32, 160), (64, 160), (300, 544), (384, 704), (1500, 8992)),
}
"""Rows and bytes, as recorded."""
_FEW = 8
"""Matrices up to which a batch is factorized with pointers: so with 3, not with 24."""


@temporaries("_linalg_solve_ex")
def _solve(device: Device, _op: object, outputs: Sequence[torch.Tensor], _args: Any, kwargs: dict[str, Any]) -> None:
    _factorize(device, outputs[1])
    _apply(device, outputs[1], outputs[0], transposed=not kwargs.get("left", True))


@temporaries("linalg_lu_solve")
def _lu_solve(device: Device, _op: object, output: torch.Tensor, args: Any, kwargs: dict[str, Any]) -> None:
    _apply(device, args[0], output, transposed=kwargs.get("left", True) == kwargs.get("adjoint", False))


@temporaries("linalg_lu_factor_ex")
def _lu_factor(device: Device, _op: object, outputs: Sequence[torch.Tensor], _args: Any, _kwargs: Any) -> None:
    _factorize(device, outputs[0])


@temporaries("_linalg_det")
def _determinant(device: Device, _op: object, outputs: Sequence[torch.Tensor], _args: Any, _kwargs: Any) -> None:
    """Multiply the diagonal, by the sign of the permutation (``_linalg_det_out``)."""
    _, factors, _ = outputs
    held = _with_status(device, factors)
    held.append(device.temporary(factors.shape[:-2].numel() * factors.element_size()))
    _sign(device, factors)
    for each in reversed(held):
        each.free()


@temporaries("_linalg_slogdet")
def _log_determinant(device: Device, _op: object, outputs: Sequence[torch.Tensor], _args: Any, _kwargs: Any) -> None:
    """Multiply signs, then sum logarithms (``_linalg_slogdet_out``)."""
    factors = outputs[2]
    batch, rows, item = factors.shape[:-2].numel(), factors.size(-1), factors.element_size()
    held = _with_status(device, factors)
    held.append(_sign(device, factors, kept=True))
    for each in [device.temporary(nbytes) for nbytes in (batch * rows * item, batch * item)]:
        each.free()
    device.temporary(batch * rows * item).free()
    for each in reversed(held):
        each.free()


def _with_status(device: Device, factors: torch.Tensor) -> list[Temporary]:
    held = [device.temporary(factors.shape[:-2].numel() * 4)]
    _factorize(device, factors)
    return held


def _sign(device: Device, factors: torch.Tensor, *, kept: bool = False) -> Temporary:
    """Count the pivots that are not in their place (``lu_det_P``, ``ATen/native/LinearAlgebraUtils.h``)."""
    batch, rows = factors.shape[:-2].numel(), factors.size(-1)
    places, others = device.temporary(rows * 4), device.temporary(batch * rows)
    places.free()
    count = device.temporary(batch * _INDEX)
    device.temporary(batch * rows * _INDEX).free()
    others.free()
    if not kept:
        count.free()
    return count


@temporaries("linalg_inv_ex")
def _inverse(device: Device, _op: object, outputs: Sequence[torch.Tensor], _args: Any, _kwargs: Any) -> None:
    """Factorize a copy, and solve for the identity (``linalg_inv_ex_out``)."""
    result = outputs[0]
    rows = result.numel() // max(result.size(-1), 1)
    held = [device.temporary(result.numel() * result.element_size()), device.temporary(rows * 4)]
    _factorize(device, result)
    _apply(device, result, result, transposed=False)
    for each in reversed(held):
        each.free()


@temporaries("linalg_solve_triangular")
def _triangular(device: Device, _op: object, output: torch.Tensor, args: Any, _kwargs: Any) -> None:
    _triangle(device, output.shape[:-2].numel(), args[0].size(-1))


@temporaries("linalg_cholesky_ex")
def _cholesky(device: Device, _op: object, outputs: Sequence[torch.Tensor], _args: Any, _kwargs: Any) -> None:
    batch, rows = outputs[0].shape[:-2].numel(), outputs[0].size(-1)
    if not outputs[0].numel():
        return
    if batch > 1:
        _pointers(device, batch, 1)
    else:
        _cusolver(device, "Cholesky", _between("Cholesky", rows))


@kernel("_cholesky_solve_helper")
def _cholesky_solve(
    device: Device,
    _op: object,
    /,
    right: torch.Tensor,
    matrix: torch.Tensor,
    _upper: bool,  # noqa: FBT001  # torch's
) -> torch.Tensor:
    """Copy both sides (``_cholesky_solve_helper_cuda_cusolver``)."""
    status = device.temporary(4 if matrix.shape[:-2].numel() == 1 else 0)
    strides = contiguous_strides(right.mT.size())
    output = device.empty(right.size(), (*strides[:-2], strides[-1], strides[-2]), right.dtype)
    device.temporary(matrix.numel() * matrix.element_size()).free()
    status.free()
    return output


@temporaries("linalg_qr")
def _qr(device: Device, _op: object, _outputs: Any, args: Any, _kwargs: Any) -> None:
    """Keep the reflections' factors; each of two steps has a workspace, known for up to 64 and for 384 columns."""
    matrix = args[0]
    if not matrix.numel():
        return
    columns, batch = min(matrix.shape[-2:]), matrix.shape[:-2].numel()
    factors = device.temporary(batch * columns * matrix.element_size())
    share = max(columns - 64, 0) / 320
    first, second = 3_145_856 + int(524_288 * share), 148_480 + int(507_904 * share)
    known = batch == 1 and share in (0, 1)
    if batch > 1:
        _pointers(device, batch, 2)
    status = device.temporary(4)
    if batch == 1:
        _cusolver(device, "QR", first, known=known)
        status.free()
        status = device.temporary(4)
    for _ in range(batch):
        _cusolver(device, "QR", second, known=known)
    status.free()
    factors.free()


@temporaries("_linalg_svd", "_linalg_eigh")
def _spectrum(device: Device, op: Any, _outputs: Any, args: Any, _kwargs: Any) -> None:
    """Take a status for each, for singular values a copy, and a workspace as large as twice a matrix, about.

    One that is tall takes what its QR factorization takes first, as recorded with 512 rows of 8.
    """
    matrix = args[0]
    if not matrix.numel():
        return
    nbytes = matrix.numel() * matrix.element_size()
    batch = max(matrix.shape[:-2].numel(), 1)
    status = device.temporary(batch * 4)
    copy = device.temporary(nbytes if op._schema.name.endswith("svd") else 0)
    tall = max(matrix.shape[-2:]) > 2 * min(matrix.shape[-2:])
    _cusolver(device, "spectral", 3_145_984 + nbytes if tall else 2 * nbytes // batch)
    copy.free()
    for each in [device.temporary(1) for _ in range(2 if batch == 1 else 1)]:  # whether one has failed
        each.free()
    status.free()


def _factorize(device: Device, matrix: torch.Tensor) -> None:
    batch, rows = matrix.shape[:-2].numel(), matrix.size(-1)
    if batch == 1 and rows:
        _cusolver(device, "LU", _between("LU", rows))
    elif batch <= _FEW:  # in a loop
        _pointers(device, batch if rows else 0, 1)


def _cusolver(device: Device, name: str, nbytes: int, *, known: bool = False) -> None:
    if not known:
        device.caveats.add("library", f"cuSOLVER's workspace for a {name} factorization is an estimate", nbytes)
    device.temporary(nbytes).free()


def _between(name: str, rows: int) -> int:
    points = _WORKSPACES[name]
    for (low, least), (high, most) in itertools.pairwise(points):
        if rows <= high:
            return least + (most - least) * max(rows - low, 0) // (high - low)
    return points[-1][1] * rows // points[-1][0]


def _triangle(device: Device, batch: int, rows: int) -> None:
    """Take pointers, but for few large matrices, which are solved one by one (``triangular_solve_kernel``)."""
    if batch > _FEW or rows < _LARGE:
        _pointers(device, batch, 2)


_LARGE = 64


def _pointers(device: Device, batch: int, count: int) -> None:
    for each in [device.temporary(batch * _POINTER) for _ in range(count)]:
        each.free()


def _apply(device: Device, matrix: torch.Tensor, right: torch.Tensor, *, transposed: bool) -> None:
    """Turn pivots into a permutation, and solve with both triangles (``lu_solve_triangular``).

    Right-hand sides are permuted first, through the inverse, or, with the transposed matrix, at last.
    """
    batch, rows = matrix.shape[:-2].numel(), matrix.size(-1)
    if not batch * rows:
        return
    columns = right.numel() // (batch * rows)
    if _by_library(device, batch, rows, columns):
        return
    width = batch * rows * _INDEX
    nbytes = right.numel() * right.element_size()
    numbers = device.temporary(rows * _INDEX)
    held = [numbers]
    if batch > 1:
        held = [device.temporary(width)]
        numbers.free()
    if not transposed:
        held += [device.temporary(each) for each in (rows * _INDEX, width, nbytes)]
    for _ in range(2):
        _triangle(device, batch, rows)
    if transposed:
        held.append(device.temporary(nbytes))
    for each in reversed(held):
        each.free()


def _by_library(device: Device, batch: int, rows: int, columns: int) -> bool:
    """Solve by cuSOLVER in a loop, or by cuBLAS for the batch, where torch thinks that faster (``lu_solve_kernel``)."""
    looped = batched = False
    if rows == columns:
        batched = rows <= 16
    elif rows <= 8:
        batched = True
    elif rows <= 64:
        looped = batch <= 2 or (batch <= 4 and columns <= 16)
        batched = columns <= 8 or (rows <= 32 and columns <= 64)
    elif rows <= 128:
        looped, batched = batch <= 2 and columns <= 2, columns <= 2
    if looped:
        device.temporary(4).free()
    elif batched:
        _pointers(device, batch, 2)
    return looped or batched
