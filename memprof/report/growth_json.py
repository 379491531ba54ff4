"""Growth as plain values; also what ``sweep.json`` holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memprof.report.findings import finding_json

if TYPE_CHECKING:
    from fractions import Fraction

    from memprof.analysis.crossover import Crossover
    from memprof.analysis.fit import Line
    from memprof.analysis.growth import Fit, Growth, GrowthGroup, GrowthPoint
    from memprof.analysis.growth_findings import GrowthFinding

__all__ = ["growth_json"]

FORMAT = 1


def growth_json(growth: Growth) -> dict[str, Any]:
    """Turn growth into plain values; slopes are bytes per sample or token, a fit is null with fewer than two points."""
    return {
        "format": FORMAT,
        "over": growth.over,
        "by": growth.by,
        "groups": [_group(group, growth.by) for group in growth.groups],
        "crossovers": [_crossover(crossover) for crossover in growth.crossovers],
        "findings": [
            _finding(found, number, growth.over)
            for number, group in enumerate(growth.groups)
            for found in group.findings
        ],
        "notes": list(growth.notes),
    }


def _finding(found: GrowthFinding, number: int, over: str) -> dict[str, Any]:
    unit = {"mbs": "sample", "seq": "token"}[over]
    return {
        **finding_json(found.finding),
        "bytes_per_sample": _number(found.slope) if over == "mbs" and found.finding.per_sample is not None else None,
        f"bytes_per_{unit}": _number(found.slope) if found.finding.per_sample is not None else None,
        f"gives_back_bytes_per_{unit}": _number(found.given_back),
        f"total_bytes_per_{unit}": _number(found.total),
        f"total_bytes_per_{unit}_without": _number(found.without),
        "group": number,
        "at": found.at,
        "file": found.file,
    }


def _group(group: GrowthGroup, by: str | None) -> dict[str, Any]:
    return {
        "config": dict(group.config),
        "points": [_point(point) for point in group.points],
        "total": _fit(group.total),
        "reserved": _fit(group.reserved),
        "device_used": _fit(group.device_used),
        "first_step": _fit(group.first_step),
        "steady": _fit(group.steady),
        "categories": {category.value: _fit(fit) for category, fit in group.categories.items()},
        "own_maximum": {category.value: _fit(fit) for category, fit in group.own_maximum.items()},
        "causes": [
            {"category": category.value, by or "": name, **(_fit(fit) or {})}
            for (category, name), fit in group.causes.items()
        ],
    }


def _point(member: GrowthPoint) -> dict[str, Any]:
    point, figures = member.point, member.point.figures
    known: dict[str, Any] = {
        "allocated_bytes": None,
        "requested_bytes": None,
        "reserved_bytes": None,
        "device_used_bytes": None,
        "first_step_allocated_bytes": None,
        "steady_allocated_bytes": None,
        "categories": None,
        "peak_in": None,
    }
    if figures is not None:
        known = {
            "allocated_bytes": figures.peak.size,
            "requested_bytes": figures.peak.requested,
            "reserved_bytes": figures.reserved,
            "device_used_bytes": figures.device_used,
            "first_step_allocated_bytes": None if figures.first_step is None else figures.first_step.size,
            "steady_allocated_bytes": None if figures.steady is None else figures.steady.size,
            "categories": {category.value: amount.size for category, amount in figures.categories.items()},
            "peak_in": figures.place._asdict(),
        }
    return {"at": member.at, "file": point.file, "status": point.status, "reason": point.reason, **known}


def _fit(fit: Fit | None) -> dict[str, Any] | None:
    if fit is None:
        return None
    return {
        **_line(fit.line),
        "breaks": [{"at": each.at, "after": each.after, "why": each.why} for each in fit.breaks],
        "pieces": [{"from": piece.low, "to": piece.high, **_line(piece)} for piece in fit.pieces],
        "curve": None
        if fit.curve is None
        else {
            "quadratic_bytes": float(fit.curve.quadratic),
            "slope_bytes": float(fit.curve.slope),
            "fixed_bytes": float(fit.curve.fixed),
            "max_error_bytes": fit.curve.max_error,
        },
    }


def _line(line: Line) -> dict[str, Any]:
    return {
        "slope_bytes": float(line.slope),
        "fixed_bytes": float(line.fixed),
        "max_error_bytes": line.max_error,
    }


def _crossover(crossover: Crossover) -> dict[str, Any]:
    return {
        "a": crossover.a,
        "b": crossover.b,
        "setting": crossover.setting,
        "cheaper_below": crossover.cheaper_below,
        "at": float(crossover.at),
        "low": float(crossover.low),
        "high": float(crossover.high),
        "extrapolated": crossover.extrapolated,
        "predicted_from_lines": _number(crossover.predicted),
        "paid_by": {category.value: size for category, size in crossover.paid_by.items()},
        "paid_per_sample": {category.value: float(size) for category, size in crossover.per_sample.items()},
        "explained_by": [
            {
                "finding": each.finding.id,
                "title": each.finding.title,
                "bytes_per_unit": float(each.per_unit),
                "share": float(each.share),
            }
            for each in crossover.explained_by
        ],
        "causes": [
            {
                "category": cause.category.value,
                "finer": cause.finer,
                "module": cause.module,
                "op_a": cause.op_a,
                "op_b": cause.op_b,
                "dtype_a": cause.dtype_a,
                "dtype_b": cause.dtype_b,
                "difference_per_sample": float(cause.per_sample),
                "difference_bytes": cause.size,
            }
            for cause in crossover.causes
            if cause.size or cause.per_sample
        ],
    }


def _number(value: Fraction | None) -> float | None:
    return None if value is None else float(value)
