"""The process that scrubs a file: the file on its standard input, a pickle without private texts on its output.

As `memprof.trace.child` it does nothing else, under the same limits. With the end of the pickle come the counts, as
JSON.
"""

from __future__ import annotations

import gc
import io
import json
import os
import pickle
import platform
from typing import Any

from memprof.errors import InputError
from memprof.trace.check import shown
from memprof.trace.formats import load_file
from memprof.trace.limits import Budget
from memprof.trace.parts import PartsFile, send_end, send_failure
from memprof.trace.scrub import scrub_snapshot
from memprof.trace.snapshot import read_snapshot
from memprof.trace.writer import PROTOCOL, check_plain

__all__ = ["main"]

_WORK = 3
"""Reading, scrubbing, checking and writing a million events take 4 to 8 times the CPU time of reading them."""


def main() -> None:
    """Read, check that it is a snapshot, scrub, and send."""
    sink = io.FileIO(1, "wb", closefd=False)
    budget = Budget(work=_WORK)
    gc.disable()  # a million dicts, all alive until the end
    try:
        snapshot = load_file(io.FileIO(0, "rb", closefd=False), budget)
        read_snapshot(snapshot)
        done = scrub_snapshot(snapshot, _own_names())
        _check(snapshot)
        pickle.dump(snapshot, PartsFile(sink), protocol=PROTOCOL)
        counts = {"files": done.files, "texts": done.texts, "emptied": done.emptied}
    except InputError as error:
        send_failure(sink, str(error))
    except MemoryError:
        send_failure(sink, budget.shortage())
    except OSError as error:
        # A fault of the disk, or a file that the system does not give. Where the pipe broke nobody reads this.
        send_failure(sink, f"cannot be read to its end ({error.strerror}): copy it again")
    except RecursionError:
        send_failure(sink, "is nested beyond reason: not a torch memory snapshot")
    except Exception as error:  # noqa: BLE001 - a fault of ours has to be one line of the parent as well
        kind, fact = type(error).__name__, shown(str(error)).removeprefix("the text ")
        send_failure(sink, f"could not be scrubbed because of a fault in memprof ({kind}: {fact}): please report it")
    else:
        send_end(sink, json.dumps(counts).encode("ascii"))
    os._exit(0)


def _check(snapshot: Any) -> None:
    try:
        check_plain(snapshot)
    except TypeError as error:
        fact = shown(str(error)).removeprefix("the text ")
        raise InputError(f"holds what no snapshot of torch does ({fact}): it cannot be rewritten") from None


def _own_names() -> dict[str, str]:
    """Return the names of this machine and of whoever is logged in: the file may be from here."""
    users = {os.environ.get(name, "") for name in ("USER", "LOGNAME", "USERNAME")}
    hosts = {platform.node(), platform.node().partition(".")[0]}
    return {**dict.fromkeys(hosts - {"", "localhost"}, "host"), **dict.fromkeys(users - {"", "root"}, "user")}
