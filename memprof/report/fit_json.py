"""What fits, for machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memprof.report.as_json import FORMAT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memprof.analysis.fit_search import CardFit
    from memprof.analysis.fit_search_need import Need

__all__ = ["fit_json"]


def fit_json(
    fits: Sequence[CardFit], *, over: str, config: Mapping[str, Any], torch: str, alloc_conf: str
) -> dict[str, Any]:
    """Turn the answers into plain values; the parameters are those of `memprof.report.fit.fit_report`."""
    return {
        "format": FORMAT,
        "source": "simulated",
        "over": over,
        "config": dict(config),
        "torch": torch,
        "alloc_conf": alloc_conf,
        "cards": [_card(fit) for fit in fits],
    }


def _card(fit: CardFit) -> dict[str, Any]:
    found = fit.found
    best = None if found.fits is None else found.needs[found.fits]
    return {
        "card": fit.key,
        "name": fit.name,
        "measured": fit.measured,
        "total_bytes": fit.total,
        "outside_bytes": fit.outside,
        "capacity_bytes": fit.capacity,
        "total_source": fit.total_source,
        "outside_source": fit.outside_source,
        "fits": found.fits,
        "margin_bytes": None if best is None else best.margin,
        "uncertain_bytes": None if best is None else best.uncertain,
        "tight": found.tight,
        "too_close": None if found.close is None else list(found.close),
        "fails": found.fails,
        "limit": found.limit,
        "points": [{"at": at, **_need(need)} for at, need in found.needs.items()],
        "caveats": [dict(caveat) for caveat in fit.caveats],
    }


def _need(need: Need) -> dict[str, Any]:
    low, high = need.reserved_range
    return {
        "answer": need.answer.value,
        "expected": need.expected,
        "allocated_bytes": need.allocated,
        "reserved_bytes": need.reserved,
        "reserved_low_bytes": low,
        "reserved_high_bytes": high,
        "uncertain_bytes": need.uncertain,
        "margin_bytes": need.margin,
    }
