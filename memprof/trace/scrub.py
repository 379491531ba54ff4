"""Removes from a snapshot what names a person or a machine, in place; every number stays.

Known texts are cleaned: file names, function names, annotations, settings, memprof's own facts. Free text (the
allocator's ``user_metadata``, source lines of ``fx_original_trace``) and texts under keys that no snapshot of torch has
are emptied: nobody can say what is in them.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from memprof.trace.private_text import PrivateText, user_names_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["Scrubbed", "scrub_snapshot"]

CONTAINERS = frozenset({dict, list, tuple})
NoneType = type(None)  # types.NoneType is new in Python 3.10, and mypy knows this one
NUMBERS = frozenset({int, float, bool, NoneType})
MANY = 1000
"""So many items are worth a way of their own."""
CLEANED = frozenset(
    {"action", "state", "segment_type", "stage", "category", "compile_context"}
    | {"fx_node_op", "fx_node_name", "fx_node_target"}
)
"""Keys of entries, segments, blocks and frames whose text says nothing of a person unless it has a path in it."""
PRIVATE = frozenset(
    {"cwd", "home", "host", "hostname", "login", "machine_name", "node", "nodename", "user", "username", "working_dir"}
)
"""Keys whose text is emptied wherever they stand."""


class Scrubbed:
    """Counts of what was changed."""

    __slots__ = ("emptied", "files", "texts")

    def __init__(self) -> None:
        self.files = 0
        """Distinct file names that became shorter."""
        self.texts = 0
        """Distinct texts that changed, of each place in a file."""
        self.emptied = 0
        """Distinct texts that were emptied, of each place in a file."""


def scrub_snapshot(snapshot: Any, names: Mapping[str, str] | None = None) -> Scrubbed:
    """Scrub a snapshot that `read_snapshot` accepts.

    Parameters
    ----------
    snapshot
        The plain value of the file: a dict, or the bare list of segments of old files. Changed in place.
    names
        User and host names to replace beside those that paths in the file show, and what to put in their place.
    """
    found = dict.fromkeys(sorted(user_names_in(_texts_with_paths(snapshot))), "user")
    scrubber = _Scrubber(PrivateText({**found, **(names or {})}))
    scrubber.snapshot(snapshot)
    return scrubber.done


class _Scrubber:
    def __init__(self, private: PrivateText) -> None:
        self._private = private
        self._seen: set[int] = set()  # containers live on in the snapshot, so an id stays theirs
        self._files: set[str] = set()
        self.done = Scrubbed()

    def snapshot(self, snapshot: Any) -> None:
        if type(snapshot) is not dict:
            self._holders(snapshot)
            return
        for key, value in snapshot.items():
            if key == "segments":
                self._holders(value)
            elif key == "device_traces":
                for trace in value:
                    self._holders(trace)
            elif key == "external_annotations":
                self._holders(value, name=self._private.text)
            elif key == "memprof":
                self._memprof(value)
            else:
                change = self._private.text if key == "allocator_settings" else None
                snapshot[key] = self._any(value, change, key)

    def _holders(self, holders: Any, *, name: Callable[[str], str] | None = None) -> None:
        """Scrub entries, segments, blocks, a block's history or annotations, a column at a time.

        A million entries have few distinct texts and stacks: those are looked at, the rest goes by in C.
        """
        for key in set(chain.from_iterable(holders)):
            column = [holder.get(key) for holder in holders]
            kinds = set(map(type, column))
            if kinds <= NUMBERS:
                continue
            if key == "frames" and kinds <= {list, tuple, NoneType}:
                self._stacks(list(filter(None, column)))
            elif key in ("blocks", "history") and kinds <= {list, tuple, NoneType} and _of_dicts(column):
                self._holders(list(chain.from_iterable(filter(None, column))))
            elif kinds <= NUMBERS | {str}:
                change = self._private.text if key in CLEANED else name if key == "name" else None
                new = {text: self._text(text, change) for text in set(column) if type(text) is str}
                if any(text != changed for text, changed in new.items()):
                    for holder, text in zip(holders, column, strict=True):
                        if type(text) is str:
                            holder[key] = new[text]
            else:
                for holder, value in zip(holders, column, strict=True):
                    holder[key] = self._any(value, self._private.text if key == "forward_frames" else None, key)

    def _stacks(self, stacks: list[Any]) -> None:
        frames = dict(zip(map(id, chain.from_iterable(stacks)), chain.from_iterable(stacks), strict=True))
        if set(map(type, frames.values())) <= {dict}:
            self._frames(frames.values())
        else:
            for stack in stacks:
                self._any(stack, None)

    def _frames(self, frames: Iterable[dict[str, Any]]) -> None:
        for frame in frames:
            if id(frame) in self._seen:
                continue
            self._seen.add(id(frame))
            public = self._file(frame)
            change = self._private.paths if public else lambda text: self._private.names(self._private.paths(text))
            for key, value in frame.items():
                if key == "filename" or type(value) is int:
                    continue
                if type(value) is str:
                    known = change if key == "name" else self._private.text if key in CLEANED else None
                    frame[key] = self._text(value, known)
                else:
                    frame[key] = self._any(value, None, key)

    def _file(self, frame: dict[str, Any]) -> bool:
        """Shorten a frame's file name; tell whether it is of a public package."""
        name = frame.get("filename")
        if type(name) is not str:
            return False
        short, public = self._private.file(name)
        if short != name and name not in self._files:
            self._files.add(name)
            self.done.files += 1
        frame["filename"] = short
        return public

    def _memprof(self, value: Any) -> None:
        if type(value) is not dict:
            return
        for key, part in value.items():
            # Names of modules, ops and categories: a user's name in one is the program's own word.
            change = self._private.paths if key == "strings" else self._private.text
            value[key] = self._any(part, change, key)

    def _any(self, value: Any, change: Callable[[str], str] | None, key: object = None) -> Any:
        """Return `value` with every text in it changed, or emptied where `change` is None."""
        if type(value) is str:
            if key in PRIVATE:
                return self._text(value, None)
            return self._text(value, self._private.command if key == "command" and change is not None else change)
        if type(value) not in CONTAINERS:
            return value
        if type(value) is tuple:
            return tuple(self._any(item, change, key) for item in value)
        if id(value) in self._seen:
            return value
        self._seen.add(id(value))
        if type(value) is list:
            for index, item in enumerate(value):
                if type(item) is not int:
                    value[index] = self._any(item, change, key)
            return value
        changed = {self._key(inner): self._any(item, change, inner) for inner, item in value.items()}
        value.clear()
        value.update(changed)
        return value

    def _key(self, key: Any) -> Any:
        return self._private.text(key) if type(key) is str and ("/" in key or "\\" in key) else key

    def _text(self, text: str, change: Callable[[str], str] | None) -> str:
        if change is None:
            self.done.emptied += bool(text)
            return ""
        changed = change(text)
        self.done.texts += changed != text
        return changed


