"""Findings over a sweep: what a cause costs by the sample, and what a sample would cost without it."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from memprof.analysis.findings.registry import WORTH
from memprof.analysis.fit import fit_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memprof.analysis.findings.finding import Finding
    from memprof.analysis.fit import Line
    from memprof.analysis.sweep import Point

__all__ = ["Explanation", "GrowthFinding", "explain_gap", "grown_findings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowthFinding:
    """One cause in the points of one configuration."""

    finding: Finding
    """At the largest point that has it."""
    at: int
    """That point."""
    file: str | None
    slope: Fraction | None
    """Bytes of it at the peak, per unit of what grows; None where fewer than two points have it."""
    total: Fraction | None
    """What a unit costs, over the points from the total's last break on."""
    without: Fraction | None
    """What a unit would cost without the cause, over the same points; None where a point does not tell."""

    @property
    def given_back(self) -> Fraction | None:
        """Bytes per unit that the cause costs: what a unit costs less without it."""
        return None if self.total is None or self.without is None else self.total - self.without


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A cause that one of two configurations has and the other has not, where they cross."""

    finding: Finding
    per_unit: Fraction
    """Bytes per unit less without the cause, in the interval of the crossing."""
    share: Fraction
    """Of what a unit costs more with the one than with the other."""


def grown_findings(points: Mapping[int, Point], last: Line) -> tuple[GrowthFinding, ...]:
    """Put together what was found in the points of a configuration, most bytes first.

    A finding is kept where it is worth a line at some point.

    Parameters
    ----------
    points
        Those that ended well, by what grows, rising.
    last
        The line that holds at the largest points.

    """
    kinds = dict.fromkeys(finding.id for point in points.values() for finding in point.findings)
    found = [_grown(kind, points, [x for x in points if x >= last.low]) for kind in kinds if _worth(kind, points)]
    return tuple(sorted(found, key=lambda each: (-each.at, -each.finding.size)))


def _worth(kind: str, points: Mapping[int, Point]) -> bool:
    return any(
        finding.size >= WORTH * point.figures.peak.size
        for point in points.values()
        for finding in point.findings
        if finding.id == kind and point.figures is not None
    )


def _grown(kind: str, points: Mapping[int, Point], xs: Sequence[int]) -> GrowthFinding:
    have = {x: finding for x, point in points.items() for finding in point.findings if finding.id == kind}
    at = max(have)
    in_piece = [x for x in xs if x in have]
    over = in_piece if len(in_piece) > 1 else list(have)
    totals = {x: figures.peak.size for x in xs if (figures := points[x].figures) is not None}
    backs = [have[x].gives_back if x in have else 0 for x in totals]
    known = len(totals) > 1
    return GrowthFinding(
        finding=have[at],
        at=at,
        file=points[at].file,
        slope=fit_line(over, [have[x].size for x in over]).slope if len(over) > 1 else None,
        total=fit_line(list(totals), list(totals.values())).slope if known else None,
        without=fit_line(
            list(totals), [size - (back or 0) for size, back in zip(totals.values(), backs, strict=True)]
        ).slope
        if known and None not in backs
        else None,
    )


def explain_gap(
    dear: tuple[Point, Point], cheap: tuple[Point, Point], interval: tuple[int, int], gap: Fraction
) -> tuple[Explanation, ...]:
    """Return the causes of which a unit costs more with one configuration than with another, largest first.

    Parameters
    ----------
    dear, cheap
        The two configurations at both ends of `interval`; a cause that `cheap` has too explains nothing.
    interval
        Two points of what grows.
    gap
        Bytes per unit that `dear` costs more.

    """
    shared = {finding.id for point in cheap for finding in point.findings}
    ends = [{finding.id: finding for finding in point.findings if finding.id not in shared} for point in dear]
    found = []
    for kind, finding in ends[1].items():
        backs = [end[kind].gives_back if kind in end else 0 for end in ends]
        if backs[0] is None or backs[1] is None:
            continue
        per_unit = (backs[1] - backs[0]) / Fraction(interval[1] - interval[0])
        if per_unit > 0:
            found.append(Explanation(finding=finding, per_unit=per_unit, share=per_unit / gap))
    return tuple(sorted(found, key=lambda each: -each.per_unit))
