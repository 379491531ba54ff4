"""A profile as plain values."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from memprof.trace.kineto_model import DeviceKind

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from memprof.analysis.profile import Cost, DeviceMemory, ProfileSummary
    from memprof.analysis.profile_check import MemoryCheck
    from memprof.analysis.profile_held import Held
    from memprof.analysis.profile_hta import HtaResult

__all__ = ["device_name", "profile_json"]

FORMAT = 1


def profile_json(
    summary: ProfileSummary,
    checks: Sequence[MemoryCheck],
    held: Held | None,
    hta: HtaResult | None,
    *,
    notes: Sequence[str],
    snapshot: Path | None,
) -> dict[str, Any]:
    """Turn a profile into plain values: times are nanoseconds, sizes bytes, both integers."""
    profile = summary.profile
    return {
        "format": FORMAT,
        "file": profile.path,
        "snapshot": None if snapshot is None else str(snapshot),
        "rank": profile.rank,
        "gpus": list(profile.devices),
        "duration_ns": summary.duration,
        "cpu_ns": summary.cpu,
        "kernels": summary.kernels,
        "kernel_ns": summary.kernel_time,
        "gpu_busy_ns": summary.busy,
        "steps": [{"step": step.number, "duration_ns": step.duration} for step in summary.steps],
        "memory": [_memory(device) for device in summary.devices],
        "modules": [
            {**_cost(cost), "held_at_peak_bytes": None if held is None else held.modules.get(cost.name, 0)}
            for cost in summary.modules
        ],
        "ops": [_cost(cost) for cost in summary.ops],
        "by_kernel": [{"name": cost.name, "calls": cost.calls, "gpu_ns": cost.device} for cost in summary.by_kernel],
        "check": [{**asdict(check), "agrees": check.agrees} for check in checks],
        "hta": None if hta is None else _hta(hta),
        "notes": list(notes),
    }


def device_name(kind: int, index: int) -> str:
    """Name a device of the profiler: cpu, cuda:0."""
    if kind == DeviceKind.CPU:
        return "cpu"
    return f"cuda:{index}" if kind == DeviceKind.CUDA else f"device type {kind}, number {index}"


def _memory(device: DeviceMemory) -> dict[str, Any]:
    return {
        "device": device_name(device.kind, device.index),
        "events": device.events,
        "allocated_bytes": device.allocated,
        "freed_bytes": device.freed,
        "peak_allocated_bytes": device.peak,
        "peak_reserved_bytes": device.peak_reserved,
        "peak_module": device.peak_module,
        "peak_op": device.peak_op,
    }


def _cost(cost: Cost) -> dict[str, Any]:
    return {
        "name": cost.name,
        "calls": cost.calls,
        "cpu_ns": cost.cpu,
        "gpu_ns": cost.device,
        "allocated_bytes": cost.allocated,
        "allocations": cost.allocations,
    }


def _hta(hta: HtaResult) -> dict[str, Any]:
    return {
        "idle_ns": hta.idle,
        "compute_ns": hta.compute,
        "non_compute_ns": hta.non_compute,
        "span_ns": hta.span,
        "kinds": [{"kind": kind, "ns": time} for kind, time in hta.kinds],
        "kernels": [{"kind": kind, "name": name, "ns": time} for kind, name, time in hta.kernels],
        "agreements": [{"what": a.what, "hta_ns": a.hta, "memprof_ns": a.memprof} for a in hta.agreements],
    }
