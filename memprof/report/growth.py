"""Growth for people: what a sample costs, by category, where that changes, and where two configurations meet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Group as Lines
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from memprof.categories.category import CATEGORIES, Category
from memprof.report.console import COLORS
from memprof.report.text import clean
from memprof.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable
    from fractions import Fraction

    from memprof.analysis.crossover import Crossover
    from memprof.analysis.fit import Line
    from memprof.analysis.growth import Fit, Growth, GrowthGroup

__all__ = ["config_name", "growth_report", "shared_config", "unit_of"]

SAID = ("model", "precision", "quant", "mbs", "seq", "recipe")
"""Settings that are worth naming even where they do not differ."""
CAUSES = 12
"""How many causes of a category are listed with ``--by``."""


def unit_of(growth: Growth) -> str:
    """Return what one step on the x axis is."""
    return {"mbs": "sample", "seq": "token"}[growth.over]


def shared_config(growth: Growth) -> str:
    """Name the settings that all groups share, as far as they are worth naming."""
    different = _different(growth)
    first = growth.groups[0].config
    return clean(", ".join(_said(name, first[name]) for name in SAID if name in first and name not in different))


def config_name(growth: Growth, index: int) -> str:
    """Name a group by the settings in which the groups differ; by all where there is one group only."""
    config = growth.groups[index].config
    different = [name for name in _different(growth) if name in config]
    if not different:
        return shared_config(growth)
    return clean(", ".join(_said(name, config[name]) for name in different), 120)


def _different(growth: Growth) -> list[str]:
    """List the settings of which the groups have several values; a point that failed may not have them all."""
    names = dict.fromkeys(name for group in growth.groups for name in group.config)
    values = {name: {repr(group.config[name]) for group in growth.groups if name in group.config} for name in names}
    return [name for name in names if len(values[name]) > 1]


def _said(name: str, value: Any) -> str:
    return str(value) if name in ("model", "precision", "quant", "recipe") else f"{name} {value}"


def growth_report(growth: Growth) -> Lines:
    """Render growth: the points, a table of fits for each configuration, breaks, crossovers."""
    from memprof.report.sweep import points_table

    parts: list[RenderableType] = [points_table(growth)]
    for index, group in enumerate(growth.groups):
        if group.total is None:
            continue
        parts += [Text(), _fits(growth, index, group), *_breaks(growth, group)]
        if growth.by:
            parts += [Text(), _causes(growth, growth.by, group)]
    for crossover in growth.crossovers:
        parts += [Text(), *_crossover(growth, crossover)]
    parts += [Text(f"note: {clean(note, 400)}", style="dim") for note in growth.notes]
    return Lines(*parts)


def _fits(growth: Growth, index: int, group: GrowthGroup) -> Table:
    unit = unit_of(growth)
    table = Table(
        box=None,
        padding=(0, 2, 0, 0),
        header_style="dim",
        title=f"{config_name(growth, index)}: at the peak, least squares over {growth.over}",
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
        ("  steady (after optimizer.step)", group.steady),
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


def per_unit(slope: Fraction) -> str:
    """Format bytes per sample or token; a slope may be less than a byte."""
    return format_bytes(round(slope)) if abs(slope) >= 1 or not slope else f"{float(slope):.2g} B"


def _breaks(growth: Growth, group: GrowthGroup) -> Iterable[Text]:
    named: list[tuple[str, Fit | None]] = [("allocated", group.total)]
    named += [(category.value, fit) for category, fit in group.categories.items()]
    for name, fit in named:
        if fit is None:
            continue
        for number, each in enumerate(fit.breaks):
            left, right = fit.pieces[number], fit.pieces[number + 1]
            slopes = " ".join(
                f"{per_unit(piece.slope)} a {unit_of(growth)} {where}"
                for piece, where in ((left, f"up to {each.after},"), (right, f"from {each.at} on:"))
                if piece.points > 1
            )
            text = Text("break  ", style="yellow")
            text.append(f"{name} between {growth.over} {each.after} and {each.at}: ", style="bold")
            text.append(f"{slopes} {clean(each.why, 600)}", style="default")
            yield text


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
    below = crossover.cheaper_below
    above = crossover.b if below == crossover.a else crossover.a
    text = Text("crossover  ", style="bold magenta")
    text.append(f"{growth.over} {float(crossover.at):.1f}", style="bold")
    text.append(f" (between {float(crossover.low):.1f} and {float(crossover.high):.1f}", style="default")
    if crossover.extrapolated:
        text.append(", beyond what was measured", style="default")
    if crossover.predicted is not None:
        text.append(f"; the two lines alone say {float(crossover.predicted):.1f}", style="default")
    text.append(
        f"): below it {config_name(growth, below)} needs less, above it {config_name(growth, above)}.", style="default"
    )
    yield text
    yield Text(f"  There {config_name(growth, crossover.b)} holds, against {config_name(growth, crossover.a)}:")
    for category, size in sorted(crossover.paid_by.items(), key=lambda pair: -pair[1]):
        slope = crossover.per_sample[category]
        if abs(size) * 1000 >= max(map(abs, crossover.paid_by.values())) and (size or slope):
            yield _paid(category, size, slope, unit_of(growth))


def _paid(category: Category, size: int, slope: Fraction, unit: str) -> Text:
    text = Text("    ")
    text.append(f"{category.value:16}", style=COLORS[category])
    text.append(f"{_signed(size):>12}   {_signed(round(slope)):>12} a {unit}", style="default")
    return text


def _signed(size: int) -> str:
    return f"{'+' if size > 0 else ''}{format_bytes(size)}"
