"""Machine-readable output, stable from the first release: `format` grows by one on a break."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from memprof.analysis.caveats import caveats_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memprof.analysis.breakdown import Breakdown, DeviceBreakdown
    from memprof.analysis.groups import Group
    from memprof.analysis.state import State

__all__ = ["breakdown_json", "to_text"]

FORMAT = 1


def to_text(value: Any) -> str:
    """Write a value as JSON, refusing NaN and infinities, which JSON does not have."""
    return json.dumps(value, indent=1, allow_nan=False)


def breakdown_json(
    breakdown: Breakdown, *, by: str | None = None, groups: Sequence[Sequence[Group]] = ()
) -> dict[str, Any]:
    """Turn a breakdown into plain values: bytes are integers of whole blocks unless a name says ``requested``.

    Parameters
    ----------
    breakdown
        What `break_down` returned.
    by, groups
        Name of a further grouping, and its groups for each device: become the device's ``by`` and ``groups``.

    """
    trace = breakdown.trace
    return {
        "format": FORMAT,
        "file": trace.path,
        "source": trace.source.value,
        "made_by": None if trace.made_by is None else dict(trace.made_by),
        "caveats": [asdict(caveat) for caveat in caveats_of(trace.environment)],
        "devices": [
            {
                **_device(device),
                **({} if by is None else {"by": by, "groups": [_group(group) for group in groups[row]]}),
            }
            for row, device in enumerate(breakdown.devices)
        ],
    }


def _device(device: DeviceBreakdown) -> dict[str, Any]:
    account = device.account
    return {
        "device": account.device.device,
        "events": len(account.device.events),
        "classified_by": account.classification.by,
        "base": _state(device.base),
        "peak": _state(device.peak),
        "end": _state(device.end),
        "at": None if device.at is None else _state(device.at),
        "max_reserved_bytes": device.max_reserved,
        "reported_max_allocated_bytes": device.reported.max_allocated,
        "reported_max_reserved_bytes": device.reported.max_reserved,
        "phases": [
            {"step": phase.step, "phase": phase.phase, "peak_allocated_bytes": phase.peak_allocated}
            for phase in device.phases
        ],
        "oom": [
            {
                "event": oom.event,
                "requested_bytes": oom.requested,
                "free_bytes": oom.free,
                "state": _state(oom.state),
            }
            for oom in device.oom
        ],
        "top": [_group(group) for group in device.top],
        "notes": list(account.notes),
    }


def _state(state: State) -> dict[str, Any]:
    return {
        "event": state.event,
        "allocated_bytes": state.allocated,
        "requested_bytes": state.requested,
        "pending_free_bytes": state.pending,
        "reserved_bytes": state.reserved,
        "device_used_bytes": state.device_used,
        "context_bytes": state.context,
        "other_processes_bytes": state.others,
        "managed_bytes": state.managed,
        "categories": {category.value: size for category, size in state.categories.items()},
        "requested": {category.value: size for category, size in state.categories_requested.items()},
        "counts": {category.value: count for category, count in state.counts.items()},
        "finer": {category.value: dict(finer) for category, finer in state.finer.items()},
    }


def _group(group: Group) -> dict[str, Any]:
    return {
        "bytes": group.size,
        "requested_bytes": group.requested,
        "count": group.count,
        "category": group.category.value,
        "finer": group.finer,
        "module": group.module,
        "op": group.op,
        "dtype": group.dtype,
        "shape": None if group.shape is None else list(group.shape),
        "parameter": group.parameter,
        "phase": group.phase,
        "saved": group.saved,
        "reason": group.reason,
        "stack": [f"{frame.name} ({frame.filename}:{frame.line})" for frame in group.stack],
    }
