"""The process that reads a profiler's trace: the file on its standard input, columns on its standard output.

As `memprof.trace.child` it does nothing else, under the same limits.
"""

from __future__ import annotations

import io
import json
import os
from dataclasses import fields
from typing import TYPE_CHECKING

from memprof.errors import InputError
from memprof.trace.check import shown
from memprof.trace.formats import looks_like, open_plain
from memprof.trace.json_stream import items_of
from memprof.trace.kineto import EVENTS, read_profile
from memprof.trace.kineto_file import TABLES
from memprof.trace.limits import Budget
from memprof.trace.parts import PartsFile, send_end, send_failure

if TYPE_CHECKING:
    from memprof.trace.kineto_model import Profile

__all__ = ["main"]

_ADVICE = "memprof profile reads what memprof capture --profile, or torch.profiler's export_chrome_trace, wrote"


def main() -> None:
    """Read, convert and send."""
    sink = io.FileIO(1, "wb", closefd=False)
    budget = Budget()
    try:
        profile = _read(io.FileIO(0, "rb", closefd=False), budget)
    except InputError as error:
        send_failure(sink, str(error))
    except MemoryError:
        send_failure(sink, budget.shortage("trace"))
    except OSError as error:
        # A fault of the disk, or a file that the system does not give. Where the pipe broke nobody reads this.
        send_failure(sink, f"cannot be read to its end ({error.strerror}): copy it again")
    except RecursionError:
        send_failure(sink, "is nested beyond reason: no trace of torch.profiler")
    except Exception as error:  # noqa: BLE001 - a fault of ours has to be one line of the parent as well
        kind, fact = type(error).__name__, shown(str(error)).removeprefix("the text ")
        send_failure(sink, f"could not be read because of a fault in memprof ({kind}: {fact}): please report it")
    else:
        _send(profile, sink)
    os._exit(0)


def _read(file: io.FileIO, budget: Budget) -> Profile:
    stream = open_plain(file, budget)
    head = stream.peek(64)[:64]
    if not head:
        raise InputError("is empty: profile again")
    if name := looks_like(head):
        raise InputError(f"looks like {name}; {_ADVICE}")
    if head.startswith((b"\x80", b"PK\x03\x04")):
        raise InputError(
            f"is no profiler trace but a pickle, perhaps a snapshot (memprof breakdown reads it); {_ADVICE}"
        )
    if head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] not in (b"{", b"["):
        raise InputError(f"is not JSON (it starts with the bytes {head[:8].hex(' ')}); {_ADVICE}")
    return read_profile(items_of(stream, EVENTS), "")


def _send(profile: Profile, sink: io.FileIO) -> None:
    """Send a line of JSON with everything but the columns, then these."""
    tables = {table: getattr(profile, table) for table in TABLES}
    rest = {
        field.name: getattr(profile, field.name) for field in fields(profile) if field.name not in (*TABLES, "path")
    }
    parts = PartsFile(sink)
    parts.write(json.dumps({**rest, "lengths": {name: len(table) for name, table in tables.items()}}).encode() + b"\n")
    for table in tables.values():
        for field in fields(table):
            parts.write(getattr(table, field.name))
    send_end(sink, b"")
