"""What a simulated run did not know, as its file has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import TypeGuard

__all__ = ["KnownCaveat", "caveats_of", "read_caveats"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownCaveat:
    """One thing that the simulation did not know."""

    kind: str
    what: str
    """One line that names it."""
    count: int
    bytes: int
    """What it could matter, at most; 0 where that cannot be said."""


def caveats_of(environment: Mapping[str, Any] | None) -> tuple[KnownCaveat, ...]:
    """Return the caveats in a file's environment, the one with most bytes first; none of a run that was measured."""
    found = (environment or {}).get("caveats")
    return read_caveats(found) if isinstance(found, (list, tuple)) else ()


def read_caveats(found: Iterable[Any]) -> tuple[KnownCaveat, ...]:
    """Read plain values. What is no caveat is left out: the file is a stranger's."""
    caveats = []
    for each in found:
        if not isinstance(each, dict):
            continue
        kind, what, count, size = (each.get(name) for name in ("kind", "what", "count", "bytes"))
        if isinstance(kind, str) and isinstance(what, str) and _is_count(count) and _is_count(size):
            caveats.append(KnownCaveat(kind=kind, what=what, count=count, bytes=size))
    return tuple(sorted(caveats, key=lambda caveat: -caveat.bytes))


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
