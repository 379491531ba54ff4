"""Savings of fixes, for people and for machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table

from memprof.report.text import clean
from memprof.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memprof.analysis.savings import Saving

__all__ = ["fixes_json", "fixes_report"]


def fixes_report(savings: Sequence[Saving]) -> Table:
    """Render one row for each fix on each run."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("fix", "run"):
        table.add_column(name)
    for name in ("before", "after", "saves", "predicted", "off by"):
        table.add_column(name, justify="right", no_wrap=True)
    for each in savings:
        config = each.config
        run = f"{config['model']} {config['precision']} {config['quant']} mbs {config['mbs']} ({config['source']})"
        saved = each.before - each.after
        known = each.predicted is not None
        table.add_row(
            clean(each.fix),
            clean(run),
            format_bytes(each.before),
            format_bytes(each.after),
            _signed(saved),
            _signed(each.before - each.predicted) if each.predicted is not None else "not known",
            f"{(each.before - (each.predicted or 0) - saved) / saved:+.1%}" if known and saved else "",
        )
    return table


def fixes_json(savings: Sequence[Saving]) -> dict[str, Any]:
    """Return the same as plain values."""
    return {
        "format": 1,
        "fixes": [
            {
                "fix": each.fix,
                "config": dict(each.config),
                "before_bytes": each.before,
                "after_bytes": each.after,
                "predicted_bytes": each.predicted,
            }
            for each in savings
        ],
    }


def _signed(size: int) -> str:
    return format_bytes(size) if size >= 0 else f"-{format_bytes(-size)}"
