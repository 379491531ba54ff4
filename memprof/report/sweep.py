"""What a sweep made, for people: a table of its points."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group as Lines
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from memprof.report.growth_words import config_name, shared_config
from memprof.report.sweep_progress import STYLES
from memprof.report.text import clean
from memprof.units import format_bytes

if TYPE_CHECKING:
    from memprof.analysis.growth import Growth
    from memprof.analysis.sweep import Figures

__all__ = ["points_table", "sweep_report"]


def sweep_report(growth: Growth, *, folder: str, new: int) -> Lines:
    """Render the points of a sweep.

    Parameters
    ----------
    growth
        Of all its points.
    folder
        Where they are.
    new
        How many were captured just now.

    """
    points = [member.point for group in growth.groups for member in group.points]
    counts = {status: sum(point.status == status for point in points) for status in STYLES}
    said = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    parts: list[RenderableType] = [
        Text(shared_config(growth), style="bold"),
        points_table(growth),
        Text(),
        Text(f"{len(points)} points ({said}), {new} of them new, in {clean(folder)}"),
        Text(f"next: memprof growth {clean(folder)}"),
    ]
    parts += [Text(f"note: {clean(note, 400)}", style="dim") for note in growth.notes]
    return Lines(*parts)


def points_table(growth: Growth) -> Table:
    """Return one row for each point: what was allocated, reserved and used at its peak, or why there is none."""
    several = len(growth.groups) > 1
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    rows = [
        (_sizes(member.point.figures), index, member)
        for index, group in enumerate(growth.groups)
        for member in group.points
    ]
    shown = [column for column in range(len(COLUMNS)) if any(sizes[column] is not None for sizes, _, _ in rows)]
    if several:
        table.add_column("differs in")
    table.add_column(growth.over, justify="right", no_wrap=True)
    for column in shown:
        table.add_column(COLUMNS[column], justify="right", no_wrap=True)
    table.add_column("", overflow="fold")
    for sizes, index, member in rows:
        status = member.point.status
        words = "" if status == "ok" else f"{status}: {clean(member.point.reason or 'no reason given', 300)}"
        figures = (sizes[column] for column in shown)
        table.add_row(
            *([config_name(growth, index)] if several else []),
            str(member.at),
            *("" if size is None else format_bytes(size) for size in figures),
            Text(words, style=STYLES[status]),
        )
    return table


COLUMNS = ("allocated", "reserved", "device used", "first step", "steady")


def _sizes(figures: Figures | None) -> tuple[int | None, ...]:
    """Return the figures of `COLUMNS`."""
    if figures is None:
        return (None,) * len(COLUMNS)
    return (
        figures.peak.size,
        figures.reserved,
        figures.device_used,
        None if figures.first_step is None else figures.first_step.size,
        None if figures.steady is None else figures.steady.size,
    )
