"""Where growth changes, and why: what the breakdown on both sides of a break says."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from memprof.analysis.sweep import Amount, Cause
from memprof.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memprof.analysis.fit import Line
    from memprof.analysis.sweep import Figures, PeakPlace
    from memprof.categories.category import Category

__all__ = ["Break", "find_breaks"]

NAMED = 2
"""How many causes a break names."""
WORTH = 50
"""A cause is named if it deviates by at least a 50th of the largest deviation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Break:
    """Between the measured points `after` and `at` one line ends and another begins."""

    after: int
    at: int
    """First point on the new line."""
    why: str


def find_breaks(
    runs: Sequence[Line], figures: Mapping[int, Figures], *, belongs: Category | None, over: str
) -> tuple[Break, ...]:
    """Explain the breaks between `runs`.

    Parameters
    ----------
    runs
        Lines through neighbouring points, from left to right.
    figures
        What was measured at every point, points rising.
    belongs
        Explain with causes of this category only; None for all.
    over
        Name of what grows.

    """
    breaks = []
    for left, right in itertools.pairwise(runs):
        place, other = figures[left.high].place, figures[right.low].place
        reasons = []
        if _where(place) != _where(other):
            reasons.append(f"the peak moves from {_where(place)} to {_where(other)}")
        reasons += _deviations(figures, left, right, belongs=belongs, over=over)
        breaks.append(
            Break(after=left.high, at=right.low, why="; ".join(reasons) or "nothing in the breakdown says why")
        )
    return tuple(breaks)


def _where(place: PeakPlace) -> str:
    what = " in ".join(part for part in (place.op, place.module) if part)
    return " of ".join(part for part in (what, place.phase) if part) or "an allocation without a name"


def _deviations(
    figures: Mapping[int, Figures], left: Line, right: Line, *, belongs: Category | None, over: str
) -> list[str]:
    """Name the causes that leave the line which they were on to the left (or, with one point there, to the right)."""
    xs = list(figures)
    begin, end = xs.index(left.low), xs.index(right.high)
    middle = xs.index(left.high)
    if middle > begin:
        known, unknown, side = (xs[middle - 1], xs[middle]), xs[middle + 1], "below"
    elif middle + 2 <= end:
        known, unknown, side = (xs[middle + 1], xs[middle + 2]), xs[middle], "above"
    else:
        return []
    causes = {cause for at in (*known, unknown) for cause in figures[at].causes}
    nothing = Amount(0, 0)
    found: list[tuple[int, Cause]] = []
    for cause in causes:
        if belongs is not None and cause.category is not belongs:
            continue
        a, b, there = (figures[at].causes.get(cause, nothing).requested for at in (*known, unknown))
        expected = a + Fraction(b - a, known[1] - known[0]) * (unknown - known[0])
        found.append((round(there - expected), cause))
    found.sort(key=lambda pair: (-abs(pair[0]), str(pair[1])))
    return [
        f"{_name(cause)} is {format_bytes(abs(size))} {'more' if size > 0 else 'less'} at {over} {unknown} than the "
        f"points {side} it say"
        for size, cause in found[:NAMED]
        if size and abs(size) * WORTH >= abs(found[0][0])
    ]


def _name(cause: Cause) -> str:
    """Name a cause in the order in which one asks: what, where, by what, of which type."""
    parts = [cause.category.value + (f" ({cause.finer})" if cause.finer else "")]
    parts += [text for text in (cause.module, cause.op, cause.dtype) if text]
    return " ".join(parts)
