"""Ops whose result is a host value, or whose output size depends on values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from memprof.simulate.kernels.registry import kernel

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


@kernel("nonzero")
def _nonzero(device: Device, _op: object, /, tensor: torch.Tensor) -> torch.Tensor:
    """Count, then write the indices (``ATen/native/cuda/Nonzero.cu``)."""
    known = device.host.view(tensor)
    found = None if known is None else torch.nonzero(known)
    count = tensor.numel() if found is None else len(found)
    if found is None:
        device.caveats.add(
            "value", "nonzero of unknown values is taken as all of them", count * max(tensor.dim(), 1) * 8
        )
    for nbytes in (_CUB_REDUCE_BYTES, 4):
        device.temporary(nbytes).free()
    output = device.empty((count, tensor.dim()), (1, max(count, 1)), torch.int64)
    if found is not None and count:
        device.host.write(output, found)
    return output


_CUB_REDUCE_BYTES = 512


@kernel("masked_select")
def _masked_select(device: Device, _op: object, /, tensor: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    known = device.host.view(mask)
    shape: torch.Size = torch.broadcast_shapes(tensor.size(), mask.size())  # type: ignore[no-untyped-call]  # in torch
    count = shape.numel() if known is None else int(known.expand(shape).sum())
    if known is None:
        device.caveats.add("value", "masked_select by an unknown mask is taken as all", count * tensor.element_size())
    return device.empty((count,), (1,), tensor.dtype)
