"""Opening a trace of torch.profiler: starts the process that reads it (`kineto_child`), and receives the columns."""

from __future__ import annotations

import io
import json
import os
from dataclasses import fields
from typing import Any

import numpy as np

from memprof.trace.kineto_model import Kernels, Launches, MemoryEvents, Profile, Ranges
from memprof.trace.parts import receive_parts
from memprof.trace.reader import PendingTrace, open_file

__all__ = ["TABLES", "load_profile"]

TABLES: dict[str, type] = {"ranges": Ranges, "kernels": Kernels, "launches": Launches, "memory": MemoryEvents}
"""Fields of a `Profile` that are columns."""


def load_profile(path: str | os.PathLike[str]) -> Profile:
    """Return what a trace of torch.profiler says: JSON in Chrome's format, also gzipped.

    Raises
    ------
    InputError
        The file cannot be read, or is no such trace: one line that names the file, the fact and what to do.
    UnsupportedError
        There is no Python interpreter to start, as in a frozen program.
    """
    name = os.fsdecode(path)
    file = open_file(name)
    try:
        pending = _PendingProfile(name, os.fstat(file).st_size, file)
    except BaseException:
        os.close(file)
        raise
    profile = pending.result()
    assert isinstance(profile, Profile)
    return profile


class _PendingProfile(PendingTrace):
    """A trace of the profiler that is being read."""

    entry = "memprof.trace.kineto_child"

    def _receive(self, pipe: io.FileIO) -> Any:
        received = io.BytesIO()
        receive_parts(pipe, received)
        head, _, columns = received.getbuffer().tobytes().partition(b"\n")
        rest = json.loads(head)
        at = 0
        tables = {}
        for name, kind in TABLES.items():
            length = rest["lengths"][name]
            found = {}
            for field in fields(kind):
                found[field.name] = np.frombuffer(columns, np.int64, length, at)
                at += 8 * length
            tables[name] = kind(**found)
        del rest["lengths"]
        for texts in ("texts", "threads", "devices", "notes"):
            rest[texts] = tuple(rest[texts])
        return Profile(path=self._path, **tables, **rest)
