"""Puts labels into a snapshot dict: `category` on the alloc entries, and the columns of the ``memprof`` dict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memprof.capture.labelling import label
from memprof.capture.matching import first_entry_after, match_entries

if TYPE_CHECKING:
    from memprof.capture.labelling import Label
    from memprof.capture.timeline import Timeline

__all__ = ["add_labels", "peak_of"]

TEXTS = ("category", "finer", "phase", "module", "op", "dtype", "shape", "parameter")
"""Columns that index `strings`; -1 where nothing is known."""


def add_labels(snapshot: dict[str, Any], timeline: Timeline, device: int) -> tuple[int, int]:
    """Label the entries of `device` in place; return the number of labels, and of memory events without entry."""
    entries = snapshot["device_traces"][device]
    labels, phases = label(timeline)
    rows = match_entries(entries, timeline.memory)
    entry_of = {event.at: row for event, row in zip(timeline.memory, rows, strict=True) if event.size > 0}
    strings: dict[str, int] = {"": 0}
    columns: dict[str, list[Any]] = {name: [] for name in ("device", "entry", *TEXTS, "step", "saved")}
    for item in labels:
        entry = entry_of[item.born]
        if entry < 0:
            continue
        entries[entry]["category"] = item.category.value
        columns["device"].append(device)
        columns["entry"].append(entry)
        columns["step"].append(item.step)
        columns["saved"].append(item.saved)
        for name, text in zip(TEXTS, _texts(item), strict=True):
            columns[name].append(-1 if text is None else strings.setdefault(text, len(strings)))
    described = snapshot["memprof"]
    described["strings"] = list(strings)
    described["labels"] = columns
    described["marks"] = [
        {
            "device": device,
            "entry": first_entry_after(phase.start, entries, timeline.memory, rows),
            "name": f"step {phase.step} {phase.name}" if phase.step >= 0 else phase.name,
        }
        for phase in phases
    ]
    return len(columns["entry"]), sum(row < 0 for row in rows)


def _texts(item: Label) -> tuple[str | None, ...]:
    return (
        item.category.value,
        item.finer or None,
        item.phase or None,
        item.module,
        item.op or None,
        item.dtype or None,
        None if item.shape is None else ",".join(map(str, item.shape)),
        item.parameter or None,
    )


def peak_of(timeline: Timeline | None) -> int:
    """Return the highest sum of live bytes that were allocated since the recording began."""
    total = peak = 0
    live: dict[int, int] = {}
    for event in timeline.memory if timeline is not None else ():
        if event.size > 0:
            live[event.address] = event.size
            total += event.size
            peak = max(peak, total)
        else:
            total -= live.pop(event.address, 0)
    return peak
