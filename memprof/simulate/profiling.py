"""Tell torch's profiler of every allocation, as the CUDA allocator does."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["memory_reporter"]

_CUDA_0 = 0x0001
"""A ``c10::Device`` as it is passed: type 1 in the low byte, index 0 in the high one."""


def memory_reporter() -> Callable[[int, int, int, int], None]:
    """Return ``c10::reportMemoryUsageToProfiler``; it takes address, block bytes, allocated and reserved bytes.

    Block bytes are negative for a free. It does nothing unless a profiler records memory in the calling thread.
    """
    # PyDLL keeps the interpreter lock: the profiler calls back into nothing, and no other thread gets in between.
    library = ctypes.PyDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    function = library._ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE
    function.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_uint16]
    function.restype = None
    return lambda address, size, allocated, reserved: function(address, size, allocated, reserved, _CUDA_0)
