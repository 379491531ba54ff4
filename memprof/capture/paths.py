"""Keeps a machine's directories out of what is written: file names become relative to where their package lies."""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["command_line", "shorten_paths", "shortener"]


def shorten_paths(snapshot: dict[str, Any]) -> None:
    """Rewrite every frame's file name in place, relative to an entry of ``sys.path`` or the working directory.

    Of what lies elsewhere stays the path from its package on, or its last part only.
    """
    places = _Places()
    known: dict[str, str] = {}
    done: set[int] = set()
    for holder in _holders(snapshot):
        frames = holder.get("frames")
        if not frames or id(frames) in done:  # torch shares one list between all entries of a stack
            continue
        done.add(id(frames))
        for frame in frames:
            name = frame["filename"]
            if name not in known:
                known[name] = places.shorten(name)
            frame["filename"] = known[name]


def shortener() -> Callable[[str], str]:
    """Return a function that makes one file name relative, as `shorten_paths` does, and remembers it."""
    return lru_cache(maxsize=None)(_Places().shorten)


def command_line() -> str | None:
    """Return the command that runs, if it is memprof's, with the directories of its arguments left out."""
    program = Path(sys.argv[0])
    if program.name not in ("memprof", "__main__.py", "cli.py"):
        return None
    return " ".join(["memprof", *(_last_part(argument) for argument in sys.argv[1:])])


def _last_part(argument: str) -> str:
    option, equals, value = argument.partition("=")
    if equals and Path(value).is_absolute():
        return f"{option}={Path(value).name}"
    return Path(argument).name if Path(argument).is_absolute() else argument


def _holders(snapshot: dict[str, Any]) -> Any:
    for trace in snapshot["device_traces"]:
        yield from trace
    for segment in snapshot["segments"]:
        yield segment
        yield from segment["blocks"]


class _Places:
    """The directories that names are made relative to."""

    def __init__(self) -> None:
        scheme = sysconfig.get_paths()
        found = {
            scheme["purelib"],
            scheme["platlib"],
            scheme["stdlib"],
            str(Path(__file__).parents[2]),
            str(Path.cwd()),
        }
        found.update(site.getsitepackages())
        found.add(site.getusersitepackages())
        found.update(str(Path(entry).absolute()) for entry in sys.path)
        found.update(str(Path(root).resolve()) for root in list(found))
        deepest = sorted((root.rstrip(os.sep) for root in found), key=len, reverse=True)
        self._roots = [root + os.sep for root in deepest if root]
        self._packages: dict[Path, Path] = {}

    def shorten(self, name: str) -> str:
        """Make `name` relative to the deepest directory outside its package, or keep its last part only."""
        path = Path(name)
        if not path.is_absolute():
            return name
        # A script's own directory is in sys.path, and may lie inside a package.
        above = self._above_package(path.parent)
        for root in self._roots:
            if f"{above}{os.sep}".startswith(root):
                return name[len(root) :]
        return str(path.relative_to(above))

    def _above_package(self, directory: Path) -> Path:
        """Return the closest directory, from `directory` upwards, that is no package."""
        if directory not in self._packages:
            inside = directory != directory.parent and (directory / "__init__.py").is_file()
            self._packages[directory] = self._above_package(directory.parent) if inside else directory
        return self._packages[directory]
