"""Where two configurations need the same, and which categories pay for it."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from memprof.analysis.crossover_causes import CauseDifference, cause_differences
from memprof.analysis.growth_findings import Explanation, explain_gap
from memprof.categories.category import CATEGORIES, Category

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memprof.analysis.growth import Fit, GrowthGroup
    from memprof.analysis.sweep import Figures

__all__ = ["Crossover", "find_crossovers"]

NO_CHOICE = ("source", "card")
"""Settings between which nobody chooses by memory: the same run, measured and simulated, should never cross itself."""
FAR = 4
"""A crossing further out than this many times the largest point is not worth a word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossover:
    """Groups `a` and `b` differ in one setting; below `at` the one needs less, above it the other."""

    a: int
    b: int
    setting: str
    """What they differ in."""
    cheaper_below: int
    """`a` or `b`."""
    at: Fraction
    low: Fraction
    high: Fraction
    """The crossing lies between these, if neither total strays further from its line than at the measured points."""
    extrapolated: bool
    """True where it lies beyond the measured points."""
    predicted: Fraction | None
    """Where the two lines through all points cross: the answer from slopes and fixed parts alone."""
    paid_by: Mapping[Category, int]
    """`b` minus `a` in bytes at `at`; sums to nothing but for rounding."""
    per_sample: Mapping[Category, Fraction]
    """`b` minus `a` in bytes per unit of what grows, there."""
    causes: tuple[CauseDifference, ...]
    """The same by cause, largest per unit first; their `per_sample` sum to that of all categories."""
    explained_by: tuple[Explanation, ...]
    """Findings of the configuration that needs less below, and not of the other: what makes it grow faster."""


def find_crossovers(groups: Sequence[GrowthGroup]) -> tuple[Crossover, ...]:
    """Find every crossing of the totals of two groups that differ in one setting."""
    found = []
    for a, one in enumerate(groups):
        for b in range(a + 1, len(groups)):
            setting = _only_difference(one.config, groups[b].config)
            if setting is not None:
                found += _crossings(a, b, setting, one, groups[b])
    return tuple(found)


def _only_difference(one: Mapping[str, Any], other: Mapping[str, Any]) -> str | None:
    different = [name for name in {**one, **other} if one.get(name) != other.get(name)]
    return different[0] if len(different) == 1 and different[0] not in NO_CHOICE else None


def _crossings(a: int, b: int, setting: str, one: GrowthGroup, other: GrowthGroup) -> list[Crossover]:
    if one.total is None or other.total is None:
        return []
    mine, theirs = dict(one.total.values), dict(other.total.values)
    xs = sorted(set(mine) & set(theirs))
    if len(xs) < 2:
        return []
    gaps = [theirs[x] - mine[x] for x in xs]
    crossings = []
    for left, right, before, after in zip(xs[:-1], xs[1:], gaps[:-1], gaps[1:], strict=True):
        # A gap of nothing belongs to the interval on its left, so that it counts once.
        if before == 0 or ((before > 0) == (after > 0) and after != 0):
            continue
        crossings.append(_crossing((a, b), (one, other), setting, (left, right), beyond=False))
    if not crossings:
        left, right = xs[-2:]
        if gaps[-2] != gaps[-1] and abs(gaps[-1]) < abs(gaps[-2]) and (gaps[-1] > 0) == (gaps[-2] > 0):
            crossing = _crossing((a, b), (one, other), setting, (left, right), beyond=True)
            if crossing.at <= FAR * right:
                crossings.append(crossing)
    return crossings


def _crossing(
    pair: tuple[int, int],
    groups: tuple[GrowthGroup, GrowthGroup],
    setting: str,
    interval: tuple[int, int],
    *,
    beyond: bool,
) -> Crossover:
    """Find the crossing on the chords through two neighbouring points that were measured of both."""
    left, right = interval
    one, other = groups[0].total, groups[1].total
    assert one is not None
    assert other is not None
    gap = [dict(other.values)[x] - dict(one.values)[x] for x in interval]
    slope = Fraction(gap[1] - gap[0], right - left)
    at = left - gap[0] / slope
    error = (_error(one, interval) + _error(other, interval)) / abs(slope)
    # Inside, the signs at both ends are measured, so the crossing cannot be beyond them.
    low, high = (
        (max(Fraction(right), at - error), at + error)
        if beyond
        else (
            max(Fraction(left), at - error),
            min(Fraction(right), at + error),
        )
    )
    measured = [{each.at: each.point.figures for each in group.measured} for group in groups]
    ends = [(_certain(figures[left]), _certain(figures[right])) for figures in measured]
    points = [{each.at: each.point for each in group.measured} for group in groups]
    dear = 0 if gap[0] > 0 else 1
    paid, per_sample = {}, {}
    for category in CATEGORIES:
        (mine_left, mine_right), (their_left, their_right) = (
            [dict(group.categories[category].values)[x] for x in interval] for group in groups
        )
        difference = (their_left - mine_left, their_right - mine_right)
        per_sample[category] = Fraction(difference[1] - difference[0], right - left)
        paid[category] = round(difference[0] + per_sample[category] * (at - left))
    return Crossover(
        a=pair[0],
        b=pair[1],
        setting=setting,
        cheaper_below=pair[0] if gap[0] > 0 else pair[1],
        at=at,
        low=low,
        high=high,
        extrapolated=beyond,
        predicted=_meet(one, other),
        paid_by=paid,
        per_sample=per_sample,
        causes=cause_differences(ends[0], ends[1], interval),
        explained_by=explain_gap(
            (points[dear][left], points[dear][right]),
            (points[1 - dear][left], points[1 - dear][right]),
            interval,
            abs(slope),
        ),
    )


def _certain(figures: Figures | None) -> Figures:
    assert figures is not None  # every point that ended well has figures
    return figures


def _error(fit: Fit, interval: tuple[int, int]) -> int:
    """Return how far the total may stray from the chord.

    That is the error of the line there. Where no third point tests a line it is what block rounding alone may do.
    """
    for piece in fit.pieces:
        if piece.low <= interval[0] and interval[1] <= piece.high and piece.points > 2:
            return piece.max_error
    return max(fit.line.max_error, fit.rounding)


def _meet(one: Fit, other: Fit) -> Fraction | None:
    if one.line.slope == other.line.slope:
        return None
    at = (other.line.fixed - one.line.fixed) / (one.line.slope - other.line.slope)
    return at if at > 0 else None
