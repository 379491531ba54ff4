"""Where growth changes, and why: what the breakdown on both sides of a break says."""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

from memprof.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memprof.analysis.fit import Line
    from memprof.analysis.sweep import Figures, PeakPlace
    from memprof.categories.category import Category

__all__ = ["Break", "find_breaks"]

NAMED = 2
"""How many places a break names for each kind of reason."""
WORTH = 50
"""A place is named if it deviates by at least a 50th of the largest deviation; a switch of ops where a 50th of all
bytes is at stake."""


class Place(NamedTuple):
    """Where tensors are held; what makes them there may change."""

    category: Category
    finer: str | None
    module: str | None

    def __str__(self) -> str:
        """Name it in the order in which one asks."""
        return " ".join(
            text for text in (self.category.value, f"({self.finer})" if self.finer else "", self.module or "") if text
        )


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
        reasons += _switches(figures[left.high], figures[right.low], belongs=belongs)
        reasons += _deviations(figures, left, right, belongs=belongs, over=over)
        breaks.append(
            Break(after=left.high, at=right.low, why="; ".join(reasons) or "nothing in the breakdown says why")
        )
    return tuple(breaks)


def _where(place: PeakPlace) -> str:
    what = " in ".join(part for part in (place.op, place.module) if part)
    return " of ".join(part for part in (what, place.phase) if part) or "an allocation without a name"


def _places(figures: Figures, belongs: Category | None) -> dict[Place, dict[str, int]]:
    """Return the requested bytes of every op and dtype, by place; of one category only where `belongs` names it."""
    places: dict[Place, dict[str, int]] = defaultdict(dict)
    for cause, amount in figures.causes.items():
        if belongs is None or cause.category is belongs:
            makers = places[Place(cause.category, cause.finer, cause.module)]
            maker = " ".join(text for text in (cause.op, cause.dtype) if text) or "something"
            makers[maker] = makers.get(maker, 0) + amount.requested
    return places


def _switches(before: Figures, after: Figures, *, belongs: Category | None) -> list[str]:
    """Name the places where another op (or dtype) than before holds most of the bytes."""
    old, new = _places(before, belongs), _places(after, belongs)
    found = []
    for place in old.keys() & new.keys():
        most, now = (max(makers, key=lambda maker: (makers[maker], maker)) for makers in (old[place], new[place]))
        if most != now:
            found.append((new[place][now], f"{place}: {now} in place of {most}"))
    found.sort(reverse=True)
    return [f"{text} ({format_bytes(size)})" for size, text in found[:NAMED] if size * WORTH >= after.peak.requested]


def _deviations(
    figures: Mapping[int, Figures], left: Line, right: Line, *, belongs: Category | None, over: str
) -> list[str]:
    """Name the places that leave the line which they were on to the left (or, with one point there, to the right)."""
    xs = list(figures)
    begin, end = xs.index(left.low), xs.index(right.high)
    middle = xs.index(left.high)
    if middle > begin:
        known, unknown, side = (xs[middle - 1], xs[middle]), xs[middle + 1], "below"
    elif middle + 2 <= end:
        known, unknown, side = (xs[middle + 1], xs[middle + 2]), xs[middle], "above"
    else:
        return []
    held = {at: _places(figures[at], belongs) for at in (*known, unknown)}
    found: list[tuple[int, Place]] = []
    for place in {place for places in held.values() for place in places}:
        a, b, there = (sum(held[at].get(place, {}).values()) for at in (*known, unknown))
        expected = a + Fraction(b - a, known[1] - known[0]) * (unknown - known[0])
        found.append((round(there - expected), place))
    found.sort(key=lambda pair: (-abs(pair[0]), str(pair[1])))
    return [
        f"{place} is {format_bytes(abs(size))} {'more' if size > 0 else 'less'} at {over} {unknown} than the points "
        f"{side} it say"
        for size, place in found[:NAMED]
        if size and abs(size) * WORTH >= abs(found[0][0])
    ]
