"""The largest values of each row: long rows are searched by several thread blocks each, which takes memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from memprof.simulate.kernels.registry import temporaries

if TYPE_CHECKING:
    from memprof.simulate.device import Device

__all__: list[str] = []

_SHARED_FROM = ((20, 20000), (40, 10000), (80, 8000), (199, 5000), (799, 3000), (4000, 800))
"""Most rows, and the length from which so many rows are searched by several blocks each (``should_use_multiblock`` in
``ATen/native/cuda/TensorTopK.cu``)."""
_SHARED_FROM_ELSE = 400
_THREADS = 256
_DIGITS = 256
_BLOCKS_PER_MULTIPROCESSOR = 65536 // (40 * _THREADS)
"""40 registers a thread, of 65,536 (``get_items_per_thread``)."""
_FEWEST_ITEMS, _MOST_ITEMS = 4, 64
"""Items of a thread."""
_SCANNED_BY_A_BLOCK = 1920
"""Items of a block of cub's scan by key; more than 474 fit, the true number is not known."""


@temporaries("topk")
def _topk(device: Device, _op: object, _outputs: Any, args: Any, kwargs: dict[str, Any]) -> None:
    """Find each row's k-th value digit by digit, with counts for each thread block (``mbtopk::launch``)."""
    tensor, k = args[0], args[1]
    dim = kwargs.get("dim", args[2] if len(args) > 2 else -1)
    length = tensor.size(dim) if tensor.dim() else 1
    if not k or not tensor.numel():
        return
    copy = device.temporary(0 if tensor.is_contiguous() else tensor.numel() * tensor.element_size())
    rows = tensor.numel() // length
    if length >= next((least for most, least in _SHARED_FROM if rows <= most), _SHARED_FROM_ELSE):
        _search(device, rows, length, tensor.dtype)
    copy.free()


def _search(device: Device, rows: int, length: int, dtype: torch.dtype) -> None:
    threads = device.card.multiprocessors * _BLOCKS_PER_MULTIPROCESSOR * _THREADS
    items = max(_FEWEST_ITEMS, min(-(-length * rows // threads), _MOST_ITEMS))
    blocks = rows * -(-length // (items * _THREADS))
    digits = 8 if dtype in (torch.float64, torch.int64) else 4
    held = [
        device.temporary(nbytes)
        for nbytes in (
            rows * dtype.itemsize,
            2 * rows * 4,
            2 * rows * digits,
            blocks * _DIGITS * 2,
            rows * _DIGITS * 4,
            blocks * 4,
            blocks * 4,
        )
    ]
    tiles = -(-blocks // _SCANNED_BY_A_BLOCK) + 32
    for _ in range(2):
        device.temporary(-(-16 * tiles // 256) * 256 + 511).free()
    for each in reversed(held):
        each.free()
