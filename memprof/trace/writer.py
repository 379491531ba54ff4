"""Writing a snapshot: whole or not at all, and so that memory_viz opens it."""

from __future__ import annotations

import contextlib
import gc
import pickle
from itertools import chain
from typing import TYPE_CHECKING, Any

from memprof.atomic import write_whole

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

__all__ = ["PROTOCOL", "check_plain", "write_snapshot"]

PROTOCOL = 4
"""The newest that memory_viz reads."""

_CONTAINERS = frozenset({dict, list, tuple})
_PLAIN = frozenset({str, int, float, bool, type(None)})
_INT_END = 1 << 63
"""memory_viz reads integers of eight bytes at most."""


def write_snapshot(snapshot: dict[str, Any], path: str | os.PathLike[str]) -> None:
    """Write `snapshot` to `path` as a pickle that memory_viz opens.

    The file is written beside its place and moved there once it is complete, so that `path` never holds half a
    snapshot, and what was there before stays until then. An unsigned integer of 8 bytes that is too large for a signed
    one is replaced in `snapshot` itself by the signed one of the same bits.

    Raises
    ------
    OutputError
        The file cannot be written: no space, no permission, no such folder.
    TypeError
        A value is not one of dict, list, tuple, str, int, float, bool, None themselves (a subclass, such as a numpy
        number, is not), or is a larger integer than memory_viz reads: names the place.
    """
    with _no_collection():
        check_plain(snapshot)
        write_whole(path, lambda file: pickle.dump(snapshot, file, protocol=PROTOCOL))


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Keep the garbage collector from walking millions of containers again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def check_plain(root: Any) -> None:
    """Make sure that pickling `root` takes memory_viz's opcodes only.

    One level of containers after the other, each container once, so that a million entries cost a few calls in C.

    Raises
    ------
    TypeError
        They do not: names the place.
    """
    if type(root) not in _CONTAINERS:
        raise TypeError(f"a snapshot is a dict or a list, not a {type(root).__name__}")
    level = [root]
    seen = {id(root)}
    while level:
        if not set(map(type, chain.from_iterable(c for c in level if type(c) is dict))) <= _PLAIN:
            owner = next(c for c in level if type(c) is dict and not set(map(type, c)) <= _PLAIN)
            raise TypeError(f"{_place(root, owner)} has a key that is no plain value")
        values = list(chain.from_iterable(c.values() if type(c) is dict else c for c in level))
        kinds = set(map(type, values))
        for kind in kinds - _PLAIN - _CONTAINERS:
            owner = next(c for c in level if kind in map(type, c.values() if type(c) is dict else c))
            raise TypeError(f"{_place(root, owner)} holds a {kind.__module__}.{kind.__qualname__}, no plain value")
        if int in kinds:
            integers = [value for value in values if type(value) is int]
            if min(integers) < -_INT_END or max(integers) >= _INT_END:
                for container in level:
                    _make_signed(root, container)
        inner = {id(value): value for value in values if type(value) in _CONTAINERS} if kinds & _CONTAINERS else {}
        level = [value for identity, value in inner.items() if identity not in seen]
        seen.update(inner)


def _make_signed(root: Any, container: Any) -> None:
    """Write unsigned integers of 8 bytes as the signed ones of the same bits: torch has 2**64 - 1 for line -1."""
    for key, value in container.items() if type(container) is dict else enumerate(container):
        if type(value) is int and not -_INT_END <= value < _INT_END:
            if type(container) is tuple or not _INT_END <= value < 2 * _INT_END:
                raise TypeError(f"{_place(root, container)} holds an integer of more than 8 bytes")
            container[key] = value - 2 * _INT_END


def _place(root: Any, wanted: Any) -> str:
    """Return the way from `root` to the container `wanted`, such as ``snapshot['memprof']['labels']``."""
    seen = {id(root)}
    waiting: list[tuple[str, Any]] = [("snapshot", root)]
    while waiting:
        place, container = waiting.pop()
        if container is wanted:
            return place
        pairs = container.items() if type(container) is dict else enumerate(container)
        for key, value in pairs:
            if type(value) in _CONTAINERS and id(value) not in seen:
                seen.add(id(value))
                waiting.append((f"{place}[{key!r}]", value))
    return "snapshot"
