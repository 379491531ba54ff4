"""What of a ``memprof`` dict is read as more than text later: the facts of a run, shapes, and the names of marks.

Whoever prints, groups or fits takes these as they are, so that what they need is made sure of here, once.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from memprof.trace.check import INT64_END, as_dict, as_int, as_text, clean, malformed, shown

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["check_mark_name", "check_shapes", "read_made_by", "read_plain"]

_PLAIN_DEPTH = 8
_PLAIN_ITEMS = 10_000
_COUNT_END = 1 << 31
_COUNTS = {"mbs": 1, "seq": 1, "lm_head_chunk_size": 0}
"""Settings that are calculated with, and the least that each can be."""
_NAMES = ("model", "precision", "quant", "optimizer", "fix")
"""Settings that are looked up or sorted by."""
_DIMENSIONS = 64
_SHAPE = re.compile(rf"(?:[0-9]{{1,18}}(?:,[0-9]{{1,18}}){{0,{_DIMENSIONS - 1}}})?")
"""The empty text is a scalar; 18 digits fit an int64."""
_STEP_NAME = re.compile(r"step (\d+)(?: \w+)?")
_STEP_NUMBER = re.compile(r"[0-9]{1,9}")


def read_made_by(value: Any, place: str) -> dict[str, Any] | None:
    """Return how a file was made: a copy of a small tree of JSON's types, its configuration of the types that it has.

    Raises
    ------
    InputError
        It is no such tree, or ``config`` is not a dict, or a setting that memprof calculates with is no such number.
    """
    made_by = read_plain(value, place)
    if made_by is None or made_by.get("config") is None:
        return made_by
    config = as_dict(made_by["config"], f"{place}.config")
    for name, least in _COUNTS.items():
        if config.get(name) is not None:
            as_int(config[name], f"{place}.config.{name}", least, _COUNT_END)
    for name in _NAMES:
        if config.get(name) is not None:
            as_text(config[name], f"{place}.config.{name}")
    return made_by


def read_plain(value: Any, place: str) -> dict[str, Any] | None:
    """Return a copy of a dict that is a small tree of JSON's types; None for None.

    Raises
    ------
    InputError
        It is not, or is nested or large beyond reason (also by a cycle).
    """
    if value is None:
        return None
    budget = [_PLAIN_ITEMS]
    copied = _plain(as_dict(value, place), place, 0, budget)
    assert isinstance(copied, dict)
    return copied


def check_shapes(shapes: Iterable[str], place: str) -> None:
    """Make sure that each text is a shape: comma-separated sizes, none for a scalar.

    Raises
    ------
    InputError
        One is not, or has more or longer numbers than a tensor can have.
    """
    for shape in shapes:
        if not _SHAPE.fullmatch(shape):
            malformed(
                place, f"has {shown(shape)}, not up to {_DIMENSIONS} comma-separated sizes of up to 18 digits each"
            )


def check_mark_name(name: str, place: str) -> None:
    """Make sure that a mark of a step has a number that can be read.

    Raises
    ------
    InputError
        The number has other digits than 0 to 9, or more than nine of them.
    """
    match = _STEP_NAME.fullmatch(name)
    if match and not _STEP_NUMBER.fullmatch(match[1]):
        malformed(place, f"is {shown(name)}, whose step is not a number of up to 9 digits")


def _plain(value: Any, place: str, depth: int, budget: list[int]) -> Any:
    """Return a copy of a small tree of JSON's types; a cycle, a depth or a size beyond reason is an error."""
    budget[0] -= 1
    if depth > _PLAIN_DEPTH or budget[0] < 0:
        malformed(place, f"is nested deeper than {_PLAIN_DEPTH} or has more than {_PLAIN_ITEMS} values")
    kind = type(value)
    copied = value
    if kind is str:
        copied = clean(value)
    elif kind is int:
        copied = as_int(value, place, -INT64_END, INT64_END)
    elif kind is float:
        if not math.isfinite(value):
            malformed(place, f"is {shown(value)}, not a finite number")
    elif kind in (list, tuple):
        copied = [_plain(item, f"{place}[{index}]", depth + 1, budget) for index, item in enumerate(value)]
    elif kind is dict:
        copied = {
            as_text(key, f"a key of {place}"): _plain(item, f"a value of {place}", depth + 1, budget)
            for key, item in value.items()
        }
    elif value is not None and kind is not bool:
        malformed(place, f"is {shown(value)}, not a plain value")
    return copied
