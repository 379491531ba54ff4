"""Trace entries, a list of dicts, into columns: a million of them in half a second, and every value checked.

Entries are taken a few thousand at a time, so that their dicts are still in the CPU's cache when the next column asks
for its key. A chunk that is like any other (all keys there, all numbers ints) never runs Python code per entry.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import compress
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from memprof.trace.check import ADDRESS_END, INT64_END, SIZE_END, as_text, int_column, malformed, shown
from memprof.trace.model import Action, Events

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from memprof.trace.model import Bytes, Codes, Indices
    from memprof.trace.stacks import StackInterner, TextInterner

    Emit = Callable[[str, NDArray[Any], int, int], None]

__all__ = ["ACTIONS", "RawEvents", "read_events"]

_CHUNK = 4096
_EMITTED = 16 * _CHUNK

ACTIONS = {action.name.lower(): int(action) for action in Action if action is not Action.OTHER} | {
    # Some writers have one event for a free; memory_viz reads it as this one too.
    "free": int(Action.FREE_COMPLETED),
}
"""torch's names (``action_to_str`` in ``torch/csrc/cuda/Module.cpp``) of the actions that matter."""

_WITH_STACK = (Action.ALLOC, Action.SEGMENT_ALLOC, Action.SEGMENT_MAP, Action.OOM)
_KEEPS_STACK = bytes(code in _WITH_STACK for code in range(256))


@dataclass(slots=True, kw_only=True)
class RawEvents:
    """Columns of `Events` whose stacks are still provisional rows of a `StackInterner`."""

    action: Codes
    address: Bytes
    size: Bytes
    stream: Bytes
    time_us: Bytes
    stack: Indices
    metadata: Indices

    def __len__(self) -> int:
        """Count the entries."""
        return len(self.action)

    def take(self, rows: NDArray[Any]) -> RawEvents:
        """Return these rows only, in this order."""
        return RawEvents(**{name: getattr(self, name)[rows] for name in self.__slots__})

    def finish(self, stack_rows: Indices) -> Events:
        """Return the columns with final stack rows; `stack_rows` is what `StackInterner.finish` gave."""
        columns = {name: getattr(self, name) for name in self.__slots__}
        return Events(**columns | {"stack": stack_rows[self.stack]})


def read_events(
    entries: list[Any], *, name: str, stacks: StackInterner, texts: TextInterner, emit: Emit | None = None
) -> RawEvents:
    """Return the columns of a list of trace entries.

    Parameters
    ----------
    entries
        What should be dicts with the keys of ``snapshot-format``; they must outlive `stacks`.
    name
        Name of the list for a message, such as ``device_traces[0]``.

    emit
        Receives name, column, start and end of every part of the columns that are complete as soon as they are read.

    Raises
    ------
    InputError
        An entry is not a dict, has no action, address or size, or a value of the wrong type or range.
    """
    count = len(entries)
    columns = RawEvents(
        action=np.empty(count, np.uint8),
        address=np.empty(count, np.int64),
        size=np.empty(count, np.int64),
        stream=np.empty(count, np.int64),
        time_us=np.empty(count, np.int64),
        stack=np.zeros(count, np.int32),
        metadata=np.full(count, -1, np.int32),
    )
    codes = dict(ACTIONS)
    emitted = 0
    for start in range(0, count, _CHUNK):
        chunk = entries[start : start + _CHUNK]
        rows = slice(start, start + len(chunk))

        def place(index: int, start: int = start) -> str:
            return f"{name}[{start + index}]"

        actions = _actions(chunk, codes, place)
        columns.action[rows] = np.frombuffer(actions, np.uint8)
        _fill_numbers(columns, rows, chunk, actions, place)
        kept = actions.translate(_KEEPS_STACK)
        if 1 in kept:
            selected = list(compress(chunk, kept))
            where = np.flatnonzero(np.frombuffer(kept, np.uint8))
            columns.stack[rows][where] = stacks.rows(_stacks_of(selected, where, place))
            metadata = _metadata(selected, where, texts, place)
            if metadata is not None:
                columns.metadata[rows][where] = metadata
        end = start + len(chunk)
        if emit is not None and (end - emitted >= _EMITTED or end == count):
            for column in ("action", "address", "size", "time_us"):
                emit(f"{name}.{column}", getattr(columns, column), emitted, end)
            emitted = end
    if count and columns.size.sum(dtype=np.float64) >= SIZE_END:
        malformed(name, "has sizes that add up to more than any device has ever served")
    return columns


