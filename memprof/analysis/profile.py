"""Time beside memory: what each module and op of a profile takes of the CPU, of the device, and of memory."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from memprof.analysis.profile_causes import NO_MODULE, NO_OP, find_causes
from memprof.analysis.profile_nesting import nest
from memprof.trace.kineto_model import DeviceKind, RangeKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memprof.analysis.profile_causes import Causes
    from memprof.trace.kineto_model import Profile

    Column = NDArray[np.int64]

__all__ = ["Cost", "DeviceMemory", "ProfileSummary", "StepTime", "summarize", "union_ns"]

STEP = re.compile(r"ProfilerStep#(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one module, one op or one kernel took. Times are nanoseconds."""

    name: str
    calls: int
    """Ranges of this name; of a module its ops; of a kernel its launches."""
    cpu: int
    """Time of the CPU that no inner range of another name took."""
    device: int
    """Time of the kernels, copies and sets that it launched, summed (they may overlap)."""
    allocated: int
    """Bytes that it allocated on the device that the profile is about, whether freed since or not."""
    allocations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """One step that the profiler marked."""

    number: int
    duration: int
    """Nanoseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMemory:
    """The memory events of one device."""

    kind: int
    """torch's ``DeviceType``."""
    index: int
    events: int
    allocated: int
    """Bytes, all allocations summed."""
    freed: int
    peak: int | None
    """Highest ``Total Allocated``; None where the file does not have it."""
    peak_reserved: int | None
    peak_module: str
    """Who allocated what reached the peak."""
    peak_op: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSummary:
    """One file. Times are nanoseconds."""

    profile: Profile
    steps: tuple[StepTime, ...]
    duration: int
    """From the first range, kernel or memory event to the end of the last."""
    cpu: int
    """Time of all threads that is inside some range."""
    kernels: int
    kernel_time: int
    """Of all kernels, copies and sets, summed."""
    busy: int
    """Time in which some device did something."""
    devices: tuple[DeviceMemory, ...]
    """CUDA devices first: `Cost.allocated` is about the first of them."""
    modules: tuple[Cost, ...]
    """The one that took most time of the device (or of the CPU, where there is none) first."""
    ops: tuple[Cost, ...]
    by_kernel: tuple[Cost, ...]


def summarize(profile: Profile) -> ProfileSummary:
    """Sum up a profile by module, op and kernel."""
    nesting = nest(profile)
    causes = find_causes(profile, nesting)
    ranges, kernels, memory = profile.ranges, profile.kernels, profile.memory
    launcher = nesting.launched_by(kernels, profile.launches, ranges)
    owner = nesting.innermost(memory.thread, memory.time)
    devices = _devices(profile, np.append(causes.module, 0)[owner], np.append(causes.op, 0)[owner], causes)
    born = memory.size > 0
    if devices:
        born &= (memory.device_kind == devices[0].kind) & (memory.device == devices[0].index)
    spent = kernels.end - kernels.start
    is_op = ranges.kind == RangeKind.OP

    def costs(cause: Column, names: tuple[str, ...]) -> tuple[Cost, ...]:
        of_kernel, of_memory = np.append(cause, 0)[launcher], np.append(cause, 0)[owner]
        return _costs(
            names,
            calls=_sums(cause[is_op], None, len(names)),
            cpu=_sums(cause, nesting.own, len(names)),
            device=_sums(of_kernel, spent, len(names)),
            allocated=_sums(of_memory[born], memory.size[born], len(names)),
            allocations=_sums(of_memory[born], None, len(names)),
        )

    used, row = np.unique(kernels.name, return_inverse=True)
    row = row.reshape(-1)
    nothing = np.zeros(len(used), np.int64)
    begins = [column.min() for column in (ranges.start, kernels.start, memory.time) if len(column)]
    ends = [column.max() for column in (ranges.end, kernels.end, memory.time) if len(column)]
    return ProfileSummary(
        profile=profile,
        steps=_steps(profile),
        duration=int(max(ends) - min(begins)),
        cpu=int(nesting.own.sum()),
        kernels=len(kernels),
        kernel_time=int(spent.sum()),
        busy=union_ns(kernels.start, kernels.end),
        devices=devices,
        modules=costs(causes.module, causes.modules),
        ops=costs(causes.op, causes.ops),
        by_kernel=_costs(
            tuple(profile.texts[name] for name in used.tolist()),
            calls=_sums(row, None, len(used)),
            cpu=nothing,
            device=_sums(row, spent, len(used)),
            allocated=nothing,
            allocations=nothing,
        ),
    )


def union_ns(start: Column, end: Column) -> int:
    """Return how long at least one of the intervals lasts."""
    if not len(start):
        return 0
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    gaps = np.maximum(start[1:] - reach[:-1], 0)
    return int(reach[-1] - start[0] - gaps.sum())


def _sums(row: Column, values: Column | None, count: int) -> Column:
    sums = np.zeros(count, np.int64)
    np.add.at(sums, row, 1 if values is None else values)
    return sums


def _costs(
    names: tuple[str, ...], *, calls: Column, cpu: Column, device: Column, allocated: Column, allocations: Column
) -> tuple[Cost, ...]:
    found = [
        Cost(
            name=name,
            calls=int(calls[row]),
            cpu=int(cpu[row]),
            device=int(device[row]),
            allocated=int(allocated[row]),
            allocations=int(allocations[row]),
        )
        for row, name in enumerate(names)
    ]
    whole = any(each.device for each in found)
    found = [each for each in found if each.calls or each.cpu or each.device or each.allocations]
    found.sort(key=lambda each: (-(each.device if whole else each.cpu), -each.cpu, -each.allocated, each.name))
    return tuple(found)


def _steps(profile: Profile) -> tuple[StepTime, ...]:
    ranges = profile.ranges
    found = {}
    for row in np.flatnonzero(ranges.kind == RangeKind.ANNOTATION).tolist():
        if match := STEP.fullmatch(profile.texts[int(ranges.name[row])]):
            found[int(match[1])] = StepTime(number=int(match[1]), duration=int(ranges.end[row] - ranges.start[row]))
    return tuple(found[number] for number in sorted(found))


def _devices(profile: Profile, module: Column, op: Column, causes: Causes) -> tuple[DeviceMemory, ...]:

    memory = profile.memory
    found = []
    for kind, index in sorted({*zip(memory.device_kind.tolist(), memory.device.tolist(), strict=True)}):
        rows = np.flatnonzero((memory.device_kind == kind) & (memory.device == index))
        size, allocated, reserved = memory.size[rows], memory.allocated[rows], memory.reserved[rows]
        peak = int(np.argmax(allocated))
        known = int(allocated.min()) >= 0
        found.append(
            DeviceMemory(
                kind=kind,
                index=index,
                events=len(rows),
                allocated=int(size[size > 0].sum()),
                freed=-int(size[size < 0].sum()),
                peak=int(allocated[peak]) if known else None,
                peak_reserved=int(reserved.max()) if known and kind == DeviceKind.CUDA else None,
                peak_module=causes.modules[module[rows[peak]]] if known else NO_MODULE,
                peak_op=causes.ops[op[rows[peak]]] if known else NO_OP,
            )
        )
    return tuple(sorted(found, key=lambda each: (each.kind != DeviceKind.CUDA, -each.allocated)))
