# ruff: noqa: INP001  # a script's helper, not a package
"""What a run asked the allocator for, in short, in a file."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["events_of", "read_events", "sizes_of", "write_events"]

_LETTERS = {
    "alloc": "a",
    "free_requested": "f",
    "segment_alloc": "s",
    "segment_map": "s",
    "segment_free": "r",
    "segment_unmap": "r",
}


def events_of(trace: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a device's trace in short.

    ``actions`` has a letter for each entry: ``a`` alloc, ``f`` free requested, ``s`` segment, ``r`` its release;
    ``values`` has bytes for ``a`` and ``s``, the number of the ``a`` that is freed for ``f`` (-1: born before), and
    an index into ``addresses`` for ``r``; ``addresses`` are those of the ``s``.
    """
    actions, values, addresses = [], [], []
    live: dict[int, int] = {}
    segments: dict[int, int] = {}
    born = 0
    for entry in trace:
        letter = _LETTERS.get(entry["action"])
        if letter is None:
            continue
        actions.append(letter)
        address, size = entry["addr"], entry["size"]
        if letter == "a":
            live[address] = born
            born += 1
            values.append(size)
        elif letter == "f":
            values.append(live.pop(address, -1))
        elif letter == "s":
            segments[address] = len(addresses)
            addresses.append(address)
            values.append(size)
        else:
            values.append(segments.get(address, -1))
    return {"actions": "".join(actions), "values": values, "addresses": addresses}


def sizes_of(events: dict[str, Any]) -> list[int]:
    """Return the bytes of every allocation, in order."""
    return [value for action, value in zip(events["actions"], events["values"], strict=True) if action == "a"]


def write_events(path: Path, figures: dict[str, Any]) -> None:
    """Write figures and events."""
    path.write_bytes(gzip.compress(json.dumps(figures, separators=(",", ":")).encode(), mtime=0))


def read_events(path: Path) -> dict[str, Any]:
    """Read what `write_events` wrote."""
    found: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return found
