"""What grows: bytes per sample (or per token) of every category and cause, over the points of a sweep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memprof.analysis.breaks import Break, find_breaks
from memprof.analysis.crossover import Crossover, find_crossovers
from memprof.analysis.fit import Line, Parabola, fit_line, fit_parabola, fit_pieces
from memprof.analysis.growth_findings import GrowthFinding, grown_findings
from memprof.analysis.sweep import Amount
from memprof.categories.category import CATEGORIES, Category
from memprof.errors import InputError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from memprof.analysis.sweep import Figures, Point

__all__ = ["BY", "OVER", "Fit", "Growth", "GrowthGroup", "GrowthPoint", "check_grouping", "measure_growth"]

OVER = ("mbs", "seq")
BY = ("module", "op", "dtype")
TOLERANCES = (500, 200, 100)
"""A line fits where every point lies within a 500th of its value. Where neither one line, nor a parabola, nor a few
lines that the points prove come so close, a 200th and a 100th are tried."""
LEAST_TOLERANCE = 4096
"""Bytes that are never worth a break: a few of the allocator's roundings of 512."""
ENOUGH = 4
"""Points from which on a break can be told from noise: two lines through three points always fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """How one amount depends on the batch size or length."""

    line: Line
    """Least squares through all points."""
    pieces: tuple[Line, ...]
    """Lines between the breaks, from left to right; `line` alone where it fits."""
    curve: Parabola | None
    """Where no line fits but a parabola does."""
    breaks: tuple[Break, ...]
    values: tuple[tuple[int, int], ...]
    """(x, bytes) as measured."""
    rounding: int
    """Most bytes of a point that nobody asked for: blocks are larger than what is requested."""

    @property
    def last(self) -> Line:
        """The line that holds at the largest points."""
        return self.pieces[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowthPoint:
    """A point of a group; `at` is its batch size or length."""

    at: int
    point: Point


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowthGroup:
    """All points of one configuration. Fits are over the points that ended well; None where fewer than two did."""

    config: Mapping[str, Any]
    """Without what it grows over."""
    points: tuple[GrowthPoint, ...]
    total: Fit | None
    """Allocated at the peak."""
    reserved: Fit | None
    device_used: Fit | None
    first_step: Fit | None
    steady: Fit | None
    categories: Mapping[Category, Fit]
    """At the peak; their slopes and fixed parts sum to the total's."""
    own_maximum: Mapping[Category, Fit]
    causes: Mapping[tuple[Category, str | None], Fit]
    """At the peak, by category and what `by` asked for; empty without `by`."""
    findings: tuple[GrowthFinding, ...]
    """Named causes, most bytes at the largest point first; empty where there is no total."""

    @property
    def measured(self) -> tuple[GrowthPoint, ...]:
        """The points that ended well."""
        return tuple(each for each in self.points if each.point.status == "ok")


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """A whole sweep."""

    over: str
    by: str | None
    groups: tuple[GrowthGroup, ...]
    crossovers: tuple[Crossover, ...]
    notes: tuple[str, ...] = ()


def check_grouping(over: str | None, by: str | None) -> None:
    """Make sure that `measure_growth` knows both.

    Raises
    ------
    UsageError
        If it does not.

    """
    if over is not None and over not in OVER:
        raise UsageError(f"--over {over}: unknown; it can be {' or '.join(OVER)}")
    if by is not None and by not in BY:
        raise UsageError(f"--by {by}: unknown; it can be {', '.join(BY)}")


def measure_growth(
    points: Sequence[Point], *, over: str | None = None, by: str | None = None, notes: Sequence[str] = ()
) -> Growth:
    """Fit every configuration of a sweep.

    Parameters
    ----------
    points
        What `memprof.analysis.sweep_folder.read_folder` found, in any order.
    over
        ``mbs`` or ``seq``; None for the one of which there are more values.
    by
        ``module``, ``op`` or ``dtype``: also fit the causes within each category.
    notes
        Words that go into the result before its own.

    Raises
    ------
    InputError
        If there are no points.
    UsageError
        If `over` or `by` is none of these.

    """
    if not points:
        raise InputError("no capture to measure growth on: give a directory that memprof sweep wrote")
    check_grouping(over, by)
    over = over or max(OVER, key=lambda name: len({point.config.get(name) for point in points}))
    parted: dict[tuple[tuple[str, str], ...], list[GrowthPoint]] = {}
    for point in sorted(points, key=lambda each: each.status == "failed"):
        at = point.config.get(over)
        if type(at) is not int:
            raise InputError(f"{point.file} does not say its {over}: it cannot be placed in the sweep")
        key = tuple(sorted((name, repr(value)) for name, value in point.config.items() if name != over))
        if point.status == "failed":  # nothing was recorded, so only what was asked for is known of it
            key = next((full for full in parted if set(key) <= set(full)), key)
        parted.setdefault(key, []).append(GrowthPoint(at=at, point=point))
    groups = tuple(_group(members, over, by) for members in parted.values())
    return Growth(
        over=over,
        by=by,
        groups=groups,
        crossovers=find_crossovers(groups),
        notes=(*notes, *_environments(points), *_in_init(points), *_unfit(groups, over)),
    )


