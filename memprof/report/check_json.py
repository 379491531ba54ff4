"""What became of budgets, for machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memprof.report.as_json import FORMAT

if TYPE_CHECKING:
    from memprof.analysis.budget import Check, Spent

__all__ = ["check_json"]


def check_json(check: Check, *, name: str) -> dict[str, Any]:
    """Turn a check of the run called `name` into plain values."""
    return {
        "format": FORMAT,
        "file": name,
        "source": check.trace.source.value,
        "made_by": None if check.trace.made_by is None else dict(check.trace.made_by),
        "passed": check.passed,
        "ended": check.ended,
        "devices": [
            {
                "device": device.account.device.device,
                "classified_by": device.account.classification.by,
                "budgets": [_spent(spent) for spent in device.spent],
            }
            for device in check.devices
        ],
    }


def _spent(spent: Spent) -> dict[str, Any]:
    state = spent.state
    return {
        "budget": spent.budget.what,
        "what": spent.what,
        "limit_bytes": spent.budget.limit,
        "bytes": spent.size,
        "over_bytes": max(spent.over, 0),
        "event": spent.event,
        "failed_request_bytes": spent.failed,
        "allocated_bytes": state.allocated,
        "reserved_bytes": state.reserved,
        "categories": {category.value: size for category, size in state.categories.items()},
        "holders": [
            {
                "bytes": holder.size,
                "count": holder.count,
                "category": holder.category.value,
                "finer": holder.finer,
                "module": holder.place,
                "op": holder.op,
                "dtype": holder.dtype,
            }
            for holder in spent.holders
        ],
    }
