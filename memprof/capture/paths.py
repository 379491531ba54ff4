"""Keeps a machine's directories out of what is written: file names become relative to where their package lies."""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from pathlib import Path
from typing import Any

__all__ = ["command_line", "shorten_paths"]


def shorten_paths(snapshot: dict[str, Any]) -> None:
    """Rewrite every frame's file name in place: below site-packages, the standard library, or the working directory.

    What lies elsewhere keeps its last part only.
    """
    roots = _roots()
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
                known[name] = _shorten(name, roots)
            frame["filename"] = known[name]


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


def _roots() -> list[str]:
    """Return the directories that names are made relative to, the deepest first."""
    scheme = sysconfig.get_paths()
    found = {scheme["purelib"], scheme["platlib"], scheme["stdlib"], str(Path(__file__).parents[2]), str(Path.cwd())}
    found.update(site.getsitepackages())
    found.add(site.getusersitepackages())
    found.update(str(Path(root).resolve()) for root in list(found))
    return sorted((root.rstrip(os.sep) + os.sep for root in found if root.rstrip(os.sep)), key=len, reverse=True)


def _shorten(name: str, roots: list[str]) -> str:
    if not Path(name).is_absolute():
        return name
    for root in roots:
        if name.startswith(root):
            return name[len(root) :]
    return Path(name).name
