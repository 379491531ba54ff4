"""Which step or phase makes the peak."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from memprof.analysis.findings.finding import Certainty, Evidence, Finding
from memprof.analysis.findings.leak import kept_every_step
from memprof.analysis.findings.steps import step_spans
from memprof.analysis.state import state_at
from memprof.categories.category import CATEGORIES, Category
from memprof.units import format_bytes

if TYPE_CHECKING:
    from memprof.analysis.findings.view import Mask, View
    from memprof.analysis.state import State

__all__ = ["evaluation_larger", "first_step"]

COLLECTED = 4
"""Outputs alike from which on they are not what one forward makes."""
UNLIKE = 0.05
"""Share of the later peak by which the first one has to differ."""


def evaluation_larger(view: View) -> Finding | None:
    """Find that evaluation makes the peak and training does not. Bytes are what evaluation itself has alive there."""
    training = [phase for phase in view.phases if phase.phase in ("forward", "backward", "optimizer")]
    at_peak = next((phase for phase in view.phases if phase.begin <= view.event < phase.end), None)
    if not training or at_peak is None or at_peak.phase != "eval":
        return None
    allocated = view.account.replay.allocated
    most = max(int(np.max(allocated[phase.begin : phase.end + 1])) for phase in training)
    if view.peak <= most:
        return None
    alike = _most_alike(view, view.live & view.born_in("eval"))
    return view.finding(
        view.born_in("eval"),
        id="evaluation-larger",
        title=lambda size: (
            f"Evaluation peaks at {format_bytes(view.peak)}, training at {format_bytes(most)}: {format_bytes(size)} "
            f"are evaluation's own{alike}"
        ),
        category=Category.TEMPORARIES,
        fix=(
            "Evaluate under torch.no_grad() with a smaller batch, and do not collect logits on the device "
            "(preprocess_logits_for_metrics or eval_accumulation_steps in transformers' Trainer)."
        ),
        grows=False,
        gives_back=lambda: view.peak - most,
    )


def _most_alike(view: View, mask: Mask) -> str:
    """Say of which module most outputs alike stand at once; nothing where there are only a few."""
    known = view.account.classification
    rows = np.flatnonzero(mask & (known.module >= 0) & (known.shape >= 0))
    kinds = Counter(zip(*(column[rows].tolist() for column in (known.module, known.op, known.shape)), strict=True))
    (module, _, shape), count = next(iter(kinds.most_common(1)), ((-1, -1, -1), 0))
    if count < COLLECTED:
        return ""
    name = known.texts[module] or "the model"
    return f", {count} outputs of {name} ({known.texts[shape]}) among them, as where they are collected"


def first_step(view: View) -> Finding | None:
    """Find that the first training step's peak is unlike the later ones'.

    A step's peak is that of its training; evaluation within it is another matter, and so is what `leak` finds. Bytes
    are the difference of the two peaks; each evidence row is the difference in one category, which may be negative,
    and they sum to it.
    """
    trained = {span.step for span in step_spans(view) if span.backward_end is not None}
    peaks: dict[int, int] = {}
    allocated = view.account.replay.allocated
    for phase in view.phases:
        if phase.step in trained and phase.phase != "eval" and phase.end > phase.begin:
            event = phase.begin + int(np.argmax(allocated[phase.begin + 1 : phase.end + 1]))
            if phase.step not in peaks or allocated[event + 1] > allocated[peaks[phase.step] + 1]:
                peaks[phase.step] = event
    if len(peaks) < 2 or np.any(kept_every_step(view)[0]):
        return None
    first, *others = (peaks[step] for step in sorted(peaks))
    later = max(others, key=lambda event: int(allocated[event + 1]))
    low, high = sorted((first, later), key=lambda event: int(allocated[event + 1]))
    size = int(allocated[high + 1] - allocated[low + 1])
    if size < UNLIKE * int(allocated[later + 1]):
        return None
    changes = _changes(state_at(view.account, low), state_at(view.account, high))
    most = max(changes, key=lambda category: changes[category])
    more = "less" if low == first else "more"
    why = f"mostly {most.value}"
    begin = min(phase.begin for phase in view.phases if phase.step == min(peaks))
    state = [state_at(view.account, event).categories[Category.OPTIMIZER_STATE] for event in (begin - 1, later)]
    if low == first and not state[0] and state[1] >= size:
        most = Category.OPTIMIZER_STATE
        why = f"since the optimizer has its state ({format_bytes(state[1])}) only after it"
    return Finding(
        id="first-step-differs",
        title=(
            f"The first step peaks at {format_bytes(int(allocated[first + 1]))}, {format_bytes(size)} {more} than "
            f"later ones, {why}"
        ),
        category=most.value,
        size=size,
        per_sample=None,
        certainty=Certainty.CERTAIN if view.labelled else Certainty.LIKELY,
        evidence=tuple(
            Evidence(module=None, op=None, dtype=None, size=change, where=f"change of {category.value}")
            for category, change in sorted(changes.items(), key=lambda pair: -pair[1])
            if change
        ),
        fix="Size the batch by a step after the second optimizer step, when the optimizer has its state.",
    )


def _changes(low: State, high: State) -> dict[Category, int]:
    return {category: high.categories[category] - low.categories[category] for category in CATEGORIES}
