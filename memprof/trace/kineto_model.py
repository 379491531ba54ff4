"""What a torch.profiler trace says, as plain values: op ranges, kernels, and the allocator's memory events.

Times are nanoseconds since the epoch where the file says when its clock begins, else on the file's own clock. Texts are
interned once a file. A number that the file does not have is -1.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Column = NDArray[np.int64]

__all__ = ["DeviceKind", "Kernels", "Launches", "MemoryEvents", "Profile", "RangeKind", "Ranges", "Work"]


class RangeKind(IntEnum):
    """What a range on a CPU thread is."""

    OP = 0
    """An operator, or an autograd node."""
    ANNOTATION = 1
    """A region that the program, or the profiler, named."""
    MODULE = 2
    """The call of an ``nn.Module``, as the profiler's Python tracer names it."""


class Work(IntEnum):
    """What a device did."""

    KERNEL = 0
    COPY = 1
    SET = 2


class DeviceKind(IntEnum):
    """The two of ``c10/core/DeviceType.h`` that a memory event of interest has."""

    CPU = 0
    CUDA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranges:
    """Ranges on CPU threads, in the file's order; one row each."""

    name: Column
    """Row of `Profile.texts`."""
    kind: Column
    """`RangeKind` codes."""
    start: Column
    end: Column
    thread: Column
    """Row of `Profile.threads`."""
    external: Column
    """The profiler's number of the range, which a kernel's `external` repeats."""
    sequence: Column
    """Autograd's number: of the node that a forward op makes, or that a backward op is."""
    forward_thread: Column
    """Above 0 for an op that runs in backward: the autograd thread number of its forward op."""

    def __len__(self) -> int:
        """Count the ranges."""
        return len(self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """What devices did, in the file's order; one row each."""

    name: Column
    work: Column
    """`Work` codes."""
    start: Column
    end: Column
    device: Column
    stream: Column
    correlation: Column
    """Number that the launch repeats."""
    external: Column
    """`Ranges.external` of the range that launched it."""

    def __len__(self) -> int:
        """Count the kernels."""
        return len(self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launches:
    """Calls of the CUDA runtime or driver that started something on a device."""

    correlation: Column
    start: Column
    thread: Column

    def __len__(self) -> int:
        """Count the launches."""
        return len(self.correlation)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEvents:
    """The ``[memory]`` events in rising time; `Bytes` are positive for an allocation, negative for a free."""

    time: Column
    address: Column
    size: Column
    """Bytes of the whole block on CUDA, as requested on the CPU; negative where they are freed."""
    device_kind: Column
    """torch's ``DeviceType`` (`DeviceKind` has those of interest)."""
    device: Column
    allocated: Column
    """``Total Allocated`` of the device after the event."""
    reserved: Column
    """``Total Reserved`` of the device after the event; 0 on the CPU."""
    thread: Column

    def __len__(self) -> int:
        """Count the events."""
        return len(self.time)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One file."""

    path: str
    texts: tuple[str, ...]
    threads: tuple[str, ...]
    """``process/thread`` as the file has them."""
    ranges: Ranges
    kernels: Kernels
    launches: Launches
    memory: MemoryEvents
    epoch: bool
    """Whether times count from 1970."""
    devices: tuple[str, ...]
    """Names of the GPUs that the file lists."""
    rank: int | None
    python_calls: int
    """Python functions in the file (``with_stack``), which are not kept."""
    other_events: int
    """Events of kinds that are not kept."""
    notes: tuple[str, ...] = ()
    """What is missing from the file, in words, and what to do about it."""
