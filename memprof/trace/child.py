"""The process that reads a stranger's file: the file on its standard input, a `Trace` on its standard output.

It does nothing else, so that whatever the file does to it (all memory, endless hashing, the end of the C stack) ends a
process that holds nothing. `memprof.trace.reader` starts it and turns every such end into one line.
"""

from __future__ import annotations

import gc
import io
import os

from memprof.errors import InputError
from memprof.trace.check import shown
from memprof.trace.formats import load_file
from memprof.trace.limits import Budget
from memprof.trace.snapshot import read_snapshot
from memprof.trace.wire import PartSender, send, send_error

__all__ = ["main"]

_PIPE_BYTES = 1 << 18


def main() -> None:
    """Read, convert, send, and leave without freeing a million dicts one by one."""
    sink = io.FileIO(1, "wb", closefd=False)
    parts = PartSender(sink)
    budget = Budget()
    gc.disable()  # a million dicts, all alive until the end
    _widen(1)
    try:
        # The name keeps the value alive: to free a million dicts takes as long as to send their columns.
        snapshot = load_file(io.FileIO(0, "rb", closefd=False), budget)
        trace = read_snapshot(snapshot, emit=parts)
    except InputError as error:
        send_error(str(error), sink)
    except MemoryError:
        send_error(budget.shortage(), sink)
    except OSError as error:
        # A fault of the disk, or a file that the system does not give. Where the pipe broke nobody reads this.
        send_error(f"cannot be read to its end ({error.strerror}): copy it again", sink)
    except RecursionError:
        send_error("is nested beyond reason: not a torch memory snapshot", sink)
    except Exception as error:  # noqa: BLE001 - a fault of ours has to be one line of the parent as well
        kind, fact = type(error).__name__, shown(str(error)).removeprefix("the text ")
        send_error(f"could not be read because of a fault in memprof ({kind}: {fact}): please report it", sink)
    else:
        send(trace, sink, parts)
    os._exit(0)


def _widen(pipe: int) -> None:
    """Make the pipe larger where the system can: fewer switches between the two processes."""
    try:
        import fcntl

        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    except (ImportError, AttributeError, OSError):
        pass
