"""Sorting, and what is made by sorting: cub's radix sort, and its temporary storage."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from memprof.simulate.kernels.registry import temporaries

if TYPE_CHECKING:
    from memprof.simulate.device import Device

__all__ = ["cub_sort_bytes"]

_SMALL_SORT = 4096
"""Longest dimension that is sorted in place, after the indices were written (``should_use_small_sort``)."""
_LONG = 1_000_000
"""Length from which each row is sorted alone."""
_MANY_ROWS = 128
"""Rows from which cub sorts them as segments."""
_ONE_TILE = 2048
"""Items that cub sorts in one thread block, without storage."""
_TILES = {(2, 8): 5632, (4, 8): 5376, (8, 8): 4608, (8, 0): 5760}
"""Items that a thread block sorts, by bytes of key and value; from measured sizes, the one for (8, 8) within bounds."""


def cub_sort_bytes(items: int, key_bytes: int, value_bytes: int, bits: int | None = None) -> int:
    """Return the temporary storage of cub's radix sort: second buffers, digit counts, and a table per thread block.

    Keys are sorted by their lowest `bits`, 8 at a time; by all that they have if not given. One pass needs no second
    buffers, and one thread block no storage.
    """
    if items <= _ONE_TILE:
        return 1
    digits = -(-(key_bytes * 8 if bits is None else bits) // 8)
    tiles = -(-items // _TILES.get((key_bytes, value_bytes), 5376))
    if digits == 1:
        return 256 * 8 + tiles * 1024 + 511
    buffers_bytes = sum(-(-items * width // 256) * 256 for width in (key_bytes, value_bytes))
    return buffers_bytes + digits * 256 * 8 + tiles * 1024 + 511


@temporaries("sort", "argsort")
def _sort(device: Device, _op: object, outputs: Any, args: Any, kwargs: dict[str, Any]) -> None:
    """Sort short rows in place, long ones with cub (``sort_cuda_kernel`` in ``ATen/native/cuda/Sort.cpp``)."""
    tensor = args[0]
    dim = kwargs.get("dim", next((a for a in args[1:] if isinstance(a, int) and not isinstance(a, bool)), -1))
    length = tensor.size(dim) if tensor.dim() else 1
    if length <= _SMALL_SORT:
        device.temporary(length * 8).free()
        return
    strided = tensor.stride(dim) != 1 or not bool(torch.ops.aten.is_non_overlapping_and_dense(tensor))
    widths = [tensor.element_size(), *(each.element_size() for each in outputs)] if strided else []
    held = [device.temporary(tensor.numel() * width) for width in widths]
    _sort_rows(device, tensor.numel() // length, length, tensor.element_size())
    for each in reversed(held):
        each.free()


def _sort_rows(device: Device, rows: int, length: int, width: int) -> None:
    """Sort with the indices: row by row, or all at once and then by rows (``launch_stable_sort_kernel``, ``Sort.cu``).

    What cub takes to sort 128 rows or more is taken as second buffers, and was not measured.
    """
    items = rows * length
    if rows == 1 or length >= _LONG:
        indices = device.temporary(length * 8)
        for _ in range(rows):
            device.temporary(cub_sort_bytes(length, width, 8)).free()
        indices.free()
        return
    held = [device.temporary(items * 8)]
    if rows < _MANY_ROWS:
        held.append(device.temporary(items * 8))
        keys = device.temporary(items * width)
        device.temporary(cub_sort_bytes(items, width, 8)).free()
        keys.free()
        device.temporary(cub_sort_bytes(items, 8, 0, math.ceil(math.log2(rows)))).free()
    else:
        nbytes = sum(-(-items * each // 256) * 256 for each in (width, 8)) + 255
        device.caveats.add("temporaries", "aten::sort of many long rows", nbytes)
        device.temporary(nbytes).free()
    for each in reversed(held):
        each.free()


@temporaries("randperm")
def _randperm(device: Device, _op: object, output: Any, _args: Any, _kwargs: Any) -> None:
    """Sort random 32-bit keys (``ATen/native/cuda/Randperm.cu``)."""
    items = output.numel()
    device.temporary(8).free()
    held = [device.temporary(items * 8), device.temporary(items * 4), device.temporary(items * 4)]
    device.temporary(cub_sort_bytes(items, 4, 8)).free()
    for temporary in reversed(held):
        temporary.free()
