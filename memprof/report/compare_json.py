"""A comparison as plain values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memprof.analysis.compare import Change, Comparison

__all__ = ["compare_json"]

FORMAT = 1


def compare_json(comparison: Comparison) -> dict[str, Any]:
    """Turn a comparison into plain values; the rows' differences sum to ``difference_bytes``."""
    return {
        "format": FORMAT,
        "a": comparison.a.trace.path,
        "b": comparison.b.trace.path,
        "allocated_a_bytes": comparison.a.state.allocated,
        "allocated_b_bytes": comparison.b.state.allocated,
        "difference_bytes": comparison.difference,
        "categories": {
            category.value: {
                "bytes_a": size,
                "bytes_b": comparison.b.state.categories[category],
                "difference_bytes": comparison.b.state.categories[category] - size,
            }
            for category, size in comparison.a.state.categories.items()
        },
        "rows": [_row(change) for change in comparison.changes],
        "notes": list(comparison.notes),
    }


def _row(change: Change) -> dict[str, Any]:
    return {
        "category": change.category.value,
        "category_a": None if change.category_a is None else change.category_a.value,
        "finer": change.finer_b if change.count_b else change.finer_a,
        "module": change.module,
        "parameter": change.parameter,
        "caller": change.caller,
        "op": change.op,
        "op_a": change.op_a,
        "dtype_a": change.dtype_a,
        "dtype_b": change.dtype_b,
        "count_a": change.count_a,
        "count_b": change.count_b,
        "bytes_a": change.bytes_a,
        "bytes_b": change.bytes_b,
        "difference_bytes": change.difference,
    }