def _of_dicts(lists: Iterable[Any]) -> bool:
    return set(map(type, chain.from_iterable(filter(None, lists)))) <= {dict}


def _texts_with_paths(root: Any) -> set[str]:
    """Return every text below `root` that may have a path in it; each container is looked at once."""
    found: set[Any] = set()
    seen = {id(root)}
    waiting = [root]
    while waiting:
        inner: dict[int, Any] = {}
        for column in _columns(waiting.pop()):
            kinds = set(map(type, column))
            if kinds <= NUMBERS:
                continue
            if kinds <= NUMBERS | {str}:
                found.update(column)
            elif kinds <= CONTAINERS:
                inner.update(zip(map(id, column), column, strict=True))
            else:
                found.update(value for value in column if type(value) is str)
                inner.update((id(value), value) for value in column if type(value) in CONTAINERS)
        new = [value for identity, value in inner.items() if identity not in seen]
        seen.update(inner)
        if len(new) >= MANY and set(map(type, new)) <= {list, tuple}:
            new = [list(chain.from_iterable(new))]  # the stacks of as many entries
        waiting.extend(new)
    return {text for text in found if type(text) is str and ("/" in text or "\\" in text)}


def _columns(container: Any) -> list[Any]:
    """Return the values of a container: those of a long list of dicts by key, so that most columns are numbers."""
    if type(container) is dict:
        return [container.values()]
    if len(container) >= MANY:
        unique = list(dict(zip(map(id, container), container, strict=True)).values())
        if set(map(type, unique)) == {dict}:
            keys = set(chain.from_iterable(unique))
            if len(keys) < MANY:
                return [[item.get(key) for item in unique] for key in keys]
        return [unique]
    return [container]
