"""Runs somebody's script or module as ``__main__``, as Python itself would."""

from __future__ import annotations

import importlib.util
import runpy
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memprof.errors import CaptureError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

__all__ = ["check_script", "own_traceback", "run_as_main", "show_error"]

MAIN = "__main__.py"
"""What makes a folder or a package one that can be run."""


def run_as_main(target: str, arguments: Sequence[str], *, module: bool) -> dict[str, Any]:
    """Run `target`, a file or with `module` a module's name, and return its globals, so that they stay alive.

    ``sys.argv`` and ``sys.path`` become what the script would find; they stay so.

    Raises
    ------
    UsageError
        If `target` is empty.
    CaptureError
        If there is no such file or module, or it is a folder or package that cannot be run.
    """
    check_script(target, module=module)
    sys.argv = [target, *arguments]
    if module:
        sys.path[0] = str(Path.cwd())
        _check_module(target)
        return runpy.run_module(target, run_name="__main__", alter_sys=True)
    sys.path[0] = str(Path(target).resolve().parent)
    try:
        return runpy.run_path(target, run_name="__main__")
    except (SyntaxError, ValueError) as error:  # ValueError up to Python 3.11.3
        if own_traceback(error.__traceback__) is not None or getattr(error, "filename", None) is not None:
            raise
        # Of null bytes it does not say in which file they are; Python itself does.
        line = Path(target).read_bytes().partition(b"\0")[0].count(b"\n") + 1
        raise SyntaxError(error.args[0], (target, line, None, None)) from None


def check_script(target: str, *, module: bool) -> None:
    """Make sure, before anything is run or imported, that there is something to run; of a module only its name.

    Raises
    ------
    UsageError
        If `target` is empty.
    CaptureError
        If there is no such file, or it is a folder that cannot be run.
    """
    if not target:
        what = "-m '': the name of the module" if module else "'': the name of the script"
        raise UsageError(f"{what} is empty; give a file, or -m and the name of a module")
    if module:
        return
    path = Path(target)
    if not path.exists():
        raise CaptureError(f"{target}: no such script; give a file, or -m and the name of a module")
    if path.is_dir() and not (path / MAIN).exists():
        raise CaptureError(f"{target}: a folder without {MAIN}; give the script in it that trains")


def _check_module(name: str) -> None:
    found = None
    try:
        if not name.startswith("."):
            found = importlib.util.find_spec(name)
        package = found is not None and found.submodule_search_locations is not None
        if package and importlib.util.find_spec(f"{name}.{MAIN.removesuffix('.py')}") is None:
            raise CaptureError(f"-m {name}: a package without {MAIN}; give the module in it that trains")
    except ModuleNotFoundError as error:
        if not f"{name}.".startswith(f"{error.name}."):
            raise  # a package's own, of what it needs
    if found is None:
        raise CaptureError(
            f"-m {name}: no such module here or among installed packages; give a module's name or a file"
        )


def own_traceback(traceback: TracebackType | None) -> TracebackType | None:
    """Return the part of a traceback that begins in the script: without memprof's frames and runpy's.

    None if the script did not begin, as where it has a syntax error.
    """
    outer = traceback
    while traceback is not None and not _is_runner(traceback):
        traceback = traceback.tb_next
    if traceback is None:
        return outer
    while traceback is not None and _is_runner(traceback):
        traceback = traceback.tb_next
    return traceback


def show_error(error: BaseException) -> None:
    """Print what the script raised as Python itself would."""
    shown = error.with_traceback(own_traceback(error.__traceback__))
    sys.excepthook(type(shown), shown, shown.__traceback__)


def _is_runner(traceback: TracebackType) -> bool:
    return str(traceback.tb_frame.f_globals.get("__name__")) in ("runpy", __name__)
