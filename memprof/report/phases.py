"""Which phases a report lists: all of a few, those with the highest peaks of many."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memprof.analysis.breakdown import PhasePeak

__all__ = ["MOST_PHASES", "listed_phases"]

MOST_PHASES = 60
"""With more phases than this only those with the highest peaks are listed."""


def listed_phases(phases: Sequence[PhasePeak]) -> tuple[Sequence[PhasePeak], str]:
    """Return the phases to list, in their order, and what to say of those that are left out ("" if none is)."""
    if len(phases) <= MOST_PHASES:
        return phases, ""
    rows = sorted(range(len(phases)), key=lambda row: -phases[row].peak_allocated)[:MOST_PHASES]
    left = len(phases) - len(rows)
    return [
        phases[row] for row in sorted(rows)
    ], f"... {left:,} more phases, none with a higher peak: --json has them all"
