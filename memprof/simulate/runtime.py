"""``torch.cuda`` on top of the simulated device: what a CUDA build has in ``torch._C`` comes from here instead.

Only that boundary is filled in, so that all of ``torch.cuda`` is torch's own code: counters, statistics, snapshots and
history behave (and fail) as they do there. Functions are those of ``torch/csrc/cuda/Module.cpp`` of torch 2.13; those
that a later or earlier torch has besides are missing, as in a CPU build.
"""

# ruff: noqa: PLW0108  # `Device.reset` replaces memory, history and libraries: they are looked up at every call

from __future__ import annotations

import importlib
import time
import types
import uuid
from typing import TYPE_CHECKING, Any

import torch

from memprof.errors import UnsupportedError
from memprof.simulate.real_runtime import replace_functions

if TYPE_CHECKING:
    from collections.abc import Callable

    from memprof.simulate.device import Device

__all__ = ["install_runtime"]

CUDA_VERSION = "13.0"
"""CUDA that the simulated torch says it was built with."""
CUDNN_VERSION = 91900
"""cuDNN that goes with it."""


def install_runtime(device: Device) -> None:
    """Fill in ``torch._C`` and what ``torch.cuda`` bound from it when it was imported."""
    # Lazy classes hold on to modules' names, so the modules stay and only their contents change.
    functions = _functions(device)
    replace_functions(functions)
    cuda: Any = torch.cuda
    torch.version.cuda = CUDA_VERSION
    torch._C._has_cuda = True
    torch._C._CudaStreamBase = _stream_base(device)  # type: ignore[misc,assignment]
    torch._C._CudaEventBase = _Event  # type: ignore[misc,assignment]
    importlib.reload(cuda.streams)
    for name in ("Stream", "Event", "ExternalStream"):
        setattr(cuda, name, getattr(cuda.streams, name))
    cuda._cudart = torch._C._cudart = _cudart(device)  # type: ignore[attr-defined]  # of a CUDA build
    cuda._exchange_device = functions["_cuda_exchangeDevice"]
    cuda._maybe_exchange_device = functions["_cuda_maybeExchangeDevice"]
    cuda.graphs._cuda_isCurrentStreamCapturing = functions["_cuda_isCurrentStreamCapturing"]
    cuda._get_device_properties = lambda _index: _properties(device)
    cuda.default_generators = (_Generator(),)
    cuda.init()
    _annotate(device)


def _functions(device: Device) -> dict[str, Callable[..., Any]]:
    def current(_index: int = 0) -> tuple[int, int, int]:
        return device.memory.stream, 0, 1

    def set_stream(stream_id: int = 0, **_where: int) -> None:
        device.memory.stream = stream_id

    def set_device(index: int) -> None:
        if index > 0:
            raise torch.AcceleratorError("CUDA error: invalid device ordinal")

    def exchange(index: int) -> int:
        if index > 0:
            set_device(index)
        return 0 if index >= 0 else -1

    def record(  # noqa: PLR0917  # torch's signature
        enabled: str | None,
        context: str | None,
        _stacks: str,
        max_entries: int,
        clear_history: bool,  # noqa: FBT001  # torch's signature
        _compile_context: bool,  # noqa: FBT001
        global_record_annotations: bool,  # noqa: FBT001
        skip_actions: list[str],
        _pinned_host_memory: bool = False,  # noqa: FBT001, FBT002  # since torch 2.14
        record_cuda: bool = True,  # noqa: FBT001, FBT002
    ) -> None:
        if not record_cuda:
            return
        device.history.start(
            enabled,
            context=context,
            max_entries=max_entries,
            clear=clear_history,
            annotate=global_record_annotations,
            skip=skip_actions,
        )

    def set_metadata(metadata: str) -> None:
        device.history.metadata = metadata

    def snapshot(pool: Any = None) -> dict[str, Any]:
        traces = not (isinstance(pool, tuple) and len(pool) == 3 and not pool[2])
        return device.snapshot(traces=traces)

    return {
        "_cuda_init": lambda: None,
        "_cuda_getDeviceCount": lambda: 1,
        "_cuda_getDevice": lambda: 0,
        "_cuda_setDevice": set_device,
        "_cuda_exchangeDevice": exchange,
        "_cuda_maybeExchangeDevice": exchange,
        "_cuda_isInBadFork": lambda: False,
        "_cuda_getArchFlags": lambda: "sm_{}{}".format(*device.card.capability),
        "_cuda_canDeviceAccessPeer": lambda _a, _b: False,
        "_cuda_synchronize": lambda: device.memory.synchronize(),
        "_cuda_ipc_collect": lambda: None,
        "_cuda_sleep": lambda _cycles: None,
        "_cuda_getCurrentStream": current,
        "_cuda_getDefaultStream": lambda _index=0: (0, 0, 1),
        "_cuda_getCurrentRawStream": lambda _index=0: device.memory.stream,
        "_cuda_setStream": set_stream,
        "_cuda_isCurrentStreamCapturing": lambda: False,
        "_cuda_getCurrentBlasHandle": lambda: 0,
        "_cuda_set_sync_debug_mode": lambda _mode: None,
        "_cuda_get_sync_debug_mode": lambda: 0,
        "_cuda_get_cudnn_benchmark_limit": lambda: 10,
        "_cuda_set_cudnn_benchmark_limit": lambda _limit: None,
        "_cuda_clearCublasWorkspaces": lambda: device.libraries.clear(),
        "_cuda_emptyCache": lambda: device.memory.empty_cache(),
        "_cuda_memoryStats": lambda _index=0: device.memory.statistics(),
        "_cuda_resetPeakMemoryStats": lambda _index=0: device.memory.reset_peaks(),
        "_cuda_resetAccumulatedMemoryStats": lambda _index=0: device.memory.reset_accumulated(),
        "_cuda_hostMemoryStats": dict,
        "_cuda_resetPeakHostMemoryStats": lambda: None,
        "_cuda_resetAccumulatedHostMemoryStats": lambda: None,
        "_cuda_setMemoryFraction": lambda fraction, _index=0: device.memory.set_fraction(fraction),
        "_cuda_getMemoryFraction": lambda _index=0: device.memory.fraction,
        "_cuda_getAllocatorBackend": lambda: "native",
        "_cuda_record_memory_history": record,
        "_cuda_memorySnapshot": snapshot,
        "_cuda_setMemoryMetadata": set_metadata,
        "_cuda_getMemoryMetadata": lambda: device.history.metadata,
    }


