"""What a CUDA context takes of the address space beside the program's segments, and what it gives back.

The driver keeps its own allocations in the same chunks as the program's (`memprof.allocator.chunks`), so what it takes
and gives back moves the program's segments. What is here was seen in the calls of ``mmap`` that the driver made in
programs on an H200 (driver 580.159.04, CUDA 13.0); other cards and drivers will differ. Code of kernels, which is
loaded as it is needed, takes more than is here. Memory is not counted: the context's part of the card is in
`memprof.simulate.cards`. Nothing here depends on the process in which the simulation runs.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from memprof.allocator.chunks import Chunks

__all__ = ["Context"]

_MIB = 1 << 20
_BEGINNING = (32 * _MIB, 72 * _MIB)
"""What a new context takes, in this order; 24 MiB are left in the second chunk."""
_STACKS = 414 * _MIB
"""Taken after that, and given back when the first kernel is launched that needs more."""
_CODE = 2 * _MIB
"""Taken just before that."""
_LARGER_STACKS = (504 * _MIB, 2 * _MIB)
"""What is taken instead; 6 MiB are left in the chunk."""
_CHECKS = 10 * _MIB
"""Taken at the first kernel of `_CHECKING`; 8,654,848 bytes are mapped."""
_CUBLAS = 64 * _MIB
"""Taken with every handle of cuBLAS, of which each thread has one."""
_SILENT = frozenset(
    (
        *("empty", "empty_strided", "set_", "resize_", "record_stream", "_local_scalar_dense"),
        *("normal_", "uniform_", "random_"),
        *("mm", "addmm", "bmm", "baddbmm"),
    )
)
"""Ops after which the first stacks were still there: they launch nothing, or random numbers, or cuBLAS."""
_COPIES = frozenset(("copy_", "_to_copy", "clone"))
_CHECKING = frozenset(
    (
        *("sum", "mean", "mse_loss", "linalg_vector_norm", "_foreach_norm", "amax", "max", "argmax", "any", "all"),
        *("index", "index_select", "index_put_", "index_add_", "embedding", "embedding_dense_backward"),
        *("gather", "scatter", "scatter_", "scatter_add_", "cumsum", "topk", "sort", "multinomial"),
        *("nll_loss_forward", "nll_loss_backward", "nll_loss2d_forward"),
    )
)
"""Reductions, and ops whose kernels check indices."""


class Context:
    """Address space of one context, which is made by the first allocation.

    Parameters
    ----------
    chunks
        The driver's; None where addresses are ordered in another way, and this does nothing.
    lock
        Held by whoever takes segments.
    """

    def __init__(self, chunks: Chunks | None, lock: AbstractContextManager[bool]) -> None:
        self._chunks = chunks
        self._lock = lock
        self._stacks = 0
        self._threads: set[int] = set()
        self._computed = False
        self.made = chunks is None
        """Whether there is a context."""
        self.settled = chunks is None
        """Whether ops need not be told any more."""

    def make(self) -> None:
        """Take what a new context has."""
        if self._chunks is not None and not self.made:
            self.made = True
            for size in _BEGINNING:
                self._chunks.reserve(size)
            self._stacks = self._chunks.reserve(_STACKS)

    def ran(self, name: str, args: tuple[Any, ...]) -> None:
        """Note that an op ran, with all that it allocates; its base name decides what it is."""
        if self._chunks is None or name in _SILENT or (name in _COPIES and _is_plain_copy(args)):
            return
        with self._lock:
            self.make()
            if not self._computed:
                self._computed = True
                self._chunks.reserve(_CODE)
                self._chunks.unreserve(self._stacks, _STACKS)
                for size in _LARGER_STACKS:
                    self._chunks.reserve(size)
            if not self.settled and name in _CHECKING:
                self.settled = True
                self._chunks.reserve(_CHECKS)

    def cublas(self) -> None:
        """Make this thread's handle of cuBLAS, if it has none."""
        thread = threading.get_ident()
        with self._lock:
            if self._chunks is not None and thread not in self._threads:
                self._threads.add(thread)
                self._chunks.reserve(_CUBLAS)


def _is_plain_copy(args: tuple[Any, ...]) -> bool:
    """Tell whether a copy is one ``cudaMemcpyAsync``, which launches no kernel (``ATen/native/cuda/Copy.cu``)."""
    tensors = [each for each in args[:2] if isinstance(each, torch.Tensor)]
    if len({each.device for each in tensors}) > 1:
        return True
    return len({each.dtype for each in tensors}) == 1 and all(each.is_contiguous() for each in tensors)
