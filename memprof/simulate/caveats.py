"""What a simulated run had to invent or does not know, with the bytes that it could matter."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Caveat", "Caveats"]

_OWN_FOLDER = str(Path(__file__).parent)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caveat:
    """One thing that the simulation did not know."""

    kind: str
    """``value``: a host value was invented; ``temporaries``: an op whose internal memory is not in the table;
    ``card``: a property of the card that was never measured; ``library``: a library's behaviour that is assumed;
    ``refused``: something that was refused, which the program caught and went on."""
    what: str
    """One line that names the op, the value or the property."""
    where: str
    """Innermost line of the user's code at the first occurrence, ``file:line``; empty where there is none."""
    count: int
    bytes: int
    """Bytes that it could matter, at most, at one moment: the largest storage involved; 0 where none can be named."""


class Caveats:
    """Collects caveats; the same thing twice is one caveat, counted."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], tuple[str, int, int]] = {}

    def add(self, kind: str, what: str, nbytes: int = 0) -> None:
        """Note one thing that was not known."""
        known = self._found.get((kind, what))
        if known is None:
            self._found[kind, what] = (_user_line(), 1, nbytes)
        else:
            where, count, most = known
            self._found[kind, what] = (where, count + 1, max(most, nbytes))

    def widen(self, kind: str, what: str, nbytes: int) -> None:
        """Say of something noted before that it could matter so many bytes, if that is more than was said."""
        where, count, most = self._found[kind, what]
        self._found[kind, what] = (where, count, max(most, nbytes))

    def list(self) -> list[Caveat]:
        """Return the caveats, the one with most bytes first."""
        found = [
            Caveat(kind=kind, what=what, where=where, count=count, bytes=nbytes)
            for (kind, what), (where, count, nbytes) in self._found.items()
        ]
        return sorted(found, key=lambda caveat: -caveat.bytes)


def _user_line() -> str:
    """Return the innermost line outside of this package and torch, or the innermost in torch."""
    frame = sys._getframe(2)
    first = ""
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(_OWN_FOLDER):
            line = f"{'/'.join(Path(name).parts[-2:])}:{frame.f_lineno}"
            first = first or line
            if "/torch/" not in name:
                return line
        frame = frame.f_back  # type: ignore[assignment]  # None ends the loop
    return first
