"""Gradients of lookups: rows that were looked up more than once are found by sorting the indices."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from memprof.simulate.kernels.registry import kernel, plain, temporaries
from memprof.simulate.kernels.sorting import cub_sort_bytes
from memprof.simulate.storages import contiguous_strides

if TYPE_CHECKING:
    from memprof.simulate.device import Device

__all__: list[str] = []

_UNSORTED = 3072
"""Most indices that are handled without sorting (``embedding_dense_backward_cuda``)."""
_ROWS_PER_THREAD = 10
_CUB_SCAN_BYTES = 1279
"""Temporary storage of cub's scans and run-length encodings; grows a little with the number of items."""

plain("index_put", "_unsafe_index_put", "index_fill", "index_fill_", "index_reduce", "put_")


@kernel("embedding_dense_backward")
def _embedding_backward(
    device: Device,
    _op: object,
    /,
    gradient: torch.Tensor,
    indices: torch.Tensor,
    weights: int,
    _padding: int,
    scale_by_frequency: bool,  # noqa: FBT001
) -> torch.Tensor:
    """Sort the indices, then sum partial segments in float32 (``ATen/native/cuda/Embedding.cu``)."""
    size = (weights, gradient.size(-1))
    items, width = indices.numel(), indices.element_size()
    order = device.temporary(0 if indices.is_contiguous() else items * width)
    copy = None if gradient.is_contiguous() else device.temporary(gradient.numel() * gradient.element_size())
    if items <= _UNSORTED and not scale_by_frequency:
        output = device.empty(size, contiguous_strides(size), gradient.dtype)
    else:
        output = _sorted_backward(device, size, gradient.dtype, (items, width), counted=scale_by_frequency)
    if copy is not None:
        copy.free()
    order.free()
    return output


def _sorted_backward(
    device: Device, size: tuple[int, int], dtype: torch.dtype, indices: tuple[int, int], *, counted: bool
) -> torch.Tensor:
    """Sort; count how often each is there, where that is asked for; then sum. `indices`: their number and bytes."""
    items, width = indices
    sorted_indices, original, ranks = (device.temporary(items * width) for _ in range(3))
    device.temporary(cub_sort_bytes(items, width, width)).free()
    ranks.free()
    counts = device.temporary(items * width if counted else 0)
    for _ in range(2 * counted):
        device.temporary(_CUB_SCAN_BYTES).free()
    output = device.empty(size, contiguous_strides(size), dtype)
    offsets, count, lengths = (device.temporary(nbytes) for nbytes in (items * width, width, items * width))
    device.temporary(_CUB_SCAN_BYTES).free()
    lengths.free()
    segments = min(items, size[0])
    partials = [device.temporary(segments * width) for _ in range(2)]
    device.temporary(_CUB_SCAN_BYTES).free()
    partial_count = device.temporary(width)
    most = items // _ROWS_PER_THREAD + segments
    partial_offsets = device.temporary(most * width)
    _partial_sums(device, size, dtype, items, most)
    for temporary in (
        partial_offsets,
        partial_count,
        *reversed(partials),
        count,
        offsets,
        counts,
        original,
        sorted_indices,
    ):
        temporary.free()
    return output


def _partial_sums(device: Device, size: tuple[int, int], dtype: torch.dtype, items: int, most: int) -> None:
    """Take the partial sums in float32, or, where each row is looked up often, their rows and one sum for each.

    Measured with 150 and 500 lookups a row, and with 4 and fewer; what is between is not known.
    """
    if items < _OFTEN * size[0]:
        device.temporary(most * size[1] * 4).free()
        return
    rows = device.temporary(most * 8)
    device.temporary(size[0] * size[1] * 4 if dtype != torch.float32 else 0).free()
    rows.free()


_OFTEN = 32


@kernel("_embedding_bag", "_embedding_bag_forward_only")
def _embedding_bag(  # noqa: PLR0917  # torch's signature
    device: Device,
    _op: object,
    /,
    weight: torch.Tensor,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    _scale_by_frequency: bool = False,  # noqa: FBT001, FBT002  # torch's signature
    mode: int = 0,
    _sparse: bool = False,  # noqa: FBT001, FBT002
    _weights: torch.Tensor | None = None,
    include_last_offset: bool = False,  # noqa: FBT001, FBT002
    _padding: int = -1,
) -> tuple[torch.Tensor, ...]:
    """Make each bag's size, each index's bag, the output, and for a maximum where it is (``_embedding_bag_cuda``)."""
    bags = offsets.size(0) - include_last_offset
    bag_size = device.empty(offsets.size(), (1,), indices.dtype)
    bag_of = device.empty((indices.size(0),), (1,), indices.dtype)
    size = (bags, weight.size(1))
    output = device.empty(size, contiguous_strides(size), weight.dtype)
    where = device.empty(size, contiguous_strides(size), indices.dtype) if mode == _MAXIMUM else None
    return output, bag_of, bag_size, device.empty((0,), (1,), indices.dtype) if where is None else where


