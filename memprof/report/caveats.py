"""What a simulated run did not know, a line each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from memprof.report.text import clean
from memprof.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memprof.analysis.caveats import KnownCaveat

__all__ = ["caveat_line", "caveat_lines", "caveat_summary"]

LISTED = 5
"""Caveats that a report for people has; JSON has all."""


def caveat_line(what: str, size: int) -> Text:
    """Render one caveat; `size` is what it could matter, 0 where that cannot be said."""
    by = f" by {format_bytes(size)}" if size else ""
    return Text(f"uncertain{by}: {clean(what, 300)}", style="dim")


def caveat_lines(caveats: Sequence[KnownCaveat]) -> list[Text]:
    """Render the first few of `caveats`, and how many more there are."""
    lines = [caveat_line(caveat.what, caveat.bytes) for caveat in caveats[:LISTED]]
    left = len(caveats) - len(lines)
    return [*lines, Text(f"and {left:,} more: --json lists all", style="dim")] if left else lines


def caveat_summary(caveats: Sequence[KnownCaveat]) -> str:
    """Say in one line how many there are and what the largest is; nothing if there are none."""
    if not caveats:
        return ""
    largest = caveats[0]
    many = "1 caveat" if len(caveats) == 1 else f"{len(caveats):,} caveats, the largest"
    size = f", {format_bytes(largest.bytes)}" if largest.bytes else ""
    lists = "it" if len(caveats) == 1 else "them"
    return f"{many}: {clean(largest.what, 300)}{size}; memprof breakdown lists {lists}"
