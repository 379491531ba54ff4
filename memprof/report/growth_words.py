"""Sentences about growth, the same on a terminal and in a page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memprof.report.text import clean
from memprof.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable
    from fractions import Fraction

    from memprof.analysis.crossover import Crossover
    from memprof.analysis.crossover_causes import CauseDifference
    from memprof.analysis.growth import Fit, Growth, GrowthGroup
    from memprof.analysis.growth_findings import GrowthFinding

__all__ = [
    "break_words",
    "cause_words",
    "config_name",
    "crossover_words",
    "explanation_words",
    "finding_words",
    "per_unit",
    "shared_config",
    "signed",
    "unit_of",
]

SAID = ("model", "precision", "quant", "mbs", "seq", "recipe", "source", "card")
"""Settings that are worth naming even where they do not differ."""
WORTH = 1000
"""What is less than a 1000th of the largest share is not said."""
CAUSES = 6
"""How many causes of a crossover are said."""


def unit_of(growth: Growth) -> str:
    """Return what one step on the x axis is."""
    return {"mbs": "sample", "seq": "token"}[growth.over]


def per_unit(slope: Fraction) -> str:
    """Format bytes per sample or token; a slope may be less than a byte."""
    return format_bytes(round(slope)) if abs(slope) >= 1 or not slope else f"{float(slope):.2g} B"


def signed(size: Fraction | int) -> str:
    """Format a difference with its sign."""
    return f"{'+' if size > 0 else ''}{format_bytes(round(size))}"


def shared_config(growth: Growth) -> str:
    """Name the settings that all groups share, as far as they are worth naming."""
    different = _different(growth)
    first = growth.groups[0].config
    return clean(
        ", ".join(_said(name, first[name]) for name in SAID if first.get(name) is not None and name not in different)
    )


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
    return f"{name} {value}" if name in ("mbs", "seq") or not isinstance(value, str) else value


def break_words(growth: Growth, group: GrowthGroup) -> Iterable[tuple[str, str]]:
    """Say where the lines of a group break: what and where, and then how and why."""
    steps = (("the first step's peak", group.first_step), ("the steady peak", group.steady))
    named: list[tuple[str, Fit | None]] = [("allocated", group.total)]
    # A step's peak that breaks where the total does says nothing new.
    named += [(name, fit) for name, fit in steps if _places(fit) != _places(group.total)]
    named += [(category.value, fit) for category, fit in group.categories.items()]
    for name, fit in named:
        for number, each in enumerate(fit.breaks if fit else ()):
            assert fit is not None
            slopes = " and ".join(
                f"{per_unit(piece.slope)} a {unit_of(growth)} {where}"
                for piece, where in (
                    (fit.pieces[number], f"up to {each.after}"),
                    (fit.pieces[number + 1], f"from {each.at} on"),
                )
                if piece.points > 1
            )
            yield f"{name} between {growth.over} {each.after} and {each.at}", f"{slopes}: {clean(each.why, 600)}"


def _places(fit: Fit | None) -> list[tuple[int, int]]:
    return [(each.after, each.at) for each in fit.breaks] if fit else []


def crossover_words(growth: Growth, crossover: Crossover) -> tuple[str, str]:
    """Say where two configurations cross, and what the one that needs less below saves and pays there."""
    below = crossover.cheaper_below
    above = crossover.b if below == crossover.a else crossover.a
    one, other = config_name(growth, below), config_name(growth, above)
    where = (
        f"{growth.over} {float(crossover.at):.1f}, between {float(crossover.low):.1f} and {float(crossover.high):.1f}"
    )
    if crossover.extrapolated:
        where += ", beyond what was measured"
    if crossover.predicted is not None:
        where += f" (two lines through all points cross at {float(crossover.predicted):.1f})"
    sign = 1 if below == crossover.b else -1
    sizes = {category.value: sign * size for category, size in crossover.paid_by.items()}
    least = max(map(abs, sizes.values())) // WORTH
    pays = [f"{name} {format_bytes(size)}" for name, size in _by_size(sizes) if size > least]
    saves = [f"{name} {format_bytes(-size)}" for name, size in _by_size(sizes) if -size > least]
    text = f"below it {one} needs less, above it {other}. There {one} saves {_list(saves)} and pays {_list(pays)}."
    return where, text


def _by_size(sizes: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(sizes.items(), key=lambda pair: -abs(pair[1]))


def _list(words: list[str]) -> str:
    return ", ".join(words) or "nothing"


def finding_words(growth: Growth, found: GrowthFinding) -> str:
    """Say what a cause takes, by the sample, and what a sample would cost without it."""
    unit = unit_of(growth)
    text = f"{clean(found.finding.title, 300)}, at {growth.over} {found.at}"
    if found.slope and found.finding.per_sample is not None:
        text += f"; {per_unit(found.slope)} a {unit}"
    if found.finding.gives_back is not None:
        lower = format_bytes(found.finding.gives_back) if found.finding.gives_back > 0 else "no"
        text += f". Without it the peak is {lower} lower"
        if found.given_back and found.without and found.total and found.given_back * WORTH > found.total:
            text += f", and a {unit} costs {per_unit(found.without)} instead of {per_unit(found.total)}"
    return text


def explanation_words(growth: Growth, crossover: Crossover) -> list[str]:
    """Say which findings explain that one configuration grows faster than the other, and how much of it."""
    dear = config_name(growth, crossover.cheaper_below)
    return [
        f"{clean(each.finding.title.partition(':')[0], 200)} ({each.finding.id}): without it a {unit_of(growth)} costs "
        f"{per_unit(each.per_unit)} less with {dear}, {float(each.share):.1%} of the difference"
        for each in crossover.explained_by
    ]


def cause_words(growth: Growth, crossover: Crossover) -> tuple[str, list[tuple[str, str]]]:
    """Say which tensors make the one that needs less below grow faster: a heading, then bytes and cause of each."""
    below = crossover.cheaper_below
    above = crossover.b if below == crossover.a else crossover.a
    sign = 1 if below == crossover.b else -1
    total = sign * sum(crossover.per_sample.values())
    heading = (
        f"A {unit_of(growth)} costs {signed(total)} with {config_name(growth, below)}, against "
        f"{config_name(growth, above)}:"
    )
    return heading, [
        (signed(sign * cause.per_sample), _cause(cause, mine=below == crossover.b))
        for cause in crossover.causes[:CAUSES]
        if cause.per_sample
    ]


def _cause(cause: CauseDifference, *, mine: bool) -> str:
    """Name a cause, as it is in the other configuration and in the one that is talked about."""
    a, b = (cause.op_a, cause.dtype_a), (cause.op_b, cause.dtype_b)
    before, after = (a, b) if mine else (b, a)
    parts = [cause.category.value, cause.finer or "", cause.module or ""]
    for was, becomes in zip(before, after, strict=True):
        parts.append(becomes or was or "" if was == becomes or not (was and becomes) else f"{was} -> {becomes}")
    if before == (None, None):
        parts.append("(only here)")
    elif after == (None, None):
        parts.append("(only there)")
    return clean(" ".join(part for part in parts if part), 200)
