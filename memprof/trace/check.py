"""Checks of values from a stranger's file: each failure is one line that names the place and the fact.

Texts of the file are data: what is quoted from it is short and has no control characters. The name of the file is put
in front by whoever opened it.
"""

from __future__ import annotations

from array import array
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from memprof.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

__all__ = [
    "ADDRESS_END",
    "DEVICES",
    "INT64_END",
    "SIZE_END",
    "as_dict",
    "as_int",
    "as_list",
    "as_text",
    "clean",
    "int_column",
    "malformed",
    "shown",
]

SIZE_END = 1 << 62
"""Sizes are below this: two of them still add up in an int64."""
ADDRESS_END = 1 << 62
"""Addresses are below this: address + size still fits an int64. CUDA's are 47 to 57 bits."""
INT64_END = 1 << 63
DEVICES = 128
"""Devices are below this: torch numbers them in 7 bits (``DeviceIndex`` is an int8, ``c10/core/Device.h``)."""

_QUOTED = 60
"""Characters of a file's text that a message quotes at most."""
_ABSENT = object()


def clean(text: str) -> str:
    """Return `text` without lone surrogates, which no terminal, file or JSON could take."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="replace").decode()
    return text


def shown(value: Any) -> str:
    """Describe a value of a file in a few printable characters."""
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, int):
        return str(value) if value.bit_length() <= 128 else f"an integer of {value.bit_length()} bits"
    if isinstance(value, float):
        return f"the float {value}"
    if isinstance(value, str):
        quoted = ascii(value[:_QUOTED])
        return f"the text {quoted}" + ("..." if len(value) > _QUOTED else "")
    kind = type(value).__name__
    return f"an empty {kind}" if isinstance(value, (list, dict, tuple)) and not value else f"a {kind}"


def malformed(place: str, fact: str) -> NoReturn:
    """Raise the one kind of error that a wrong value in a file gives.

    Raises
    ------
    InputError
        Always.
    """
    raise InputError(f"{place} {fact}: not a torch memory snapshot, or a damaged one")


def as_list(value: Any, place: str) -> list[Any]:
    """Return `value`, which must be a list (or a tuple)."""
    if type(value) is list:
        return value
    if type(value) is tuple:
        return list(value)
    malformed(place, f"is {shown(value)}, not a list")


def as_dict(value: Any, place: str) -> dict[Any, Any]:
    """Return `value`, which must be a dict."""
    if type(value) is dict:
        return value
    malformed(place, f"is {shown(value)}, not a dict")


def as_text(value: Any, place: str) -> str:
    """Return `value`, which must be a str, without lone surrogates."""
    if type(value) is str:
        return clean(value)
    malformed(place, f"is {shown(value)}, not a text")


def as_int(value: Any, place: str, low: int = 0, end: int = SIZE_END) -> int:
    """Return `value`, which must be an int (a bool is none) with low <= value < end."""
    if type(value) is not int:
        malformed(place, f"is {shown(value)}, not an integer")
    if not low <= value < end:
        malformed(place, f"is {shown(value)}, outside {low} to {end - 1}")
    return value


def int_column(
    rows: Sequence[Mapping[str, Any]],
    key: str,
    *,
    place: Callable[[int], str],
    low: int = 0,
    end: int = SIZE_END,
    default: int | Callable[[int], Any] | None = None,
) -> NDArray[np.int64]:
    """Return `key` of every row as an int64 column, each value an int with low <= value < end.

    Parameters
    ----------
    rows
        Dicts, already known to be dicts.
    place
        Gives the name of row i for a message; only called when something is wrong.
    default
        Value of a row without `key`, or a function of the row's index that gives it; None makes such a row an error.
    """
    if not rows:
        return np.zeros(0, np.int64)
    values: list[Any] = []
    try:
        values = list(map(itemgetter(key), rows))
        # An array of "q" takes ints (and bools, which are 0 and 1) within 64 bits and raises on anything else.
        column = np.frombuffer(array("q", values), dtype=np.int64)
    except KeyError:
        pass
    except (TypeError, OverflowError):
        pass
    else:
        smallest = int(column.min())
        if (
            smallest >= low
            and (end >= INT64_END or int(column.max()) < end)
            and (smallest >= 2 or set(map(type, values)) == {int})
        ):
            return column
    checked = array("q")
    for index, row in enumerate(rows):
        value = row.get(key, _ABSENT)
        if value is _ABSENT:
            value = default(index) if callable(default) else default
            if value is None:
                malformed(place(index), f"has no {key!r}")
        checked.append(as_int(value, f"{place(index)}.{key}", low, end))
    return np.frombuffer(checked, dtype=np.int64)
