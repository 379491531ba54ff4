"""Lines through a handful of exact integers: least squares in rational numbers, and where one line is not enough.

The figures are bytes, known exactly, at few points; so nothing here is floating point until it is printed. A line is
the least-squares line. Where its error is beyond the tolerance, the points are parted into the fewest runs of
neighbours that each lie on a line (`fit_pieces`), or a parabola is tried (`fit_parabola`).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Line", "Parabola", "fit_line", "fit_parabola", "fit_pieces"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """``fixed + slope * x`` over the measured points from `low` to `high`."""

    slope: Fraction
    fixed: Fraction
    max_error: int
    """Largest distance of a point, rounded up to a whole byte."""
    low: int
    high: int
    points: int

    def at(self, x: Fraction | int) -> Fraction:
        """Return the line's value at `x`."""
        return self.fixed + self.slope * x


@dataclass(frozen=True, slots=True, kw_only=True)
class Parabola:
    """``fixed + slope * x + quadratic * x**2``."""

    quadratic: Fraction
    slope: Fraction
    fixed: Fraction
    max_error: int

    def at(self, x: Fraction | int) -> Fraction:
        """Return the parabola's value at `x`."""
        return self.fixed + (self.slope + self.quadratic * x) * x


def fit_line(xs: Sequence[int], ys: Sequence[int]) -> Line:
    """Return the least-squares line; a flat one through a single point.

    Parameters
    ----------
    xs, ys
        At least one point; the xs rise.

    """
    count = len(xs)
    sum_x, sum_y = sum(xs), sum(ys)
    spread = count * sum(x * x for x in xs) - sum_x * sum_x
    slope = (
        Fraction(count * sum(x * y for x, y in zip(xs, ys, strict=True)) - sum_x * sum_y, spread)
        if spread
        else Fraction(0)
    )
    fixed = (sum_y - slope * sum_x) / Fraction(count)
    error = max(abs(fixed + slope * x - y) for x, y in zip(xs, ys, strict=True))
    return Line(slope=slope, fixed=fixed, max_error=ceil(error), low=xs[0], high=xs[-1], points=count)


def fit_parabola(xs: Sequence[int], ys: Sequence[int]) -> Parabola:
    """Return the least-squares parabola through at least three points with distinct xs."""
    powers = [Fraction(sum(x**power for x in xs)) for power in range(5)]
    moments = [Fraction(sum(y * x**power for x, y in zip(xs, ys, strict=True))) for power in range(3)]
    rows = [[*powers[row : row + 3], moments[row]] for row in range(3)]
    for pivot in range(3):  # the normal equations are positive definite, so no row need be exchanged
        rows[pivot] = [value / rows[pivot][pivot] for value in rows[pivot]]
        for other in range(3):
            if other != pivot:
                factor = rows[other][pivot]
                rows[other] = [a - factor * b for a, b in zip(rows[other], rows[pivot], strict=True)]
    fixed, slope, quadratic = (row[3] for row in rows)
    error = max(abs(fixed + slope * x + quadratic * x * x - y) for x, y in zip(xs, ys, strict=True))
    return Parabola(quadratic=quadratic, slope=slope, fixed=fixed, max_error=ceil(error))


def fit_pieces(xs: Sequence[int], ys: Sequence[int], tolerance: Sequence[int]) -> tuple[Line, ...]:
    """Part the points into the fewest runs of neighbours that each lie on a line.

    Parameters
    ----------
    xs, ys
        At least one point; the xs rise.
    tolerance
        How far from its line each point may lie, in the unit of `ys`.

    Returns
    -------
    tuple of Line
        One line for each run, from left to right. Of several ways to part the points the one with the longest runs is
        taken (a run of two points is always on a line and proves nothing), then the one with the least squared error.

    """
    count = len(xs)
    best: list[tuple[tuple[int, int, Fraction], tuple[Line, ...]] | None] = [None] * (count + 1)
    best[0] = ((0, 0, Fraction(0)), ())
    for end in range(1, count + 1):
        for begin in range(end):
            before = best[begin]
            if before is None:
                continue
            line = fit_line(xs[begin:end], ys[begin:end])
            errors = [abs(line.at(xs[i]) - ys[i]) for i in range(begin, end)]
            if any(error > allowed for error, allowed in zip(errors, tolerance[begin:end], strict=True)):
                continue
            (pieces, longest, squared), lines = before
            cost = (pieces + 1, longest - line.points**2, squared + sum(error * error for error in errors))
            current = best[end]
            if current is None or cost < current[0]:
                best[end] = (cost, (*lines, line))
    found = best[count]
    assert found is not None  # a single point is always on a line
    return found[1]
