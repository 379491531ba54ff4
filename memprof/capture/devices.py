"""Where a recording comes from: what the recorder asks of a device, and the CUDA device's answer.

A device that is only simulated gives the same answers and is recorded by the same code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import torch

from memprof.capture.nvml import ProcessMemory
from memprof.errors import CaptureError

if TYPE_CHECKING:
    from memprof.capture.timeline import Timeline

__all__ = ["CpuDevice", "CudaDevice", "RecordedDevice"]

MAX_ENTRIES = 2_000_000
"""Entries of the ring buffer unless said otherwise: about 200 MB of file, far more than a few steps need."""


class RecordedDevice(Protocol):
    """A device whose allocations can be recorded."""

    source: str
    """`memprof.trace.Source` value that the file carries."""
    device: torch.device
    """As the profiler's memory events name it."""

    def start(self, *, stacks: str, max_entries: int) -> None:
        """Begin recording; nothing of the run exists yet."""

    def settle(self) -> None:
        """Say for good which device it is: the run is over, and may have chosen another one than was the current."""

    def stop(self, timeline: Timeline | None) -> dict[str, Any]:
        """End recording and return torch's snapshot dict; `timeline` is the profiler's record, if there is one."""

    def abandon(self) -> None:
        """End recording, whatever state it is in, and drop what was recorded."""

    def figures(self) -> dict[str, int | None]:
        """Read max_allocated_bytes, max_reserved_bytes and device_used_bytes, and what else it knows; nothing is reset.

        ``reserved_bytes`` is what the allocator has now, ``process_used_bytes`` what the driver says the process has.
        """

    def describe(self) -> dict[str, Any]:
        """Return what the file says of the device: card, driver, capability."""


class CudaDevice:
    """The current CUDA device, recorded by the allocator itself."""

    source = "recorded"

    def __init__(self) -> None:
        if not torch.cuda.is_available():
            raise CaptureError(
                "--device cuda: torch finds no CUDA device here; use --device cpu, or another torch build"
            )
        self.device = torch.device("cuda", torch.cuda.current_device())
        self._processes: dict[int, ProcessMemory] = {}
        """By device."""
        self._process_used: tuple[tuple[int, int], int | None] = (-1, -1), None
        """Reserved and device used at the last reading, and what was read."""

    def start(self, *, stacks: str, max_entries: int) -> None:
        """Switch on the allocator's history."""
        torch.cuda.init()  # type: ignore[no-untyped-call]
        # No stacks of frees: torch 2.11 loses an exception on its way when a free during it looks for its stack
        # (pytorch/pytorch#179536), and checkpointing ends a recomputation by an exception.
        options = {"max_entries": max_entries, "stacks": stacks, "context": "alloc"}
        try:
            torch.cuda.memory._record_memory_history(**options, global_record_annotations=True)  # type: ignore[arg-type]
        except TypeError:  # a torch that does not know annotations yet
            torch.cuda.memory._record_memory_history(**options)  # type: ignore[arg-type]

    def settle(self) -> None:
        """Take the device that was used most if nothing was allocated on what was current: a rank chooses its own."""
        allocated = [
            torch.cuda.memory_stats(device).get("allocation.all.allocated", 0)
            for device in range(torch.cuda.device_count())
        ]
        if max(allocated) and not allocated[self.device.index or 0]:
            self.device = torch.device("cuda", allocated.index(max(allocated)))

    def stop(self, timeline: Timeline | None) -> dict[str, Any]:  # noqa: ARG002 - the CPU needs it
        """Take the snapshot and switch the history off."""
        torch.cuda.synchronize()
        snapshot: dict[str, Any] = torch.cuda.memory._snapshot()
        self.abandon()
        return snapshot

    def abandon(self) -> None:
        """Switch the history off."""
        torch.cuda.memory._record_memory_history(enabled=None)

    def figures(self) -> dict[str, int | None]:
        """Read torch's peaks, and the device's use from ``cudaMemGetInfo``."""
        free, total = torch.cuda.mem_get_info()
        reserved = torch.cuda.memory_reserved()
        moment = reserved, total - free
        # Asking the driver may take milliseconds: not again where nothing has changed.
        if moment != self._process_used[0]:
            self._process_used = moment, self._read_process()
        return {
            "max_allocated_bytes": torch.cuda.max_memory_allocated(),
            "max_reserved_bytes": torch.cuda.max_memory_reserved(),
            "device_used_bytes": total - free,
            "reserved_bytes": reserved,
            "process_used_bytes": self._process_used[1],
        }

    def _read_process(self) -> int | None:
        if self.source != "recorded":
            return None
        device = torch.cuda.current_device()
        if device not in self._processes:
            self._processes[device] = ProcessMemory(str(getattr(torch.cuda.get_device_properties(device), "uuid", "")))
        return self._processes[device].read()

    def describe(self) -> dict[str, Any]:
        """Read the card's name, size and capability, and the driver's version."""
        properties = torch.cuda.get_device_properties(self.device)
        return {
            "card": properties.name,
            "card_memory_bytes": properties.total_memory,
            "capability": f"{properties.major}.{properties.minor}",
            "multiprocessors": properties.multi_processor_count,
            "driver": _driver_version(),
        }


class CpuDevice:
    """The CPU: no allocator keeps a history, so the profiler's memory events are turned into one."""

    source = "profiled"
    device = torch.device("cpu")

    def start(self, *, stacks: str, max_entries: int) -> None:
        """Do nothing: the profiler runs anyway."""

    def settle(self) -> None:
        """Do nothing: there is one CPU."""

    def stop(self, timeline: Timeline | None) -> dict[str, Any]:
        """Turn the memory events into a snapshot."""
        from memprof.capture.cpu import snapshot_of

        assert timeline is not None
        return snapshot_of(timeline)

    def abandon(self) -> None:
        """Do nothing."""

    def figures(self) -> dict[str, int | None]:
        """Return nothing known: the CPU's allocator keeps no peaks."""
        return {"max_allocated_bytes": None, "max_reserved_bytes": None, "device_used_bytes": None}

    def describe(self) -> dict[str, Any]:
        """Name the processor architecture."""
        import platform

        return {"card": platform.machine()}


def _driver_version() -> str | None:
    """Read the NVIDIA driver's version where Linux shows it; None elsewhere."""
    try:
        with open("/proc/driver/nvidia/version", encoding="ascii", errors="replace") as file:  # noqa: PTH123 - one line
            words = file.readline().split()
    except OSError:
        return None
    return next((word for word in words if word[:1].isdigit() and "." in word), None)
