"""Removes from a snapshot what names a person or a machine, in place; every number stays.

Known texts are cleaned: file names, function names, annotations, settings, memprof's own facts. Free text (the
allocator's ``user_metadata``, source lines of ``fx_original_trace``) and texts under keys that no snapshot of torch has
are emptied: nobody can say what is in them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memprof.trace.private_text import PrivateText, user_names_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = ["Scrubbed", "scrub_snapshot"]

CONTAINERS = (dict, list, tuple)
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
        """Texts that changed."""
        self.emptied = 0
        """Texts that were emptied."""


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
                for annotation in value:
                    self._holder(annotation, name=self._private.text)
            elif key == "memprof":
                self._memprof(value)
            else:
                change = self._private.text if key == "allocator_settings" else None
                snapshot[key] = self._any(value, change, key)

    def _holders(self, holders: Any) -> None:
        for holder in holders:
            self._holder(holder)

    def _holder(self, holder: dict[str, Any], *, name: Callable[[str], str] | None = None) -> None:
        """Scrub an entry, segment, block, block's history or annotation."""
        for key, value in holder.items():
            kind = type(value)
            if kind is int:
                continue
            if key == "frames" and _of_dicts(value):
                self._frames(value)
            elif key in ("blocks", "history") and _of_dicts(value):
                self._holders(value)
            elif kind is str:
                change = self._private.text if key in CLEANED else name if key == "name" else None
                holder[key] = self._text(value, change)
            elif kind in CONTAINERS:
                holder[key] = self._any(value, self._private.text if key == "forward_frames" else None, key)

    def _frames(self, frames: Any) -> None:
        if id(frames) in self._seen:  # torch shares a stack between its entries
            return
        self._seen.add(id(frames))
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


def _of_dicts(value: Any) -> bool:
    return type(value) in (list, tuple) and set(map(type, value)) <= {dict}


def _texts_with_paths(root: Any) -> Iterator[str]:
    """Yield every text below `root` that may have a path in it; each container is looked at once."""
    seen = {id(root)}
    waiting = [root]
    while waiting:
        container = waiting.pop()
        for value in container.values() if type(container) is dict else container:
            kind = type(value)
            if kind is str:
                if "/" in value or "\\" in value:
                    yield value
            elif kind in CONTAINERS and id(value) not in seen:
                seen.add(id(value))
                waiting.append(value)
