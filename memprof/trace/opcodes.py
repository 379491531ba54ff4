"""What pytorch.org/memory_viz can open: its JavaScript unpickler knows few opcodes, and stops at any other.

The list is that of ``unpickle`` in ``torch/utils/viz/MemoryViz.js``.
"""

from __future__ import annotations

import io
import pickletools
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os

__all__ = ["KNOWN_OPCODES", "check_memory_viz"]

KNOWN_OPCODES = frozenset(
    {"PROTO", "FRAME", "MARK", "STOP"}
    | {"NONE", "NEWTRUE", "NEWFALSE"}
    | {"BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"}
    | {"SHORT_BINUNICODE", "BINUNICODE"}
    | {"EMPTY_LIST", "APPEND", "APPENDS", "LIST"}
    | {"EMPTY_DICT", "SETITEM", "SETITEMS", "DICT"}
    | {"EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"}
    | {"BINGET", "LONG_BINGET", "BINPUT", "LONG_BINPUT", "MEMOIZE"}
)
"""Names, as in `pickletools`."""

_PROTOCOLS = (2, 3, 4)
_LONG1_END = 1 << 63
"""memory_viz reads a LONG1 of eight bytes at most."""


def check_memory_viz(source: str | os.PathLike[str] | bytes) -> list[str]:
    """Return what of a pickle memory_viz cannot read, in words; an empty list if it can open it.

    Nothing is unpickled: the opcodes are only listed, at about a million a second.

    Parameters
    ----------
    source
        A file, or the pickle itself.
    """
    problems: dict[str, int] = {}

    def note(problem: str) -> None:
        problems[problem] = problems.get(problem, 0) + 1

    with io.BytesIO(source) if isinstance(source, bytes) else Path(source).open("rb") as file:
        first = True
        try:
            for opcode, argument, _ in pickletools.genops(file):
                if first and opcode.name != "PROTO":
                    note("no protocol mark at the start (protocol 0 or 1)")
                first = False
                if opcode.name == "PROTO" and argument not in _PROTOCOLS:
                    note(f"protocol {argument}")
                elif opcode.name not in KNOWN_OPCODES:
                    note(f"opcode {opcode.name}")
                elif opcode.name == "LONG1" and argument is not None and not -_LONG1_END <= argument < _LONG1_END:
                    note("an integer of more than 8 bytes")
        except ValueError as error:
            note(f"no complete pickle ({error})")
    return [f"{problem} ({count} times)" if count > 1 else problem for problem, count in problems.items()]
