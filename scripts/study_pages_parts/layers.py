"""Rows of a comparison with the layers of a model as one."""

from __future__ import annotations

from typing import Any

from memprof.analysis.sweep import collapse_layers

__all__ = ["layers_together"]

SAME = ("category", "finer", "module", "parameter", "caller", "op", "op_a", "dtype_a", "dtype_b")


def layers_together(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sum rows that differ in the number of a layer only, the largest difference first."""
    summed: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        known = {**row, **{name: collapse_layers(row[name]) for name in ("module", "parameter")}}
        key = tuple(known[name] for name in SAME)
        here = summed.setdefault(key, {**{name: known[name] for name in SAME}, "difference_bytes": 0})
        here["difference_bytes"] += row["difference_bytes"]
    return sorted(summed.values(), key=lambda row: -abs(row["difference_bytes"]))
