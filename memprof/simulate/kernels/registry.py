"""The table of ops with a memory behaviour of their own: filled by the modules of this package, read by the dispatcher.

A *kernel* replaces the generic one: it makes the outputs itself. A *temporaries* function runs after the generic kernel
has allocated the outputs, and allocates and frees what the CUDA kernel takes in between. An op named in neither has its
temporaries unknown (a caveat), unless it is known to have none: pointwise ops, and the names in `PLAIN`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from memprof.simulate.device import Device

    Kernel = Callable[..., Any]

__all__ = ["COMPOSITE", "KERNELS", "PLAIN", "TEMPORARIES", "copied", "kernel", "plain", "temporaries"]

KERNELS: dict[str, Kernel] = {}
"""``aten::name.overload`` (``aten::name`` for the default overload) -> ``f(device, op, *args, **kwargs)``."""
TEMPORARIES: dict[str, Kernel] = {}
"""Base name without namespace and overload -> ``f(device, op, outputs, args, kwargs)``."""
PLAIN: set[str] = set()
"""Base names of ops whose CUDA kernels allocate their outputs and nothing else."""
COMPOSITE = (
    "addr",
    "addr.out",
    "all.dims",
    "all.dims_out",
    "any.dims",
    "any.dims_out",
    "native_group_norm",
    "native_layer_norm",
    "_fused_rms_norm",
    "silu_backward",
    "mish_backward",
    "_chunk_cat",
    "_chunk_cat.out",
    "_grouped_mm",
    "linalg__powsum",
    "split_with_sizes_copy.out",
)
"""Ops with a CUDA kernel (or a structured one) *and* a composite one in ``native_functions.yaml`` of torch 2.13.

Without a CUDA registration the composite kernel would run, whose allocations are others. A test derives the list.
"""


def kernel(*names: str) -> Callable[[Kernel], Kernel]:
    """Register a whole kernel for ops, by full name."""

    def register(function: Kernel) -> Kernel:
        for name in names:
            KERNELS[f"aten::{name}"] = function
        return function

    return register


def temporaries(*names: str) -> Callable[[Kernel], Kernel]:
    """Register what the CUDA kernels of ops allocate besides their outputs, by base name."""

    def register(function: Kernel) -> Kernel:
        for name in names:
            TEMPORARIES[name] = function
        return function

    return register


def plain(*names: str) -> None:
    """Register ops that allocate their outputs and nothing else."""
    PLAIN.update(names)


def copied(device: Device, *tensors: torch.Tensor) -> None:
    """Take what contiguous copies of tensors need while a kernel runs; nothing for those that are contiguous."""
    held = [device.temporary(0 if each.is_contiguous() else each.numel() * each.element_size()) for each in tensors]
    for each in reversed(held):
        each.free()
