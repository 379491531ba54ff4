"""Puts labels into a snapshot dict: `category` on the alloc entries, and the columns of the ``memprof`` dict."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from memprof.capture.cpu import add_base
from memprof.capture.facts import Label
from memprof.capture.judging import CUBLAS
from memprof.capture.labelling import label
from memprof.capture.matching import first_entry_after, match_entries, with_unreported
from memprof.categories.category import Category

if TYPE_CHECKING:
    from memprof.capture.timeline import Timeline

__all__ = ["add_labels", "base_blocks", "peak_of"]

TEXTS = ("category", "finer", "phase", "module", "op", "dtype", "shape", "parameter")
"""Columns that index `strings`; -1 where nothing is known."""


def add_labels(
    snapshot: dict[str, Any], timeline: Timeline, device: int, *, unfinished: bool = False, light: bool = False
) -> tuple[int, int]:
    """Label the entries of `device` in place; return the number of labels, and of memory events without entry.

    `light`: the timeline has no ops, so that most categories are left to the rules.
    """
    entries = snapshot["device_traces"][device]
    memory = timeline.memory
    if timeline.device != "cpu":  # the history knows better what was freed unseen, and when
        memory = [event for event in memory if not event.implied]
    rows = match_entries(entries, memory)
    unmatched = sum(row < 0 for row in rows)
    if timeline.device != "cpu":
        memory, rows = with_unreported(entries, memory, rows)
        timeline = replace(timeline, memory=memory)
    found = label(timeline, unfinished=unfinished, light=light)
    if timeline.device == "cpu":
        add_base(snapshot, found.base)
    entry_of = {event.at: row for event, row in zip(memory, rows, strict=True) if event.size > 0}
    strings: dict[str, int] = {"": 0}
    labels, base = _Columns("entry", strings), _Columns("address", strings)
    for item in found.labels:
        entry = entry_of[item.born]
        if entry >= 0:
            if item.category is not Category.UNKNOWN or not light:
                entries[entry]["category"] = item.category.value
            labels.add(device, entry, item)
    before = base_blocks(snapshot, device)
    for item in found.base:
        if before.pop(item.address, None) is not None and item.category is not Category.UNKNOWN:
            base.add(device, item.address, item)
    for address, size in before.items():
        # No tensor was ever seen in it, and nothing but a handle of cuBLAS asks for just this many bytes.
        if timeline.device == "cuda" and size in CUBLAS:
            handle = Label(born=-1, address=address, size=size, category=Category.WORKSPACE, finer="cublas")
            handle.phase = "init"
            base.add(device, address, handle)
    described = snapshot["memprof"]
    described["strings"] = list(strings)
    described["labels"] = labels.columns
    described["base_labels"] = base.columns
    described["marks"] = [
        {
            "device": device,
            "entry": first_entry_after(phase.start, entries, memory, rows),
            "name": f"step {phase.step} {phase.name}" if phase.step >= 0 else phase.name,
        }
        for phase in found.phases
    ]
    return len(labels.columns["entry"]), unmatched


class _Columns:
    """Labels as columns; texts index `strings`, -1 where nothing is known."""

    def __init__(self, key: str, strings: dict[str, int]) -> None:
        self._key = key
        self._strings = strings
        self.columns: dict[str, list[Any]] = {name: [] for name in ("device", key, *TEXTS, "step", "saved")}

    def add(self, device: int, key: int, item: Label) -> None:
        columns = self.columns
        columns["device"].append(device)
        columns[self._key].append(key)
        columns["step"].append(item.step)
        columns["saved"].append(item.saved)
        for name, text in zip(TEXTS, _texts(item), strict=True):
            columns[name].append(-1 if text is None else self._strings.setdefault(text, len(self._strings)))


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


def base_blocks(snapshot: dict[str, Any], device: int) -> dict[int, int]:
    """Return address and requested bytes of what was live before the first entry of `device`."""
    found: dict[int, int] = {}
    allocated: set[int] = set()
    for entry in snapshot["device_traces"][device]:
        if entry["action"] == "alloc":
            allocated.add(entry["addr"])
        elif entry["action"] == "free_requested" and entry["addr"] not in allocated:
            found.setdefault(entry["addr"], entry["size"])
    for segment in snapshot["segments"]:
        if segment.get("device", 0) != device:
            continue
        for block in segment["blocks"]:
            if block["state"] == "active_allocated" and block["address"] not in allocated:
                found.setdefault(block["address"], block["requested_size"])
    return found


def peak_of(snapshot: dict[str, Any], device: int) -> int:
    """Return the highest sum of the requested bytes that were live at once."""
    live = base_blocks(snapshot, device)
    total = peak = sum(live.values())
    for entry in snapshot["device_traces"][device]:
        if entry["action"] == "alloc":
            live[entry["addr"]] = entry["size"]
            total += entry["size"]
            peak = max(peak, total)
        elif entry["action"] == "free_requested":
            total -= live.pop(entry["addr"], 0)
    return peak
