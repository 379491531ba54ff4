"""What a sweep made, for people: a table of its points."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group as Lines
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from memprof.report.growth import config_name, shared_config
from memprof.report.sweep_progress import STYLES
from memprof.report.text import clean
from memprof.units import format_bytes

if TYPE_CHECKING:
    from memprof.analysis.growth import Growth

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
        points_table(growth),
        Text(),
        Text(f"{len(points)} points ({said}), {new} of them new, in {clean(folder)}"),
        Text(f"next: memprof growth {clean(folder)}"),
    ]
    parts += [Text(f"note: {clean(note, 400)}", style="dim") for note in growth.notes]
    return Lines(*parts)


def points_table(growth: Growth) -> Table:
    """Return one row for each point: what was allocated, reserved and used at its peak, or why there is none."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(f"what differs, of {shared_config(growth)}" if len(growth.groups) > 1 else "configuration")
    for name in (growth.over, "allocated", "reserved", "device used", "first step", "steady"):
        table.add_column(name, justify="right")
    table.add_column("")
    for index, group in enumerate(growth.groups):
        for member in group.points:
            figures = member.point.figures
            sizes: tuple[int | None, ...] = (None,) * 5
            if figures is not None:
                steps = (_size(figures.first_step), _size(figures.steady))
                sizes = (figures.peak.size, figures.reserved, figures.device_used, *steps)
            status = member.point.status
            words = "" if status == "ok" else f"{status}: {clean(member.point.reason or 'no reason given', 300)}"
            table.add_row(
                config_name(growth, index),
                str(member.at),
                *("" if size is None else format_bytes(size) for size in sizes),
                Text(words, style=STYLES[status]),
            )
    return table


def _size(amount: tuple[int, int] | None) -> int | None:
    return None if amount is None else amount[0]