def _properties(device: Device) -> types.SimpleNamespace:
    card = device.card
    return types.SimpleNamespace(
        name=card.name,
        major=card.capability[0],
        minor=card.capability[1],
        total_memory=card.total_bytes,
        multi_processor_count=card.multiprocessors,
        warp_size=32,
        max_threads_per_multi_processor=card.threads_per_multiprocessor,
        regs_per_multiprocessor=65536,
        shared_memory_per_multiprocessor=0,
        is_integrated=0,
        is_multi_gpu_board=0,
        uuid=uuid.UUID(int=0),
        gcnArchName=card.name,
    )


def _cudart(device: Device) -> types.SimpleNamespace:
    return types.SimpleNamespace(
        cudaMemGetInfo=lambda _index=0: device.memory.info(),
        cudaError=types.SimpleNamespace(success=0),
        cudaGetErrorString=lambda code: f"CUDA error {code}",
        cudaDeviceSynchronize=lambda: 0,
        cudaProfilerStart=lambda: 0,
        cudaProfilerStop=lambda: 0,
        cudaHostRegister=lambda *_args: 0,
        cudaHostUnregister=lambda *_args: 0,
    )


class _Generator:
    """State of the device's random numbers; nothing random happens there, so a seed and an offset are all of it."""

    def __init__(self) -> None:
        self._seed = 0
        self._offset = 0
        self.device = torch.device("cuda", 0)

    def manual_seed(self, seed: int) -> _Generator:
        self._seed, self._offset = seed % (1 << 64), 0
        return self

    def seed(self) -> int:
        self._seed = time.time_ns()
        return self._seed

    def initial_seed(self) -> int:
        return self._seed

    def get_state(self) -> torch.Tensor:
        state = torch.tensor([self._seed - (1 << 64) * (self._seed >> 63), self._offset], dtype=torch.int64)
        return state.view(torch.uint8)

    def set_state(self, state: torch.Tensor) -> _Generator:
        seed, self._offset = state.view(torch.int64).tolist()
        self._seed = seed % (1 << 64)
        return self


def _stream_base(device: Device) -> type:
    """Return the base of ``torch.cuda.Stream``: ids as torch gives them, and nothing runs."""
    fresh = iter(range(_FIRST_STREAM, 1 << 30))

    class StreamBase(torch.Stream):
        def __new__(  # noqa: PYI034  # torch subclasses it
            cls,
            priority: int = 0,
            stream_id: int | None = None,
            device_index: int = 0,
            device_type: int = 1,
            stream_ptr: int = 0,
        ) -> StreamBase:
            del priority, stream_ptr
            stream_id = next(fresh) if stream_id is None else stream_id
            return super().__new__(cls, stream_id=stream_id, device_index=device_index, device_type=device_type)

        @property
        def cuda_stream(self) -> int:
            return int(self.stream_id)

        def query(self) -> bool:
            return True

        def synchronize(self) -> None:
            device.memory.synchronize()

        @staticmethod
        def priority_range() -> tuple[int, int]:
            return 0, -5

    return StreamBase


_FIRST_STREAM = 1


class _Event:
    """Base of ``torch.cuda.Event``: work on the device is done as soon as it is queued."""

    def __new__(cls, *_args: Any, **_options: Any) -> _Event:  # noqa: PYI034  # the subclass is made by torch
        event = super().__new__(cls)
        event._time = 0.0
        return event

    _time: float
    cuda_event = 0
    device = torch.device("cuda", 0)

    def record(self, _stream: Any = None) -> None:
        self._time = time.perf_counter()

    def wait(self, _stream: Any = None) -> None:
        return None

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        return None

    def elapsed_time(self, end: _Event) -> float:
        return (end._time - self._time) * 1000

    def ipc_handle(self) -> bytes:
        raise UnsupportedError("CUDA events cannot be shared between processes on the simulated device; leave it out")


def _annotate(device: Device) -> None:
    """Tell the history of ``record_function`` regions, which the real recorder hears of in C++."""
    region: Any = torch.autograd.profiler.record_function
    enter, leave = region.__enter__, region.__exit__

    def on_enter(self: Any) -> Any:
        device.history.annotation(self.name, start=True)
        return enter(self)

    def on_exit(self: Any, *error: Any) -> Any:
        result = leave(self, *error)
        device.history.annotation(self.name, start=False)
        return result

    region.__enter__, region.__exit__ = on_enter, on_exit
