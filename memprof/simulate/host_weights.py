"""Large weights on the host stay unwritten, so that a model of any size can be built in little memory.

Programs build a model on the CPU, fill it with random numbers, cast it, and send it to the device. On the simulated
device no value is ever read. Here the CPU kernels that such code runs leave a large floating-point tensor alone while
its pages have never been touched: they read as zero, which is what a fill with zeros or a copy of such a tensor would
have left as well. Random fills are what differs: such weights are zero. The host's generator goes on as far as they
would have taken it, up to a limit, so that what the program draws afterwards (lengths, an order, layers to drop) is
what it would have drawn.
Whether pages were written is asked of the kernel (``mincore``), so a tensor with data in it is computed as always.
"""

from __future__ import annotations

import ctypes
import mmap
import warnings
from typing import Any

import torch

__all__ = ["install_host_weights", "random_weights_cost_nothing"]

_LARGE = 1 << 20
"""Bytes from which on a tensor is looked at; smaller ones cost nothing to compute."""
_SAMPLES = 16
_DRAWN_LIMIT = 400_000_000
"""Numbers that are drawn in vain at most, in a process: one to two seconds."""
_CHUNK = 1 << 17
"""Numbers that are drawn at once; a multiple of the 16 by which torch's own kernels proceed."""
_FILLS = ("normal_", "uniform_", "zero_")
_CPU = "CPU"

_libc = ctypes.CDLL(None)
_libraries: list[Any] = []


def random_weights_cost_nothing() -> bool:
    """Tell whether this process leaves large random weights on the host unwritten."""
    return bool(_libraries)


def install_host_weights() -> None:
    """Register the CPU kernels; for the whole process, once."""
    if _libraries:
        return
    library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]  # untyped in torch
    _libraries.append(library)
    with warnings.catch_warnings():
        # torch warns that kernels are overridden: that is the purpose.
        warnings.simplefilter("ignore", UserWarning)
        for name in _FILLS:
            library.impl(name, _fill(name), _CPU, with_keyset=True, allow_override=True)
        library.impl("copy_", _copy(), _CPU, with_keyset=True, allow_override=True)
    # Reads what it has drawn, and draws again what lies outside: that would touch every page.
    init: Any = torch.nn.init
    draw = init._no_grad_trunc_normal_
    init._no_grad_trunc_normal_ = lambda tensor, *a, **k: tensor if is_unwritten(tensor) else draw(tensor, *a, **k)


def is_unwritten(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor is large, floating-point, on the host, and has no page that was ever touched.

    Pages are sampled: a tensor is made by one allocation and filled as a whole, or not at all.
    """
    nbytes = tensor.numel() * tensor.element_size()
    if nbytes < _LARGE or not tensor.dtype.is_floating_point or tensor.device.type != "cpu":
        return False
    if not tensor.is_contiguous():
        return False
    begin, resident = tensor.data_ptr(), (ctypes.c_ubyte * 1)()
    for sample in range(_SAMPLES):
        page = (begin + nbytes * (2 * sample + 1) // (2 * _SAMPLES)) // mmap.PAGESIZE * mmap.PAGESIZE
        if _libc.mincore(ctypes.c_void_p(page), ctypes.c_size_t(1), resident) or resident[0] & 1:
            return False
    return True


def _fill(name: str) -> Any:
    original = torch.library.get_kernel(f"aten::{name}", _CPU)
    drawn = 0

    def draw(keys: Any, tensor: torch.Tensor, args: Any, kwargs: Any) -> None:
        """Take the generator as far as filling `tensor` would, in a scratch of its dtype."""
        nonlocal drawn
        left = tensor.numel()
        drawn += left
        scratch = torch.empty(min(left, 2 * _CHUNK), dtype=tensor.dtype)
        while left and drawn <= _DRAWN_LIMIT:
            count = left if left < 2 * _CHUNK else _CHUNK
            original.call_boxed(keys, scratch[:count], *args, **kwargs)
            left -= count

    def fill(keys: Any, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        if is_unwritten(tensor):
            if name != "zero_":
                draw(keys, tensor, args, kwargs)
            return tensor
        result: torch.Tensor = original.call_boxed(keys, tensor, *args, **kwargs)
        return result

    return fill


def _copy() -> Any:
    original = torch.library.get_kernel("aten::copy_", _CPU)

    def copy(keys: Any, target: torch.Tensor, source: Any, non_blocking: bool = False) -> torch.Tensor:  # noqa: FBT001, FBT002
        if not isinstance(source, torch.Tensor):
            source = torch.tensor(source)  # the dispatcher takes numbers out of their 0-dimensional tensors
        if is_unwritten(target) and is_unwritten(source):
            return target
        result: torch.Tensor = original.call_boxed(keys, target, source, non_blocking)
        return result

    return copy
