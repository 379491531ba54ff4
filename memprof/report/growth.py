"""Growth for people: what a sample costs, by category, where that changes, and where two configurations meet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group as Lines
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from memprof.categories.category import CATEGORIES
from memprof.report.console import COLORS
from memprof.report.findings import evidence_table
from memprof.report.growth_words import (
    break_words,
    cause_words,
    config_name,
    crossover_words,
    explanation_words,
    finding_words,
    per_unit,
    shared_config,
    unit_of,
)
from memprof.report.text import clean
from memprof.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memprof.analysis.crossover import Crossover
    from memprof.analysis.fit import Line
    from memprof.analysis.growth import Fit, Growth, GrowthGroup

__all__ = ["growth_report"]

EVIDENCE = 3
"""Rows of evidence of a finding; ``memprof explain`` shows more."""
CAUSES = 12
"""How many causes of a category are listed with ``--by``."""


def growth_report(growth: Growth) -> Lines:
    """Render growth: the points, a table of fits for each configuration, breaks, crossovers."""
    from memprof.report.sweep import points_table

    parts: list[RenderableType] = [Text(shared_config(growth), style="bold"), points_table(growth)]
    for index, group in enumerate(growth.groups):
        if group.total is None:
            continue
        parts += [Text(), _fits(growth, index, group)]
        parts += [
            Text.assemble(("break  ", "yellow"), (where, "bold"), f": {text}")
            for where, text in break_words(growth, group)
        ]
        for found in group.findings:
            parts.append(
                Text.assemble(
                    ("finding  ", "bold cyan"), (found.finding.id, "bold"), f": {finding_words(growth, found)}"
                )
            )
            parts.append(Padding(evidence_table(found.finding, EVIDENCE), (0, 0, 0, 2)))
        if growth.by:
            parts += [Text(), _causes(growth, growth.by, group)]
    for crossover in growth.crossovers:
        parts += [Text(), *_crossover(growth, crossover)]
    parts += [Text(f"note: {clean(note, 400)}", style="dim") for note in growth.notes]
    return Lines(*parts)


def _fits(growth: Growth, index: int, group: GrowthGroup) -> Table:
    unit = unit_of(growth)
    name = f"{config_name(growth, index)}: " if len(growth.groups) > 1 else ""
    table = Table(
        box=None,
        padding=(0, 2, 0, 0),
        header_style="dim",
        title=f"{name}at the peak, least squares over {growth.over}",
        title_justify="left",
    )
    table.add_column("category")
    for name in (
        f"per {unit}",
        "fixed",
        "max error",
        "from last break on",
        f"at {growth.over} {group.measured[-1].at}",
    ):
        table.add_column(name, justify="right")
    table.add_column(f"own maximum per {unit}", justify="right")
    for category in CATEGORIES:
        fit, own = group.categories[category], group.own_maximum[category]
        if any(value for _, value in (*fit.values, *own.values)):
            _fit_row(table, Text(category.value, style=COLORS[category]), fit, own.line)
    rows = (
        ("allocated", group.total),
        ("  first step", group.first_step),
        ("  steady step", group.steady),
        ("reserved", group.reserved),
        ("device used", group.device_used),
    )
    for name, total in rows:
        if total is not None:
            _fit_row(table, Text(name, style="bold"), total, None)
    return table


def _fit_row(table: Table, name: Text, fit: Fit, own: Line | None) -> None:
    table.add_row(
        name,
        per_unit(fit.line.slope),
        format_bytes(round(fit.line.fixed)),
        format_bytes(fit.line.max_error),
        f"{per_unit(fit.last.slope)} (from {fit.last.low})" if fit.breaks else _curve(fit),
        format_bytes(fit.values[-1][1]),
        "" if own is None else per_unit(own.slope),
    )


def _curve(fit: Fit) -> str:
    return "" if fit.curve is None else f"quadratic: {float(fit.curve.quadratic):,.1f} B x²"


def _causes(growth: Growth, by: str, group: GrowthGroup) -> Table:
    unit = unit_of(growth)
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", title=f"by {by}", title_justify="left")
    table.add_column("category")
    table.add_column(by, overflow="fold")
    for name in (f"per {unit}", "fixed", "max error", f"at {growth.over} {group.measured[-1].at}"):
        table.add_column(name, justify="right")
    for category in CATEGORIES:
        causes = [(name, fit) for (of, name), fit in group.causes.items() if of is category]
        causes.sort(key=lambda pair: -pair[1].values[-1][1])
        for cause, fit in causes[:CAUSES]:
            table.add_row(
                Text(category.value, style=COLORS[category]),
                "not known" if cause is None else clean(cause, 100),
                per_unit(fit.line.slope),
                format_bytes(round(fit.line.fixed)),
                format_bytes(fit.line.max_error),
                format_bytes(fit.values[-1][1]),
            )
        if len(causes) > CAUSES:
            table.add_row("", f"{len(causes) - CAUSES} smaller", "", "", "", "")
    return table


def _crossover(growth: Growth, crossover: Crossover) -> Iterable[Text]:
    where, text = crossover_words(growth, crossover)
    yield Text.assemble(("crossover  ", "bold magenta"), (where, "bold"), f": {text}")
    heading, causes = cause_words(growth, crossover)
    yield Text(heading)
    for explanation in explanation_words(growth, crossover):
        yield Text.assemble(("  because  ", "bold cyan"), explanation)
    for size, cause in causes:
        yield Text(f"  {size:>11}  {cause}")
