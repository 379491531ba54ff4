"""What a CUDA build of torch has beside ``torch.cuda``, and programs use while they train: it works and costs nothing.

NVTX ranges, the scattering of ``DataParallel`` over its one device, copies of storages, and the profiler's CUDA
activity, of which nothing happens here.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

from memprof.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["install_companions"]


def install_companions() -> None:
    """Fill in what the CPU build lacks."""
    cuda: Any = torch.cuda
    core: Any = torch._C
    cuda.nvtx._nvtx = _Ranges()
    core._scatter = _scatter
    torch.nn.parallel._functions._get_stream = lambda device: _stream_of() if device.type == "cuda" else None
    storage: Any = torch.UntypedStorage
    plain_clone = storage.clone

    def clone(self: torch.UntypedStorage) -> torch.UntypedStorage:
        # What copy.deepcopy makes of a tensor. The storage's own constructor knows no CUDA in a CPU build.
        if not self.is_cuda:
            return plain_clone(self)  # type: ignore[no-any-return]
        return torch.empty(self.nbytes(), dtype=torch.uint8, device="cuda").untyped_storage().copy_(self)

    storage.clone = clone
    profiler: Any = torch.autograd.profiler.profile
    begin = profiler.__init__

    @functools.wraps(begin)
    def without_cuda(self: Any, *args: Any, **named: Any) -> None:
        # Else it falls back to CUDA events, which a CPU build does not have: a warning with a stack for every op.
        if named.get("use_device") == "cuda":
            named["use_device"] = None
        begin(self, *args, **named)

    profiler.__init__ = without_cuda


class _Ranges:
    """Stands for ``torch._C._nvtx``, which tells a profiler of ranges; none listens."""

    def __init__(self) -> None:
        self._depth = 0

    def rangePushA(self, _message: str) -> int:  # noqa: N802  # torch's name
        self._depth += 1
        return self._depth - 1

    def rangePop(self) -> int:  # noqa: N802  # torch's name
        self._depth -= 1
        return self._depth

    def rangeStartA(self, _message: str) -> int:  # noqa: N802  # torch's name
        return 0

    def rangeEnd(self, _handle: int) -> None:  # noqa: N802  # torch's name
        return None

    def markA(self, _message: str) -> None:  # noqa: N802  # torch's name
        return None


def _scatter(
    tensor: torch.Tensor, devices: Sequence[int], _sizes: Any = None, _dim: int = 0, streams: Any = None
) -> list[torch.Tensor]:
    """Move a batch to the device, as ``torch/csrc/cuda/comm.cpp`` does with each device's part: on its own stream."""
    if list(devices) != [0]:
        raise UnsupportedError(f"devices {list(devices)} cannot be simulated: one device is, cuda:0; use that alone")
    with torch.cuda.stream(None if streams is None else streams[0]):
        return [tensor.to("cuda")]


@functools.cache
def _stream_of() -> torch.cuda.Stream:
    """Return the stream that batches are copied on."""
    return torch.cuda.Stream()  # type: ignore[no-untyped-call]  # in torch