def _group(members: list[GrowthPoint], over: str, by: str | None) -> GrowthGroup:
    members = sorted(members, key=lambda member: member.at)
    ok: dict[int, Figures] = {}
    found: dict[int, Point] = {}
    for member in members:
        if member.point.status == "ok" and member.point.figures is not None:
            if member.at in ok:
                raise InputError(f"{member.point.file}: a second capture of the same configuration; remove one of them")
            ok[member.at] = member.point.figures
            found[member.at] = member.point
    config = {name: value for name, value in members[0].point.config.items() if name != over}

    def fit(
        get: Callable[[Figures], Amount | int | None], *, belongs: Category | None = None, breaks: bool = True
    ) -> Fit | None:
        return _fit(ok, get, over=over, belongs=belongs, breaks=breaks)

    def certain(get: Callable[[Figures], Amount | int | None], belongs: Category, *, breaks: bool = True) -> Fit:
        fitted = fit(get, belongs=belongs, breaks=breaks)
        assert fitted is not None  # every capture has every category, and there are two
        return fitted

    enough = len(ok) > 1
    total = fit(lambda figures: figures.peak)
    causes = sorted(
        {(cause.category, getattr(cause, by)) for figures in ok.values() for cause in figures.causes} if by else (),
        key=lambda cause: (cause[0].code, cause[1] or ""),
    )
    return GrowthGroup(
        config=config,
        points=tuple(members),
        total=total,
        reserved=fit(lambda figures: figures.reserved, breaks=False),
        device_used=fit(lambda figures: figures.device_used, breaks=False),
        first_step=fit(lambda figures: figures.first_step),
        steady=fit(lambda figures: figures.steady),
        categories={
            category: certain(lambda figures, c=category: figures.categories[c], category)  # type: ignore[misc] # mypy has no type for a default
            for category in CATEGORIES
        }
        if enough
        else {},
        own_maximum={
            category: certain(lambda figures, c=category: figures.own_maximum[c], category, breaks=False)  # type: ignore[misc] # same
            for category in CATEGORIES
        }
        if enough
        else {},
        causes={
            (category, name): certain(
                lambda figures, c=category, n=name: _sum_of(figures, c, by or "", n),  # type: ignore[misc] # same
                category,
                breaks=False,
            )
            for category, name in causes
        }
        if enough
        else {},
        findings=() if total is None else grown_findings(found, total.last),
    )


def _sum_of(figures: Figures, category: Category, by: str, name: str | None) -> Amount:
    found = [
        amount for cause, amount in figures.causes.items() if cause.category is category and getattr(cause, by) == name
    ]
    return Amount(sum(amount.size for amount in found), sum(amount.requested for amount in found))


def _fit(
    ok: Mapping[int, Figures],
    get: Callable[[Figures], Amount | int | None],
    *,
    over: str,
    belongs: Category | None,
    breaks: bool,
) -> Fit | None:
    """Fit one amount; breaks are looked for in the requested bytes, which the allocator's rounding does not blur."""
    values = {at: value for at, figures in ok.items() if (value := get(figures)) is not None}
    if len(values) < 2:
        return None
    xs = list(values)
    sizes = [value.size if isinstance(value, Amount) else value for value in values.values()]
    requested = [value.requested if isinstance(value, Amount) else value for value in values.values()]
    line = fit_line(xs, sizes)
    pieces: tuple[Line, ...] = (line,)
    curve = None
    found: tuple[Break, ...] = ()
    if breaks and len(xs) >= ENOUGH:
        for share in TOLERANCES:
            tolerance = [max(LEAST_TOLERANCE, value // share) for value in requested]
            if _within(fit_line(xs, requested), xs, requested, tolerance):
                break
            if _within(fit_parabola(xs, requested), xs, requested, tolerance):
                curve = fit_parabola(xs, sizes)
                break
            runs = fit_pieces(xs, requested, tolerance)
            if _proven(runs):
                bounds = [(xs.index(run.low), xs.index(run.high) + 1) for run in runs]
                pieces = tuple(fit_line(xs[begin:end], sizes[begin:end]) for begin, end in bounds)
                found = find_breaks(runs, ok, belongs=belongs, over=over)
                break
    return Fit(
        line=line,
        pieces=pieces,
        curve=curve,
        breaks=found,
        values=tuple(zip(xs, sizes, strict=True)),
        rounding=max(size - asked for size, asked in zip(sizes, requested, strict=True)),
    )


def _proven(runs: Sequence[Line]) -> bool:
    """Tell whether these pieces say more than the points do.

    Two points are on a line whatever they are, so one run has to have more; and a point alone may only be the first,
    since a line that begins is not known from one point.
    """
    return any(run.points > 2 for run in runs) and all(run.points > 1 for run in runs[1:])


def _within(fitted: Line | Parabola, xs: list[int], ys: list[int], tolerance: list[int]) -> bool:
    return all(abs(fitted.at(x) - y) <= allowed for x, y, allowed in zip(xs, ys, tolerance, strict=True))


def _environments(points: Sequence[Point]) -> list[str]:
    """Say so where the points were not made on equal terms."""
    notes = []
    for name in ("torch", "driver"):
        found = {str(point.environment[name]) for point in points if point.environment and name in point.environment}
        if len(found) > 1:
            notes.append(f"the points were made with different {name}: {', '.join(sorted(found))}")
    return notes


def _in_init(points: Sequence[Point]) -> list[str]:
    found = [point for point in points if point.figures is not None and point.figures.place.phase == "init"]
    if not found:
        return []
    where = f"the peak of {len(found)} of {len(points)} points lies before the first step"
    return [f"{where}, while the model is built or quantized: the row of the first step says what training needs"]


def _unfit(groups: Sequence[GrowthGroup], over: str) -> list[str]:
    if any(group.total is None for group in groups):
        return [f"where fewer than two points of a configuration ended well there is no growth over {over} to fit"]
    return []
