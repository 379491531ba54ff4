"""Workspaces that NVIDIA's libraries hold: taken from the allocator once per handle and never given back."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Libraries"]


class Libraries:
    """Handles that exist. A thread has its own handles, so backward takes its workspaces a second time.

    Parameters
    ----------
    cublas_bytes, cublas_lt_bytes
        Workspace sizes of the card (``ATen/cuda/CublasHandlePool.cpp``).
    take
        Allocates bytes on the current stream.
    stream
        Returns the current stream.
    make_cublas
        Called before a handle of cuBLAS gets its workspace.
    """

    def __init__(
        self,
        *,
        cublas_bytes: int,
        cublas_lt_bytes: int,
        take: Callable[[int], int],
        free: Callable[[int], None],
        stream: Callable[[], int],
        make_cublas: Callable[[], None],
    ) -> None:
        self._bytes = {"cublas": cublas_bytes, "cublas_lt": cublas_lt_bytes}
        self._take = take
        self._free = free
        self._stream = stream
        self._make_cublas = make_cublas
        self._held: dict[tuple[str, int, int], int] = {}

    def cublas(self) -> None:
        """Use this thread's cuBLAS handle on the current stream."""
        self._use("cublas")

    def cublas_lt(self) -> None:
        """Use this thread's cuBLASLt workspace on the current stream."""
        self._use("cublas_lt")

    def clear(self) -> None:
        """Give all workspaces back, as ``torch._C._cuda_clearCublasWorkspaces`` does."""
        while self._held:
            self._free(self._held.popitem()[1])

    def _use(self, library: str) -> None:
        key = (library, threading.get_ident(), self._stream())
        if key not in self._held:
            self._make_cublas()
            self._held[key] = self._take(self._bytes[library])