def _actions(chunk: list[Any], codes: dict[str, int], place: Callable[[int], str]) -> bytes:
    """Return the action codes of a chunk; also makes sure that its entries are dicts."""
    if set(map(type, chunk)) != {dict}:
        index = next(i for i, entry in enumerate(chunk) if type(entry) is not dict)
        malformed(place(index), f"is {shown(chunk[index])}, not a dict")
    try:
        return bytes(map(codes.__getitem__, map(itemgetter("action"), chunk)))
    except (KeyError, TypeError):
        pass
    found = bytearray()
    for index, entry in enumerate(chunk):
        if "action" not in entry:
            malformed(place(index), "has no 'action'")
        action = as_text(entry["action"], f"{place(index)}.action")
        found.append(codes.setdefault(action, int(Action.OTHER)))
    return bytes(found)


def _fill_numbers(
    columns: RawEvents, rows: slice, chunk: list[dict[str, Any]], actions: bytes, place: Callable[[int], str]
) -> None:
    def address_elsewhere(index: int) -> Any:
        if actions[index] == Action.OOM:
            return chunk[index].get("device_free", 0)
        return absent(index)

    def absent(index: int) -> int | None:
        # Snapshots, annotations and actions of tomorrow need neither address nor size: they move no memory.
        return 0 if actions[index] in (Action.SNAPSHOT, Action.OTHER) else None

    columns.address[rows] = int_column(chunk, "addr", place=place, end=ADDRESS_END, default=address_elsewhere)
    columns.size[rows] = int_column(chunk, "size", place=place, end=SIZE_END, default=absent)
    columns.stream[rows] = _streams(chunk, place)
    columns.time_us[rows] = int_column(chunk, "time_us", place=place, end=INT64_END, default=0)


def _streams(chunk: list[dict[str, Any]], place: Callable[[int], str]) -> Bytes | int:
    """Return the streams of a chunk, or the one stream of all its entries."""
    found = _values(chunk, "stream")
    first = found[0]
    if type(first) is int and -INT64_END <= first < INT64_END and found.count(first) == len(found):
        return first
    # A stream is an opaque handle: any 64 bits.
    return int_column(chunk, "stream", place=place, low=-INT64_END, end=INT64_END, default=0)


def _values(rows: list[dict[str, Any]], key: str) -> list[Any]:
    """Return `key` of each row, None where it is absent."""
    try:
        return list(map(itemgetter(key), rows))
    except KeyError:
        return [row.get(key) for row in rows]


def _stacks_of(selected: list[dict[str, Any]], where: NDArray[Any], place: Callable[[int], str]) -> list[Any]:
    found = _values(selected, "frames")
    if set(map(type, found)) == {list}:
        return found
    for index, stack in enumerate(found):
        if stack is None:
            found[index] = ()
        elif type(stack) is not list and type(stack) is not tuple:
            malformed(f"{place(int(where[index]))}.frames", f"is {shown(stack)}, not a list")
    return found


def _metadata(
    selected: list[dict[str, Any]], where: NDArray[Any], texts: TextInterner, place: Callable[[int], str]
) -> list[int] | None:
    """Return rows of `texts` for the allocator's metadata, None where no entry has any."""
    found = _values(selected, "user_metadata")
    kinds = set(map(type, found))
    if not kinds <= {str, dict, type(None)}:
        index = next(i for i, value in enumerate(found) if type(value) not in (str, dict, type(None)))
        malformed(f"{place(int(where[index]))}.user_metadata", f"is {shown(found[index])}, neither text nor dict")
    if kinds == {str} and set(found) == {""}:
        return None
    if dict in kinds:
        for index, value in enumerate(found):
            if type(value) is dict:
                found[index] = _metadata_text(value, f"{place(int(where[index]))}.user_metadata")
    known = {None: -1, "": -1}
    for text in set(found) - known.keys():
        known[text] = texts.row(text)
    return [known[text] for text in found]


def _metadata_text(value: dict[Any, Any], place: str) -> str:
    """Return a dict of metadata as JSON text, keys sorted; only flat dicts of texts are written by torch."""
    if not value:
        return ""
    for key, entry in value.items():
        if type(key) is not str or type(entry) not in (str, int, bool, type(None)):
            malformed(place, "holds more than plain texts and integers")
    return json.dumps(value, sort_keys=True)
