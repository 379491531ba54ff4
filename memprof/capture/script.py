"""Runs somebody's script or module as ``__main__``, as Python itself would."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memprof.errors import CaptureError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

__all__ = ["own_traceback", "run_as_main"]


def run_as_main(target: str, arguments: Sequence[str], *, module: bool) -> dict[str, Any]:
    """Run `target`, a file or with `module` a module's name, and return its globals, so that they stay alive.

    ``sys.argv`` and ``sys.path`` become what the script would find; they stay so.

    Raises
    ------
    CaptureError
        If there is no such file.
    """
    sys.argv = [target, *arguments]
    if module:
        sys.path[0] = str(Path.cwd())
        return runpy.run_module(target, run_name="__main__", alter_sys=True)
    path = Path(target)
    if not path.exists():
        raise CaptureError(f"{target}: no such script; give a file, or -m and the name of a module")
    sys.path[0] = str(path.resolve().parent)
    return runpy.run_path(target, run_name="__main__")


def own_traceback(traceback: TracebackType | None) -> TracebackType | None:
    """Return the part of a traceback that begins in the script: without memprof's frames and runpy's."""
    outer = traceback
    while traceback is not None and not _is_runner(traceback):
        traceback = traceback.tb_next
    while traceback is not None and _is_runner(traceback):
        traceback = traceback.tb_next
    return traceback or outer


def _is_runner(traceback: TracebackType) -> bool:
    return str(traceback.tb_frame.f_globals.get("__name__")) in ("runpy", __name__)
