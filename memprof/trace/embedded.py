"""The ``memprof`` dict inside a snapshot that memprof wrote: labels, marks, the allocator's own figures.

It is as untrusted as the rest of the file: an index beyond its table, or a label on an event that allocates nothing, is
an error that names the row.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from memprof.errors import InputError
from memprof.trace.check import (
    ADDRESS_END,
    DEVICES,
    INT64_END,
    SIZE_END,
    as_dict,
    as_int,
    as_list,
    as_text,
    malformed,
    shown,
)
from memprof.trace.facts import check_mark_name, check_shapes, read_made_by, read_plain
from memprof.trace.model import Action, Labels, Mark, Source, Stats

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from memprof.trace.model import Codes
    from memprof.trace.stacks import TextInterner

__all__ = ["VERSION", "Embedded", "read_embedded"]

VERSION = 1
"""Version of the ``memprof`` dict that this memprof writes, and the newest that it reads."""

_NUMBERS = ("entry", "address", "step")
_FLAGS = ("saved",)
_TEXTS = tuple(column.name for column in fields(Labels) if column.name not in (*_NUMBERS, *_FLAGS))
_MARKS = 1 << 20
"""More marks than this are no recording: a step has about five, and a history of two million entries fewer steps."""


@dataclass(slots=True, kw_only=True)
class Embedded:
    """What the ``memprof`` dict says, by device where it is of a device."""

    source: Source = Source.UNKNOWN
    made_by: dict[str, Any] | None = None
    environment: dict[str, Any] | None = None
    labels: dict[int, Labels] = field(default_factory=dict)
    marks: dict[int, list[Mark]] = field(default_factory=dict)
    stats: dict[int, list[Stats]] = field(default_factory=dict)


def read_embedded(value: Any, *, actions: Mapping[int, Codes], texts: TextInterner) -> Embedded:
    """Return what a snapshot's ``memprof`` dict says; an empty `Embedded` for None.

    Parameters
    ----------
    actions
        Action codes of every device's events, for checking what labels and marks point at.
    texts
        Receives the texts of the labels.

    Raises
    ------
    InputError
        Written by a newer memprof, or a wrong value: names the place and the fact.
    """
    if value is None:
        return Embedded()
    block = as_dict(value, "memprof")
    version = as_int(block.get("version"), "memprof.version", low=1)
    if version > VERSION:
        raise InputError(
            f"was written by a newer memprof (version {version}, this one reads {VERSION}): update memprof"
        )
    return Embedded(
        source=_source(block.get("source")),
        made_by=read_made_by(block.get("made_by"), "memprof.made_by"),
        environment=read_plain(block.get("environment"), "memprof.environment"),
        labels=_labels(block, actions, texts),
        marks=_marks(block.get("marks"), actions),
        stats=_stats(block.get("stats")),
    )


def _source(value: Any) -> Source:
    known = {source.value: source for source in Source}
    if type(value) is not str or value not in known:
        malformed("memprof.source", f"is {shown(value)}, not one of {', '.join(known)}")
    return known[value]


def _ints(value: Any, place: str, low: int, end: int) -> NDArray[np.int64]:
    items = as_list(value, place)
    if items and set(map(type, items)) != {int}:
        index = next(i for i, item in enumerate(items) if type(item) is not int)
        malformed(f"{place}[{index}]", f"is {shown(items[index])}, not an integer")
    if items and not (low <= min(items) and max(items) < end):
        index = next(i for i, item in enumerate(items) if not low <= item < end)
        malformed(f"{place}[{index}]", f"is {shown(items[index])}, outside {low} to {end - 1}")
    return np.array(items, np.int64)


def _labels(block: dict[str, Any], actions: Mapping[int, Codes], texts: TextInterner) -> dict[int, Labels]:
    strings = as_list(block.get("strings", []), "memprof.strings")
    strings = [as_text(text, f"memprof.strings[{index}]") for index, text in enumerate(strings)]
    rows = [texts.row(text) for text in strings]
    # The last row answers -1: not known.
    text_rows = np.array([*rows, -1], np.int32)
    tables = []
    for name, key in (("labels", "entry"), ("base_labels", "address")):
        if block.get(name) is not None:
            table = as_dict(block[name], f"memprof.{name}")
            tables.append(_label_table(table, f"memprof.{name}", key, strings, text_rows))
    found: dict[int, Labels] = {}
    for device in sorted({int(device) for devices, _ in tables for device in np.unique(devices)}):
        parts = [{name: column[devices == device] for name, column in columns.items()} for devices, columns in tables]
        joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        found[device] = Labels(**joined)
        _check_targets(found[device], device, actions)
    return found


def _label_table(
    table: dict[str, Any], place: str, key: str, strings: list[str], text_rows: NDArray[np.int32]
) -> tuple[NDArray[np.int64], dict[str, NDArray[Any]]]:
    """Return the devices and the columns of one table; `key` is the column that says what a row is about."""
    for required in ("device", key):
        if required not in table:
            malformed(place, f"has no {required!r}")
    devices = _ints(table["device"], f"{place}.device", 0, DEVICES)
    count = len(devices)

    def column(name: str, low: int, end: int) -> NDArray[np.int64]:
        if table.get(name) is None:
            return np.full(count, -1, np.int64)
        found = _ints(table[name], f"{place}.{name}", low, end)
        if len(found) != count:
            malformed(f"{place}.{name}", f"has {len(found)} rows where 'device' has {count}")
        return found

    columns: dict[str, NDArray[Any]] = {
        "entry": column("entry", 0, INT64_END) if key == "entry" else np.full(count, -1, np.int64),
        "address": column("address", 0, ADDRESS_END) if key == "address" else np.full(count, -1, np.int64),
        "step": column("step", -1, 1 << 31).astype(np.int32),
        "saved": _saved(table.get("saved"), f"{place}.saved", count),
    }
    for name in _TEXTS:
        indices = column(name, -1, len(strings))
        if name == "shape":
            check_shapes((strings[index] for index in np.unique(indices).tolist() if index >= 0), f"{place}.shape")
        columns[name] = text_rows[indices]
    return devices, columns


def _saved(value: Any, place: str, count: int) -> NDArray[np.bool_]:
    if value is None:
        return np.zeros(count, np.bool_)
    items = as_list(value, place)
    if len(items) != count:
        malformed(place, f"has {len(items)} rows where 'device' has {count}")
    for index, item in enumerate(items):
        if type(item) not in (bool, int) or item not in (0, 1):
            malformed(f"{place}[{index}]", f"is {shown(item)}, not a bool")
    return np.array(items, np.bool_)


def _check_targets(labels: Labels, device: int, actions: Mapping[int, Codes]) -> None:
    """Make sure that each label is about an allocation, and each allocation has one label at most."""
    entries = labels.entry[labels.entry >= 0]
    codes = actions.get(device, np.zeros(0, np.uint8))
    beyond = np.flatnonzero(entries >= len(codes))
    if len(beyond):
        malformed(
            "memprof.labels",
            f"has a label for entry {int(entries[beyond[0]])} of device {device}, which has {len(codes)}",
        )
    wrong = np.flatnonzero(codes[entries] != Action.ALLOC)
    if len(wrong):
        malformed(
            "memprof.labels", f"has a label for entry {int(entries[wrong[0]])} of device {device}, which is no alloc"
        )
    if len(np.unique(entries)) != len(entries):
        malformed("memprof.labels", f"has two labels for one entry of device {device}")
    addresses = labels.address[labels.entry < 0]
    if len(np.unique(addresses)) != len(addresses):
        malformed("memprof.base_labels", f"has two labels for one address of device {device}")


def _marks(value: Any, actions: Mapping[int, Codes]) -> dict[int, list[Mark]]:
    found: dict[int, list[Mark]] = {}
    items = as_list(value if value is not None else [], "memprof.marks")
    if len(items) > _MARKS:
        malformed("memprof.marks", f"has {len(items)} marks")
    for index, item in enumerate(items):
        place = f"memprof.marks[{index}]"
        mark = as_dict(item, place)
        device = as_int(mark.get("device"), f"{place}.device", end=DEVICES)
        entry = as_int(mark.get("entry"), f"{place}.entry", end=len(actions.get(device, ())) + 1)
        name = as_text(mark.get("name"), f"{place}.name")
        check_mark_name(name, f"{place}.name")
        found.setdefault(device, []).append(Mark(entry=entry, name=name))
    return {device: sorted(marks, key=lambda mark: mark.entry) for device, marks in found.items()}


STATS = (
    "max_allocated_bytes",
    "max_reserved_bytes",
    "device_used_bytes",
    "managed_bytes",
    "reserved_bytes",
    "process_used_bytes",
)
"""Figures of a row of ``stats``; each may be missing."""


def _stats(value: Any) -> dict[int, list[Stats]]:
    found: dict[int, list[Stats]] = {}
    for index, item in enumerate(as_list(value if value is not None else [], "memprof.stats")):
        place = f"memprof.stats[{index}]"
        row = as_dict(item, place)
        figures = {
            name: None if row.get(name) is None else as_int(row[name], f"{place}.{name}", end=SIZE_END)
            for name in STATS
        }
        device = as_int(row.get("device"), f"{place}.device", end=DEVICES)
        step = as_int(row.get("step"), f"{place}.step", low=-1, end=1 << 31)
        found.setdefault(device, []).append(Stats(step=step, **figures))
    return found
