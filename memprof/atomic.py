"""Files that appear whole or not at all: written beside their place, then moved there."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import IO, TYPE_CHECKING

from memprof.errors import OutputError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["check_output", "check_writable", "write_whole"]


def write_whole(path: str | os.PathLike[str], write: Callable[[IO[bytes]], object]) -> None:
    """Let `write` fill a file beside `path`, and move it there once it is complete and on the disk.

    A link is followed: the file that it names is replaced, not the link. If anything fails, nothing is left behind and
    what stood at `path` stays.

    Raises
    ------
    OutputError
        If `path` is a device, a pipe or a directory, or cannot be written.

    """
    target = _plain_target(path)
    beside = _beside(target)
    try:
        with beside.open("xb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(target)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise _refusal(path, error) from None
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def check_writable(path: str | os.PathLike[str]) -> None:
    """Make sure, before long work, that `write_whole` will be able to write `path`.

    Raises
    ------
    OutputError
        If it would not.

    """
    beside = _beside(_plain_target(path))
    try:
        beside.open("xb").close()
        beside.unlink()
    except OSError as error:
        raise _refusal(path, error) from None


def check_output(output: str | Path, option: str = "-o") -> Path:
    """Return `output` as a path that a file can be written to; `option` names it in what is said.

    Raises
    ------
    UsageError
        If it is empty.
    OutputError
        If it is a directory, or in none, or in one that nothing can be written to.
    """
    if not os.fspath(output):
        raise UsageError(f"{option} '': an empty name; give the name of a file")
    path = Path(output)
    if path.is_dir() or not path.parent.is_dir():
        raise OutputError(f"{option} {output}: give the name of a file in a directory that exists")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise OutputError(f"{option} {output}: {path.parent} cannot be written to; give a file in a directory that can")
    return path


def _plain_target(path: str | os.PathLike[str]) -> Path:
    try:
        target = Path(path).resolve()
    except (OSError, RuntimeError) as error:  # a loop of links; RuntimeError up to Python 3.12
        raise OutputError(
            f"{path} cannot be written: {getattr(error, 'strerror', None) or 'links in a loop'}"
        ) from None
    with contextlib.suppress(OSError):
        mode = target.stat().st_mode
        if stat.S_ISDIR(mode):
            raise OutputError(f"{path} is a directory: give the name of a file in it")
        if not stat.S_ISREG(mode):
            raise OutputError(f"{path} is not a plain file: name another place")
    return target


def _beside(target: Path) -> Path:
    return target.with_name(f".{target.name}.{os.getpid()}.part")


def _refusal(path: str | os.PathLike[str], error: OSError) -> OutputError:
    return OutputError(f"{path} cannot be written: {error.strerror or error}; nothing was left there")
