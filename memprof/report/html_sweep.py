"""A sweep as a page: lines of growth for each category, fits, breaks, crossovers."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any

from memprof.categories.category import CATEGORIES, Category
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
from memprof.report.html_colors import HTML_COLORS
from memprof.report.html_page import escaped, figure, heading, note, page, paragraph, plotly_objects, table
from memprof.units import format_bytes

if TYPE_CHECKING:
    from memprof.analysis.crossover import Crossover
    from memprof.analysis.growth import Fit, Growth, GrowthGroup

__all__ = ["sweep_page"]

LINES = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#aa3377", "#66ccee", "#777777", "#cc3311")
ACROSS = 3
"""Panels in a row."""


def sweep_page(growth: Growth, title: str) -> str:
    """Render a sweep as one self-contained page.

    Raises
    ------
    UnsupportedError
        If plotly is not installed.

    """
    parts = [
        paragraph(shared_config(growth)),
        heading(f"allocated at the peak over {growth.over}"),
        _totals(growth),
        *(_said(growth, crossover) for crossover in growth.crossovers),
        heading(f"categories at the peak over {growth.over}"),
        _categories(growth),
        heading("the points"),
        _points(growth),
    ]
    for index, group in enumerate(growth.groups):
        if group.total is not None:
            parts += [heading(f"{config_name(growth, index)}: least squares over {growth.over}"), _fits(growth, group)]
            parts += [paragraph(f"Break of {where}: {text}") for where, text in break_words(growth, group)]
            parts += [
                paragraph(f"Finding {found.finding.id}: {finding_words(growth, found)}") for found in group.findings
            ]
    return page(title, [*parts, *map(note, growth.notes)])


def _totals(growth: Growth) -> str:
    objects = plotly_objects()
    drawn = objects.Figure()
    for index, group in enumerate(growth.groups):
        if group.total is not None:
            _draw(objects, drawn, group.total, name=config_name(growth, index), color=LINES[index % len(LINES)])
    for crossover in growth.crossovers:
        drawn.add_vrect(
            x0=float(crossover.low), x1=float(crossover.high), fillcolor="#777777", opacity=0.2, line_width=0
        )
        drawn.add_vline(
            x=float(crossover.at),
            line={"width": 1, "dash": "dash"},
            annotation_text=f"crossover {float(crossover.at):.1f}",
        )
    drawn.update_xaxes(title=growth.over)
    drawn.update_yaxes(tickformat="~s", ticksuffix="B", rangemode="tozero")
    return figure(drawn, height=460)


def _draw(objects: Any, drawn: Any, fit: Fit, *, name: str, color: str, legend: bool = True, **where: int) -> None:
    """Draw the measured points and the lines between the breaks."""
    safe = escaped(name)
    xs, ys = (list(column) for column in zip(*fit.values, strict=True))
    drawn.add_trace(
        objects.Scatter(
            x=xs,
            y=ys,
            mode="markers",
            marker={"color": color, "size": 7},
            name=safe,
            legendgroup=safe,
            showlegend=legend,
            hovertemplate="%{x}: %{y:.5s}B",
        ),
        **where,
    )
    for piece in fit.pieces:
        ends = [piece.low, piece.high]
        if piece.points > 1:
            drawn.add_trace(
                objects.Scatter(
                    x=ends,
                    y=[float(piece.at(x)) for x in ends],
                    mode="lines",
                    line={"color": color, "width": 1.5},
                    legendgroup=safe,
                    showlegend=False,
                    hoverinfo="skip",
                ),
                **where,
            )


def _categories(growth: Growth) -> str:
    from plotly.subplots import make_subplots

    fitted = [group for group in growth.groups if group.total is not None]
    present = [
        category
        for category in CATEGORIES
        if any(size for group in fitted for _, size in group.categories[category].values)
    ]
    if not present:
        return note("no configuration has two points that ended well")
    drawn = make_subplots(
        rows=ceil(len(present) / ACROSS),
        cols=ACROSS,
        subplot_titles=[category.value for category in present],
        vertical_spacing=0.5 / ceil(len(present) / ACROSS) ** 1.5,
    )
    for number, category in enumerate(present):
        for index, group in enumerate(growth.groups):
            if group.total is not None:
                _draw(
                    plotly_objects(),
                    drawn,
                    group.categories[category],
                    name=config_name(growth, index),
                    color=LINES[index % len(LINES)],
                    legend=number == 0,
                    row=number // ACROSS + 1,
                    col=number % ACROSS + 1,
                )
    drawn.update_yaxes(tickformat="~s", ticksuffix="B", rangemode="tozero")
    return figure(drawn, height=110 + 220 * ceil(len(present) / ACROSS))


def _said(growth: Growth, crossover: Crossover) -> str:
    where, text = crossover_words(growth, crossover)
    heading, causes = cause_words(growth, crossover)
    return "".join(
        [
            paragraph(f"Crossover at {where}: {text}"),
            paragraph(heading),
            *(paragraph(f"Because: {each}") for each in explanation_words(growth, crossover)),
            table(("", "cause"), causes, numbers=(0,)),
        ]
    )


def _points(growth: Growth) -> str:
    rows = []
    for index, group in enumerate(growth.groups):
        for member in group.points:
            figures = member.point.figures
            sizes: tuple[int | None, ...] = (None, None, None)
            if figures is not None:
                sizes = (figures.peak.size, figures.reserved, figures.device_used)
            words = "" if member.point.status == "ok" else f"{member.point.status}: {member.point.reason}"
            rows.append(
                (
                    config_name(growth, index),
                    str(member.at),
                    *("" if size is None else format_bytes(size) for size in sizes),
                    words,
                )
            )
    header = ("configuration", growth.over, "allocated", "reserved", "device used", "")
    return table(header, rows, numbers=(1, 2, 3, 4))


def _fits(growth: Growth, group: GrowthGroup) -> str:
    rows, colors = [], []
    for category in CATEGORIES:
        fit = group.categories[category]
        if any(size for _, size in fit.values):
            rows.append(_fit_row(category, fit))
            colors.append(HTML_COLORS[category])
    assert group.total is not None
    rows.append(_fit_row(None, group.total))
    header = ("category", f"per {unit_of(growth)}", "fixed", "max error", f"at {growth.over} {group.measured[-1].at}")
    return table(header, rows, numbers=(1, 2, 3, 4), colors=colors, summed=True)


def _fit_row(category: Category | None, fit: Fit) -> tuple[str, ...]:
    return (
        "allocated" if category is None else category.value,
        per_unit(fit.line.slope),
        format_bytes(round(fit.line.fixed)),
        format_bytes(fit.line.max_error),
        format_bytes(fit.values[-1][1]),
    )
