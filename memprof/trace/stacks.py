"""Interning: one row for every distinct stack and for every distinct text of a file."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

import numpy as np

from memprof.trace.check import clean, shown
from memprof.trace.model import Frame, StackTable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memprof.trace.model import Indices

__all__ = ["DEPTH", "BadFrameError", "StackInterner", "TextInterner"]

_LINE_END = 1 << 31
DEPTH = 1024
"""Innermost frames that are kept of a stack: Python's own limit is 1,000."""


class BadFrameError(Exception):
    """A frame that is none; holds the frame and the fact, so that the caller can look up where it stands."""

    def __init__(self, frame: Any, fact: str) -> None:
        super().__init__(fact)
        self.frame = frame
        self.fact = fact


class TextInterner:
    """Rows for texts, in the order of their first use."""

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}

    def row(self, text: str) -> int:
        """Return the row of `text`; a new one for a new text."""
        return self._rows.setdefault(clean(text), len(self._rows))

    def texts(self) -> tuple[str, ...]:
        """Return every text, by row."""
        return tuple(self._rows)


class StackInterner:
    """Rows for stacks, first by the identity of their frames (fast), at the end by value.

    torch writes a frame once and refers to it from then on, so that two equal stacks of a pickle are made of the same
    objects. Where they are not (JSON), `finish` joins what is equal. The frames that are given in must stay alive until
    then, since identity is all that is kept of them.
    """

    def __init__(self) -> None:
        self._rows: dict[tuple[int, ...], int] = {(): 0}
        self._stacks: list[Iterable[Any]] = [()]
        self.cut = 0
        """Stacks that were deeper than `DEPTH`, of which the rest was left out."""

    def rows(self, stacks: list[Any]) -> list[int]:
        """Return the provisional row of each stack, a list of frames each; see `finish`."""
        table = self._rows
        seen = len(table)
        if stacks and max(map(len, stacks)) > DEPTH:
            stacks = [self._innermost(stack) for stack in stacks]
        rows = [table.setdefault((*map(id, stack),), len(table)) for stack in stacks]
        if len(table) > seen:
            for row, stack in zip(rows, stacks, strict=True):
                if row == len(self._stacks):
                    self._stacks.append(stack)
        return rows

    def _innermost(self, stack: Any) -> Any:
        if len(stack) <= DEPTH:
            return stack
        self.cut += 1
        return stack[:DEPTH]

    def finish(self) -> tuple[StackTable, Indices]:
        """Return the table, and for each provisional row its row in the table (-1 for the empty stack).

        Raises
        ------
        BadFrameError
            A frame is not a dict of name, filename and line.
        """
        frames: dict[tuple[str, str, int], int] = {}
        frame_rows: dict[int, int] = {}
        table: dict[bytes, int] = {b"": -1}
        flat = array("i")
        offsets = array("q", [0])
        final = array("i")
        for stack in self._stacks:
            rows = array("i")
            for frame in stack:
                row = frame_rows.get(id(frame))
                if row is None:
                    row = frames.setdefault(_frame_key(frame), len(frames))
                    frame_rows[id(frame)] = row
                rows.append(row)
            key = rows.tobytes()
            if key not in table:
                table[key] = len(table) - 1
                flat.extend(rows)
                offsets.append(len(flat))
            final.append(table[key])
        stack_table = StackTable(
            frames=tuple(Frame(*key) for key in frames),
            frame_index=np.array(flat, np.int32),
            offsets=np.array(offsets, np.int64),
        )
        return stack_table, np.array(final, np.int32)


def _frame_key(frame: Any) -> tuple[str, str, int]:
    if type(frame) is not dict:
        raise BadFrameError(frame, f"is {shown(frame)}, not a dict")
    name, filename, line = frame.get("name", ""), frame.get("filename", ""), frame.get("line", 0)
    for key, value in (("name", name), ("filename", filename)):
        if type(value) is not str:
            raise BadFrameError(frame, f"has {shown(value)} as its {key}, not a text")
    if type(line) is not int:
        raise BadFrameError(frame, f"has {shown(line)} as its line, not a line number")
    # torch writes an unknown line as -1, and in some versions that as an unsigned integer.
    return clean(name), clean(filename), line if 0 <= line < _LINE_END else 0
