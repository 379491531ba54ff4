"""Writes the profiler's trace of the chosen steps: ``run.trace.json.gz``, which Perfetto and HTA open.

It is what torch's profiler exports, with these differences: memprof's marks have readable names (Kineto writes
``unknown`` for names with control characters), host and directories are left out, and the rank is always there, which
Holistic Trace Analysis looks for.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from memprof.atomic import write_whole
from memprof.capture.marks import MARK, parse
from memprof.capture.paths import shortener
from memprof.errors import OutputError
from memprof.trace.json_stream import items_of
from memprof.trace.kineto import EVENTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.profiler import profile

    from memprof.capture.marks import Mark

__all__ = ["ExportedTrace", "trace_path"]

UNNAMED = "unknown"
"""What Kineto writes for a name that it cannot (``libkineto/src/output_json.cpp``)."""
_CALL = re.compile(r"(.+)\((\d+)\): (.*)", re.DOTALL)
"""Name of a Python function in the trace: file, line, function."""


def trace_path(snapshot: Path) -> Path:
    """Return where the profile of a snapshot belongs: run.trace.json.gz beside run.pickle."""
    return snapshot.with_name(f"{snapshot.stem}.trace.json.gz")


class ExportedTrace:
    """What torch's profiler exports of the chosen steps. To be made when its session is over and no other has begun.

    Kineto converts the times of devices while it exports, with a clock that the next session replaces
    (``libkineto/src/CuptiActivity.h``, ``finalizeTrace`` in ``torch/csrc/autograd/profiler_kineto.cpp``): exported
    after another session has begun, every kernel stands at 0 and lasts 0.
    """

    def __init__(self, profiler: profile) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="memprof-")
        self._raw = Path(self._folder.name) / "trace.json"
        self._failed: OSError | None = None
        try:
            profiler.export_chrome_trace(str(self._raw))
        except OSError as error:
            self._failed = error  # the run that is being profiled goes on
        self._marks = _marks(profiler)

    def write(self, path: Path, *, absolute_paths: bool = False) -> None:
        """Write it, edited; the file appears when it is complete. To be called once.

        Raises
        ------
        OutputError
            If the file cannot be written, or what the profiler exported could not.
        """
        if self._failed is not None:
            reason = self._failed.strerror or self._failed
            raise OutputError(
                f"{self._raw}: the profile cannot be written: {reason}; set TMPDIR to where there is room"
            )

        def write(sink: IO[bytes]) -> None:
            # A time in the header would make equal traces differ.
            with self._raw.open("rb") as source, gzip.GzipFile("", "wb", 6, sink, mtime=0) as packed:
                _copy(items_of(source, EVENTS), packed, self._marks, path.name, absolute_paths=absolute_paths)

        write_whole(path, write)
        self._folder.cleanup()


def _marks(profiler: profile) -> dict[int, list[Mark]]:
    """Return memprof's marks by the time at which they begin, in nanoseconds; the last of a list is the outermost."""
    assert profiler.profiler is not None
    result = profiler.profiler.kineto_results
    assert result is not None
    found: dict[int, list[Mark]] = {}
    pending: list[Any] = list(result.experimental_event_tree())
    while pending:
        event = pending.pop()
        if event.name.startswith(MARK) and (mark := parse(event.name)) is not None:
            found.setdefault(event.start_time_ns, []).insert(0, mark)
        pending.extend(event.children)
    return found


def _copy(items: Any, sink: gzip.GzipFile, marks: dict[int, list[Mark]], name: str, *, absolute_paths: bool) -> None:
    """Write the items as a JSON object again: events one a line, what else there is before and after them."""
    about: dict[str, Any] = {"distributedInfo": {"rank": int(os.environ.get("RANK", "0")), "world_size": 1}}
    edit = _Edit(about, marks, None if absolute_paths else shortener())
    begun = False
    rest: dict[str, Any] = {}
    for key, value in items:
        if key == EVENTS:
            if not begun:
                _write(sink, "{" + "".join(f"{_json(name)}: {_json(entry)},\n" for name, entry in about.items()))
                _write(sink, f'"{EVENTS}": [\n')
            event = edit.event(value)
            if event is not None:
                _write(sink, (",\n" if begun else "") + _json(event))
                begun = True
        elif key == "host_name" and not absolute_paths:
            continue
        elif begun:
            rest[key] = name if key == "traceName" else value
        else:
            about[key] = value
    _write(sink, "\n]" + "".join(f",\n{_json(key)}: {_json(value)}" for key, value in rest.items()) + "}\n")


def _write(sink: gzip.GzipFile, text: str) -> None:
    sink.write(text.encode("ascii"))


def _json(value: Any) -> str:
    return json.dumps(value)


class _Edit:
    """What is changed in events."""

    def __init__(
        self, about: dict[str, Any], marks: dict[int, list[Mark]], shorten: Callable[[str], str] | None
    ) -> None:
        self._about = about
        self._marks = marks
        self._shorten = shorten

    def event(self, event: dict[str, Any]) -> dict[str, Any] | None:
        """Return `event` as it is to be written; None if it is not to be."""
        name, category = event.get("name"), event.get("cat")
        if name == UNNAMED and category == "cpu_op":
            whole = int(event["ts"])
            start = self._about.get("baseTimeNanoseconds", 0) + whole * 1000 + round((event["ts"] - whole) * 1000)
            if marks := self._marks.get(start):
                return _named(event, marks.pop())
        elif category == "python_function" and self._shorten is not None and (match := _CALL.fullmatch(name or "")):
            event["name"] = f"{self._shorten(match[1])}({match[2]}): {match[3]}"
        return event


def _named(event: dict[str, Any], mark: Mark) -> dict[str, Any] | None:
    if mark.kind == "module":
        name = f"{MARK}module {mark.name or '(root)'}"
    elif mark.kind == "phase":
        name = f"{MARK}phase {mark.name} of step {mark.step}"
    elif mark.kind == "step":
        name = f"{MARK}step {mark.step}"
    elif mark.kind == "memory":
        return None
    else:
        # It takes time, which would else be the module's.
        return {**event, "name": f"{MARK}look", "args": {"External id": event.get("args", {}).get("External id", 0)}}
    return {**event, "name": name, "cat": "user_annotation"}
