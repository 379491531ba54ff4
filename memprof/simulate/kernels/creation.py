"""Making, resizing and copying tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from memprof.simulate.host import storage_address
from memprof.simulate.kernels.registry import kernel, plain
from memprof.simulate.storages import contiguous_strides

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memprof.simulate.device import Device

__all__: list[str] = []

_CPU = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)

plain("clone", "cat", "stack", "constant_pad_nd", "tril", "triu", "flip", "repeat", "native_dropout_backward")


@kernel("empty.memory_format")
def _empty(
    device: Device,
    _op: object,
    /,
    size: Sequence[int],
    dtype: torch.dtype | None = None,
    memory_format: torch.memory_format | None = None,
    **_options: Any,
) -> torch.Tensor:
    dtype = dtype or torch.get_default_dtype()
    if memory_format in (None, torch.contiguous_format):
        return device.empty(size, contiguous_strides(size), dtype)
    meta = torch.empty(size, dtype=dtype, device="meta", memory_format=memory_format)
    return device.empty(meta.size(), meta.stride(), dtype)


@kernel("empty_strided")
def _empty_strided(
    device: Device,
    _op: object,
    /,
    size: Sequence[int],
    stride: Sequence[int],
    dtype: torch.dtype | None = None,
    **_options: Any,
) -> torch.Tensor:
    return device.empty(size, stride, dtype or torch.get_default_dtype())


@kernel("resize_")
def _resize(
    device: Device,
    _op: object,
    /,
    tensor: torch.Tensor,
    size: Sequence[int],
    **_options: Any,
) -> torch.Tensor:
    device.resize(tensor, size, contiguous_strides(size))
    return tensor


@kernel("set_.source_Storage", "set_.source_Storage_storage_offset", "set_.source_Tensor", "set_")
def _set(_device: Device, op: Any, /, *args: Any, **kwargs: Any) -> torch.Tensor:
    result: torch.Tensor = op.redispatch(_CPU, *args, **kwargs)
    return result


@kernel("record_stream")
def _record_stream(device: Device, _op: object, /, tensor: torch.Tensor, stream: torch.Stream) -> None:
    device.memory.record_stream(storage_address(tensor), stream.stream_id)


@kernel("copy_")
def _copy(
    device: Device,
    _op: object,
    /,
    target: torch.Tensor,
    source: torch.Tensor | complex,
    non_blocking: bool = False,  # noqa: FBT001, FBT002  # torch's signature
) -> torch.Tensor:
    """Copy, with the temporaries of ``copy_kernel_cuda`` (``ATen/native/cuda/Copy.cu``).

    Between host and device a copy is one memcpy if dtypes agree and both sides are dense in the same order. Otherwise
    both sides go through contiguous tensors; dtypes are converted on the host, or on the device if `non_blocking`.
    """
    if not isinstance(source, torch.Tensor):
        source = torch.tensor(source)  # the dispatcher takes numbers out of their 0-dimensional tensors
    same_type = source.dtype == target.dtype
    if target.device.type == source.device.type or (same_type and _same_dense_order(target, source)):
        pass
    elif target.device.type == "cpu":
        held = []
        if not same_type and non_blocking:
            held.append(device.temporary(source.numel() * target.element_size()))
        if not source.is_contiguous():
            held.append(device.temporary(source.numel() * (target if non_blocking else source).element_size()))
        for temporary in reversed(held):
            temporary.free()
    elif not target.is_contiguous() or (non_blocking and not same_type):
        device.temporary(target.numel() * (source if non_blocking else target).element_size()).free()
    if target.device.type == "cpu":
        _read(device, target, source)
    else:
        device.host.copy(target, source)
    return target


def _read(device: Device, target: torch.Tensor, source: torch.Tensor) -> None:
    """Give the host the values that are known, or zeros."""
    known = device.host.view(source)
    if known is not None:
        target.copy_(known)
    elif target.numel() * target.element_size() <= _READ_LIMIT:
        kind = str(source.dtype).removeprefix("torch.")
        device.caveats.add("value", f"values of {kind} tensors that are read from the device are taken as 0")
        target.zero_()


_READ_LIMIT = 1 << 26
"""Bytes that are zeroed on the host when unknown values are read; larger ones (checkpoints) are left as they are."""


def _same_dense_order(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.is_contiguous() and b.is_contiguous():
        return True
    if a.size() != b.size() or a.stride() != b.stride():
        return False
    step = 1
    for stride, size in sorted(zip(a.stride(), a.size(), strict=True)):
        if size == 1:
            continue
        if stride != step:
            return False
        step *= size
    return True
