"""What PyTorch says when there is no memory left (``CUDACachingAllocator.cpp``, ``DeviceCachingAllocator::malloc``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memprof.allocator.counters import OutOfMemory

__all__ = ["format_size", "out_of_memory_message"]

_GUIDE = "https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-alloc-conf"


def format_size(size: int) -> str:
    """Write bytes as torch's messages do."""
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size > 1 << shift or (unit == "KiB" and size >= 1 << shift):
            return f"{size / (1 << shift):.2f} {unit}"
    return f"{size} bytes"


def out_of_memory_message(error: OutOfMemory, context_bytes: int) -> str:
    """Return the text of ``torch.OutOfMemoryError``.

    Parameters
    ----------
    context_bytes
        What the process holds outside of the allocator: part of "this process has ... in use".
    """
    total, free, requested = error.total or 0, error.free or 0, error.segment_bytes or 0
    allocated, reserved, private = error.allocated or 0, error.reserved or 0, error.private_pools or 0
    allowed = "" if error.allowed is None else f"{format_size(error.allowed)} allowed; "
    pools = f"with {format_size(private)} allocated in private pools (e.g., CUDA Graphs), " if private else ""
    return (
        f"CUDA out of memory. Tried to allocate {format_size(requested)}. GPU 0 has a total capacity of "
        f"{format_size(total)} of which {format_size(free)} is free. Including non-PyTorch memory, this process has "
        f"{format_size(reserved + context_bytes)} memory in use. {allowed}Of the allocated memory "
        f"{format_size(allocated + private)} is allocated by PyTorch, {pools}and "
        f"{format_size(reserved - allocated - private)} is reserved by PyTorch but unallocated. If reserved but "
        "unallocated memory is large try setting PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  "
        f"See documentation for Memory Management  ({_GUIDE})"
    )
