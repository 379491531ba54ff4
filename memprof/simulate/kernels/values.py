"""Ops whose result is a host value, or whose output size depends on values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from memprof.simulate.kernels.reductions import cub_select_bytes, reduce
from memprof.simulate.kernels.registry import kernel
from memprof.simulate.kernels.sorting import cub_sort_bytes
from memprof.simulate.storages import contiguous_strides

if TYPE_CHECKING:
    from memprof.simulate.device import Device

__all__: list[str] = []


@kernel("_local_scalar_dense")
def _item(device: Device, _op: object, /, tensor: torch.Tensor) -> Any:
    known = device.host.view(tensor)
    if known is not None:
        return known.item()
    value = torch.zeros((), dtype=tensor.dtype).item()
    device.caveats.add("value", f"the value of a {str(tensor.dtype).removeprefix('torch.')} scalar is taken as {value}")
    return value


@kernel("equal")
def _equal(device: Device, _op: object, /, a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.size() != b.size():
        return False
    left, right = device.host.view(a), device.host.view(b)
    if left is not None and right is not None:
        return torch.equal(left, right)
    device.caveats.add("value", "torch.equal of unknown values is taken as True")
    return True


@kernel("_is_all_true")
def _is_all_true(device: Device, _op: object, /, tensor: torch.Tensor) -> torch.Tensor:
    """Reduce it; checks of values, such as those of ``torch.distributions``, pass."""
    output = tensor.all()
    if device.host.view(output) is None:
        device.caveats.add("value", "a check that all values are valid is taken as passed")
        device.host.write(output, torch.tensor(data=True))
    return output


@kernel("nonzero")
def _nonzero(device: Device, _op: object, /, tensor: torch.Tensor) -> torch.Tensor:
    """Count, then write the indices (``ATen/native/cuda/Nonzero.cu``)."""
    known = device.host.view(tensor)
    found = None if known is None else torch.nonzero(known)
    count = tensor.numel() if found is None else len(found)
    if found is None:
        nbytes = count * max(tensor.dim(), 1) * 8
        device.caveats.add("value", "nonzero of unknown values is taken as all of them", nbytes)
    else:
        device.found(count, tensor.numel())
    copy = device.temporary(0 if tensor.is_contiguous() else tensor.numel() * tensor.element_size())
    number = device.temporary(4)
    device.temporary(_CUB_REDUCE_BYTES if tensor.numel() > _ONE_BLOCK else 1).free()
    output = device.empty((count, tensor.dim()), (1, max(count, 1)), torch.int64)
    device.temporary(cub_select_bytes(tensor.numel())).free()
    number.free()
    copy.free()
    if found is not None and count:
        device.host.write(output, found)
    return output


_CUB_REDUCE_BYTES = 21503
"""Temporary storage of cub's reduction, measured with 2 million items."""
_ONE_BLOCK = 2048
"""Items up to which cub reduces in one thread block, without storage: between 2,000 and 5,000 in what was measured."""


@kernel("masked_select")
def _masked_select(device: Device, _op: object, /, tensor: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Index with the mask: its non-zeros are found first (``masked_select_out_cuda_impl``)."""
    shape: torch.Size = torch.broadcast_shapes(tensor.size(), mask.size())  # type: ignore[no-untyped-call]  # in torch
    indices = torch.nonzero(mask.expand(shape))
    return device.empty((len(indices),), (1,), tensor.dtype)


@kernel("_unique2")
def _unique(
    device: Device,
    _op: object,
    /,
    tensor: torch.Tensor,
    sorted: bool = True,  # noqa: A002, FBT001, FBT002  # torch's signature
    return_inverse: bool = False,  # noqa: FBT001, FBT002
    return_counts: bool = False,  # noqa: FBT001, FBT002
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Sort a copy and keep the first of each value; the output keeps a storage for all (``Unique.cu``)."""
    del sorted
    known = device.host.view(tensor)
    items, width = tensor.numel(), tensor.element_size()
    results = None if known is None else torch.unique(known, return_inverse=True, return_counts=True)
    if results is None:
        device.caveats.add("value", "unknown values are taken as all different by unique", items * width)
    held = [device.temporary(items * width)]
    inverse = None
    if return_inverse:
        order, sorted_order = device.temporary(items * 8), device.temporary(items * 8)
        device.temporary(cub_sort_bytes(items, width, 8)).free()
        order.free()
        held.append(sorted_order)
        inverse = device.empty(tensor.size(), contiguous_strides(tensor.size()), torch.int64)
        ranks = device.temporary(items * 8)
        device.temporary(cub_select_bytes(items)).free()
        ranks.free()
    else:
        device.temporary(cub_sort_bytes(items, width, 0)).free()
    output = device.empty((items,), (1,), tensor.dtype)
    number = device.temporary(8)
    device.temporary(cub_select_bytes(items)).free()
    number.free()
    counts = device.empty((items,), (1,), torch.int64) if return_counts else None
    for each in reversed(held):
        each.free()
    none = device.empty((0,), (1,), torch.int64)
    outputs = [output, none if inverse is None else inverse, none if counts is None else counts]
    if results is not None:
        distinct = len(results[0])
        outputs[0] = output[:distinct].detach()
        if counts is not None:
            outputs[2] = counts[:distinct].detach()
        for target, values in zip(outputs, results, strict=True):
            if target.numel() == values.numel():
                device.host.write(target, values)
    return outputs[0], outputs[1], outputs[2]


@kernel("bincount")
def _bincount(
    device: Device, _op: object, /, tensor: torch.Tensor, weights: torch.Tensor | None = None, minlength: int = 0
) -> torch.Tensor:
    """Find the largest value, then count."""
    known = device.host.view(tensor)
    if known is None:
        device.caveats.add("value", "bincount of unknown values has its least length", minlength * 8)
        length = minlength
    else:
        length = max(minlength, int(known.max()) + 1 if known.numel() else 0)
    for _ in range(2):
        extreme = device.temporary(tensor.element_size())
        reduce(device, tensor.size(), tensor.stride(), None, tensor.element_size())
        extreme.free()
    dtype = torch.int64 if weights is None else torch.float64 if weights.dtype != torch.float32 else torch.float32
    output = device.empty((length,), (1,), dtype)
    if known is not None and weights is None:
        device.host.write(output, torch.bincount(known, minlength=minlength))
    return output


@kernel("repeat_interleave.Tensor")
def _repeat_interleave(
    device: Device, _op: object, /, repeats: torch.Tensor, *, output_size: int | None = None
) -> torch.Tensor:
    """Add the repeats up, then write each index as often (``repeat_interleave_common``, ``ATen/native/Repeat.h``)."""
    ends = repeats.cumsum(0) if repeats.numel() else repeats
    total = output_size
    if total is None:
        known = device.host.view(ends)
        if known is None:
            device.caveats.add("value", "unknown repeats are taken as one each", repeats.numel() * 8)
        total = repeats.numel() if known is None else int(known[-1]) if known.numel() else 0
        (repeats >= 0).all()  # the card asks, for what the comparison and its reduction allocate
    output = device.empty((total,), (1,), repeats.dtype)
    values = device.host.view(repeats)
    if values is not None and int(values.sum()) == total:
        device.host.write(output, torch.repeat_interleave(values))
    return output
