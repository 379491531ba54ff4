"""Opening a file: starts the process that reads it (`child`), receives the trace, and says in one line what went wrong.

The parent never unpickles anything. What it imports here is little, so that the child starts early and both work at
once.
"""

from __future__ import annotations

import io
import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from memprof.errors import InputError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from memprof.trace.model import Trace

__all__ = ["PendingTrace", "load", "open_file", "start"]

# -I: no environment variable, no current directory, no user site. -S: no site either, whose .pth files take time
# and may run code. So what is needed beyond the standard library is named, and comes behind it: the folders of memprof
# and of numpy.
_BOOT = """
import os, sys
sys.path += sys.argv[1:]
os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
from {entry} import main
main()
"""

WATCH = "memprof-watch"
"""Name of the thread that watches a reading process and waits for its end."""

_WATCH_SECONDS = 60.0
_WATCH_SECONDS_PER_BYTE = 1.0 / (1 << 20)
"""A wall clock for a child that waits for something; its CPU time has a much tighter limit."""
_WATCH_SECONDS_UNLIMITED = 4.0
_WATCH_SECONDS_PER_BYTE_UNLIMITED = 0.2 / (1 << 20)
"""The same where the system has no limits (Windows): then this clock is the only guard."""
_HAS_LIMITS = os.name == "posix"


def load(path: str | os.PathLike[str], *, progress: Callable[[int, int], None] | None = None) -> Trace:
    """Return what a snapshot file says.

    Parameters
    ----------
    path
        What ``torch.cuda.memory._dump_snapshot`` (or memprof) wrote: a pickle, also gzipped, in a zip of
        ``torch.save``, or as JSON.
    progress
        Called now and then with the bytes of the file that have been read and its size.

    Raises
    ------
    InputError
        The file cannot be read, or is not a snapshot: one line that names the file, the fact and what to do.
    UnsupportedError
        There is no Python interpreter to start, as in a frozen program.
    """
    return start(path).result(progress=progress)


def start(path: str | os.PathLike[str]) -> PendingTrace:
    """Start to read `path` and return at once, so that the caller can import what it needs meanwhile.

    Raises
    ------
    InputError
        The file cannot be opened.
    UnsupportedError
        There is no Python interpreter to start.
    """
    name = os.fsdecode(path)
    file = open_file(name)
    try:
        return PendingTrace(name, os.fstat(file).st_size, file)
    except BaseException:
        os.close(file)
        raise


class PendingTrace:
    """A file that is being read; `result` waits for it."""

    entry = "memprof.trace.child"
    """Module whose `main` the process runs."""

    def __init__(self, path: str, size: int, file: int) -> None:
        self._path = path
        self._size = size
        self._file = file
        self._late = threading.Event()
        command = [_interpreter(), "-I", "-S", "-c", _BOOT.format(entry=self.entry), *_import_folders()]
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and text; nothing of the file is in it
                command, stdin=file, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0
            )
        except OSError as error:
            raise UnsupportedError(
                f"the Python interpreter {command[0]} cannot be started ({error.strerror}): memprof reads a file "
                "only in a process of its own"
            ) from None
        self._started = time.monotonic()

    @property
    def size(self) -> int:
        """Bytes of the file when it was opened; the file itself may be gone by now."""
        return self._size

    def result(self, *, progress: Callable[[int, int], None] | None = None) -> Trace:
        """Wait for the trace; see `load` for parameters and errors. To be called once."""
        from memprof.trace.wire import BrokenPipeDataError

        done = threading.Event()
        watch = threading.Thread(target=self._watch, args=(done, progress), name=WATCH, daemon=True)
        watch.start()
        pipe = self._process.stdout
        assert isinstance(pipe, io.FileIO)  # what a pipe without a buffer is
        try:
            return self._receive(pipe)
        except InputError as error:
            raise InputError(f"{self._path} {error}") from None
        except BrokenPipeDataError:
            self._process.wait()
            raise InputError(f"{self._path} {self._how_it_ended()}") from None
        finally:
            pipe.close()
            # The watch waits for the process: the system takes a while to take back its memory, and nobody needs that.
            done.set()

    def _receive(self, pipe: io.FileIO) -> Trace:
        from memprof.trace.wire import receive

        return receive(pipe, self._path)

    def _watch(self, done: threading.Event, progress: Callable[[int, int], None] | None) -> None:
        limit = (
            _WATCH_SECONDS + _WATCH_SECONDS_PER_BYTE * self._size
            if _HAS_LIMITS
            else _WATCH_SECONDS_UNLIMITED + _WATCH_SECONDS_PER_BYTE_UNLIMITED * self._size
        )
        end = self._started + limit
        try:
            while not done.wait(0.1 if progress else max(0.0, end - time.monotonic())):
                if time.monotonic() >= end:
                    self._late.set()
                    break
                if progress:
                    # The child shares this open file, and with it the position.
                    progress(os.lseek(self._file, 0, os.SEEK_CUR), self._size)
        finally:
            self._process.kill()
            self._process.wait()
            os.close(self._file)

    def _how_it_ended(self) -> str:
        import signal

        code = self._process.returncode
        harm = "damaged, or made to do harm"
        if self._late.is_set():
            return f"took too long to read: {harm}"
        if os.name == "posix" and code in (-signal.SIGPROF, -signal.SIGXCPU):
            return f"takes far more time than a snapshot of its size should: {harm}"
        if os.name == "posix" and code < 0:
            return f"made the process that read it crash ({signal.Signals(-code).name}): {harm}"
        return (
            f"could not be read: the process that reads it ended with status {code}, is numpy installed beside memprof?"
        )


def open_file(path: str) -> int:
    """Return a descriptor of the file, which has to be a plain one.

    Raises
    ------
    InputError
        It is none, or cannot be opened.
    """
    if not path:
        raise InputError("the name of the file is empty: name the snapshot file")
    try:
        # O_NONBLOCK: a named pipe without a writer would wait here forever.
        file = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except PermissionError as error:
        # What Windows says of a directory; Path.is_dir would raise again.
        if os.path.isdir(path):  # noqa: PTH112
            raise InputError(f"{path} is a directory: name the snapshot file in it") from None
        raise InputError(f"{path}: no permission to read it ({error.strerror})") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be opened: {error}") from None
    mode = os.fstat(file).st_mode
    if stat.S_ISREG(mode):
        return file
    os.close(file)
    if stat.S_ISDIR(mode):
        if path == ".":  # what pathlib makes of an empty name
            raise InputError("the name of the file is empty, or '.', which is a directory: name the snapshot file")
        raise InputError(f"{path} is a directory: name the snapshot file in it")
    raise InputError(f"{path} is not a plain file: write the snapshot to one first")


def _interpreter() -> str:
    if not sys.executable or getattr(sys, "frozen", False):
        raise UnsupportedError(
            "there is no Python interpreter to start (sys.executable): memprof reads a file only in a process of its "
            "own, so run it from a normal interpreter"
        )
    return sys.executable


def _import_folders() -> list[str]:
    from importlib.util import find_spec

    folders = [str(Path(__file__).resolve().parents[2])]
    numpy = find_spec("numpy")
    if numpy is not None and numpy.origin:
        folders.append(str(Path(numpy.origin).parents[1]))
    return folders