_MAXIMUM = 2


@kernel("_embedding_bag_backward")
def _bag_backward(  # noqa: PLR0917  # torch's signature
    _device: Device,
    _op: object,
    /,
    gradient: torch.Tensor,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    bag_of: torch.Tensor,
    bag_size: torch.Tensor,
    maximum: torch.Tensor,
    weights: int,
    scale_by_frequency: bool,  # noqa: FBT001  # torch's signature
    mode: int,
    sparse: bool,  # noqa: FBT001
    *rest: Any,
) -> torch.Tensor:
    """Go on to the dense or the sparse gradient (``_embedding_bag_backward_symint``)."""
    aten = torch.ops.aten
    if sparse:
        found: torch.Tensor = aten._embedding_bag_sparse_backward(
            gradient, indices, offsets, bag_of, bag_size, weights, scale_by_frequency, mode, *rest
        )
    else:
        found = aten._embedding_bag_dense_backward(
            gradient, indices, bag_of, bag_size, maximum, weights, scale_by_frequency, mode, *rest
        )
    return found


@kernel("_embedding_bag_dense_backward")
def _embedding_bag_backward(  # noqa: PLR0917  # torch's signature
    device: Device,
    _op: object,
    /,
    gradient: torch.Tensor,
    indices: torch.Tensor,
    _bag_of: torch.Tensor,
    _bag_size: torch.Tensor,
    _maximum: torch.Tensor,
    weights: int,
    scale_by_frequency: bool,  # noqa: FBT001
    mode: int,
    *_rest: Any,
) -> torch.Tensor:
    """Sum as lookups do, always sorted; a maximum goes straight to its place (``EmbeddingBag.cu``)."""
    size = (weights, gradient.size(1))
    copy = device.temporary(0 if gradient.is_contiguous() else gradient.numel() * gradient.element_size())
    if mode == _MAXIMUM or not indices.numel():
        output = device.empty(size, contiguous_strides(size), gradient.dtype)
    else:
        counted = (indices.numel(), indices.element_size())
        output = _sorted_backward(device, size, gradient.dtype, counted, counted=scale_by_frequency)
    copy.free()
    return output


@temporaries("_index_put_impl_", "index_put_")
def _index_put(device: Device, _op: object, _output: Any, args: Any, kwargs: dict[str, Any]) -> None:
    """Sort linear indices where values are added (``index_put_with_sort_kernel``, ``Indexing.cu``).

    One number from the host is copied to the device first, unless a mask says where it goes: it is filled in then
    (``_index_put_impl_``, ``ATen/native/TensorAdvancedIndexing.cpp``).
    """
    indices = [index for index in args[1] if index is not None]
    number = not isinstance(args[2], torch.Tensor) or (args[2].device.type == "cpu" and not args[2].dim())
    copied = number and any(index.dtype not in (torch.bool, torch.uint8) for index in indices)
    copy = device.temporary(args[0].element_size() if copied else 0)
    added = kwargs.get("accumulate", args[3] if len(args) > 3 else False)
    if added or not number:
        indices = [each for index in indices for each in _expanded(index)]
    if indices and added:
        _add(device, args, indices)
    copy.free()


def _expanded(index: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return where a mask is true (``expandTensors``, ``ATen/native/IndexingUtils.h``)."""
    return torch.nonzero(index).unbind(1) if index.dtype in (torch.bool, torch.uint8) else (index,)


def _add(device: Device, args: Any, indices: list[torch.Tensor]) -> None:
    items = torch.broadcast_shapes(*(index.size() for index in indices)).numel()  # type: ignore[no-untyped-call]  # in torch
    held = [device.temporary(items * 8) for _ in range(2 * len(indices))]
    held.pop().free()
    values = args[2]
    strided = isinstance(values, torch.Tensor) and not values.is_contiguous()
    held.append(device.temporary(values.numel() * values.element_size() if strided else 0))
    held += [device.temporary(items * 8) for _ in range(3)]
    bits = (_places(args[0], args[1]) - 1).bit_length()
    device.temporary(cub_sort_bytes(items, 8, 8, bits)).free()
    for temporary in reversed(held):
        temporary.free()


def _places(tensor: torch.Tensor, indices: list[torch.Tensor | None]) -> int:
    """Return how many places the linear indices can name: the rest of the tensor is copied slice by slice."""
    indexed = max(place for place, index in enumerate(indices) if index is not None) + 1
    return math.prod(tensor.shape[:indexed])
