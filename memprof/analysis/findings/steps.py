"""Where the steps of a run begin and end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memprof.analysis.findings.view import View

__all__ = ["StepSpan", "step_spans"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSpan:
    """Events `begin` up to but not including `end`."""

    step: int
    begin: int
    end: int
    backward_end: int | None
    """End of its backward; None if it has none."""


def step_spans(view: View) -> tuple[StepSpan, ...]:
    """Return the steps that the file marks, in order; none where nothing in it says where a step begins.

    What follows the last step is one of its own in some files: without forward, backward or the like it is no step.
    """
    spans: dict[int, StepSpan] = {}
    worked = {phase.step for phase in view.phases if phase.phase != "between"}
    for phase in view.phases:
        if phase.step < 0 or phase.step not in worked:
            continue
        before = spans.get(phase.step)
        backward = phase.end if phase.phase == "backward" else None
        spans[phase.step] = StepSpan(
            step=phase.step,
            begin=phase.begin if before is None else min(before.begin, phase.begin),
            end=phase.end if before is None else max(before.end, phase.end),
            backward_end=backward or (before.backward_end if before is not None else None),
        )
    return tuple(sorted(spans.values(), key=lambda span: span.begin))
