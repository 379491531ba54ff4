"""From torch.profiler's Chrome trace to columns: the only file that knows Kineto's key names.

Names as in ``libkineto/src/output_json.cpp`` (event categories) and ``torch/csrc/autograd/profiler_kineto.cpp``
(arguments of ops and memory events); the first versions of both had other categories.
"""

from __future__ import annotations

from array import array
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from memprof.errors import InputError
from memprof.trace.check import INT64_END, SIZE_END, clean, shown
from memprof.trace.kineto_model import Kernels, Launches, MemoryEvents, Profile, RangeKind, Ranges, Work

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

__all__ = ["EVENTS", "read_profile"]

EVENTS = "traceEvents"
MEMORY = "[memory]"
MODULE = "nn.Module: "
_PYTHON = "python_function"
_RANGES = {
    "cpu_op": RangeKind.OP,
    "operator": RangeKind.OP,
    "user_annotation": RangeKind.ANNOTATION,
    _PYTHON: RangeKind.MODULE,
}
_WORK = {
    "kernel": Work.KERNEL,
    "gpu_memcpy": Work.COPY,
    "memcpy": Work.COPY,
    "gpu_memset": Work.SET,
    "memset": Work.SET,
}
_LAUNCHES = ("cuda_runtime", "cuda_driver", "runtime")
_TIME_END = float(1 << 53)
"""Microseconds; 285 years."""
_UNKNOWN = -1


class _Columns:
    """Rows of one table while it grows."""

    def __init__(self, kind: type) -> None:
        self._kind = kind
        self.columns = [array("q") for _ in fields(kind)]

    def add(self, *values: int) -> None:
        for column, value in zip(self.columns, values, strict=True):
            column.append(value)

    def table(self, order: NDArray[np.int64] | None = None) -> Any:
        names = [field.name for field in fields(self._kind)]
        found = {name: np.array(column, np.int64) for name, column in zip(names, self.columns, strict=True)}
        return self._kind(**(found if order is None else {name: column[order] for name, column in found.items()}))


class _Reader:
    def __init__(self) -> None:
        self.texts: dict[str, int] = {}
        self.threads: dict[str, int] = {}
        self.ranges = _Columns(Ranges)
        self.kernels = _Columns(Kernels)
        self.launches = _Columns(Launches)
        self.memory = _Columns(MemoryEvents)
        self.python_calls = 0
        self.others = 0
        self.events = 0
        self.bare_memory = 0
        """Memory events without address."""

    def event(self, event: Any) -> None:
        place = self.events
        self.events += 1
        if type(event) is not dict:
            raise InputError(f"{EVENTS}[{place}] is {shown(event)}, not a dict: no torch.profiler trace, or damaged")
        name, category, kind = event.get("name"), event.get("cat"), event.get("ph")
        try:
            if kind == "i" and name == MEMORY:
                self._memory(event, _arguments(event))
            elif kind == "X" and type(name) is str and type(category) is str:
                self._complete(event, name, category.lower())
            else:
                self.others += 1
        except _WrongError as error:
            raise InputError(f"{EVENTS}[{place}] {error}: no torch.profiler trace, or a damaged one") from None

    def _complete(self, event: dict[str, Any], name: str, category: str) -> None:
        if category in _RANGES:
            if category == _PYTHON:
                self.python_calls += 1
                if not name.startswith(MODULE):
                    return
            start = _nanoseconds(event, "ts")
            values = _arguments(event)
            self.ranges.add(
                self._text(name),
                _RANGES[category],
                start,
                start + _nanoseconds(event, "dur"),
                self._thread(event),
                _number(values, "External id", "external id"),
                _number(values, "Sequence number", "sequence number"),
                _number(values, "Fwd thread id"),
            )
        elif category in _WORK:
            start = _nanoseconds(event, "ts")
            values = _arguments(event)
            self.kernels.add(
                self._text(name),
                _WORK[category],
                start,
                start + _nanoseconds(event, "dur"),
                _number(values, "device"),
                _number(values, "stream"),
                _number(values, "correlation"),
                _number(values, "External id", "external id"),
            )
        elif category in _LAUNCHES:
            correlation = _number(_arguments(event), "correlation")
            if correlation >= 0:
                self.launches.add(correlation, _nanoseconds(event, "ts"), self._thread(event))
        else:
            self.others += 1

    def _memory(self, event: dict[str, Any], values: dict[str, Any]) -> None:
        size = values.get("Bytes")
        if type(size) is not int or not -SIZE_END < size < SIZE_END:
            raise _WrongError(f"is a {MEMORY} event whose Bytes are {shown(size)}")
        address = _number(values, "Addr")
        self.bare_memory += address < 0
        self.memory.add(
            _nanoseconds(event, "ts"),
            address,
            size,
            _number(values, "Device Type"),
            _number(values, "Device Id", "Device"),
            _number(values, "Total Allocated"),
            _number(values, "Total Reserved"),
            self._thread(event),
        )

    def _text(self, text: str) -> int:
        return self.texts.setdefault(text, len(self.texts))

    def _thread(self, event: dict[str, Any]) -> int:
        return self.threads.setdefault(f"{event.get('pid')}/{event.get('tid')}", len(self.threads))


class _WrongError(Exception):
    """What is wrong with an event."""


def _arguments(event: dict[str, Any]) -> dict[str, Any]:
    values = event.get("args")
    if values is None:
        return {}
    if type(values) is not dict:
        raise _WrongError(f"has args that are {shown(values)}")
    return values


def _number(values: dict[str, Any], *names: str) -> int:
    for name in names:
        if name in values:
            value = values[name]
            return value if type(value) is int and -INT64_END <= value < INT64_END else _UNKNOWN
    return _UNKNOWN


def _nanoseconds(event: dict[str, Any], key: str) -> int:
    value = event.get(key, 0 if key == "dur" else None)
    if type(value) is int and abs(value) < _TIME_END:
        return value * 1000
    if type(value) is not float or not abs(value) < _TIME_END:
        raise _WrongError(f"has a {key} that is {shown(value)}")
    # Whole and fraction apart: times a thousand, a time of today would not be exact in a float.
    whole = int(value)
    return whole * 1000 + round((value - whole) * 1000)


def read_profile(items: Iterable[tuple[str, Any]], path: str) -> Profile:
    """Turn the items of a trace (see `memprof.trace.json_stream`) into a `Profile`.

    Raises
    ------
    InputError
        It is no trace of torch.profiler, or damaged; without the file's name.
    """
    reader = _Reader()
    about: dict[str, Any] = {}
    for key, value in items:
        if key == EVENTS:
            reader.event(value)
        elif key in ("baseTimeNanoseconds", "deviceProperties", "distributedInfo"):
            about[key] = value
    if not reader.events:
        raise InputError(
            f"has no {EVENTS}: it is no trace of torch.profiler; memprof capture --profile writes one, as does "
            "profile.export_chrome_trace"
        )
    base = about.get("baseTimeNanoseconds")
    base = base if type(base) is int and 0 <= base < SIZE_END else 0
    memory = reader.memory.table()
    # In time order, but for those of several threads.
    memory = reader.memory.table(np.argsort(memory.time, kind="stable"))
    ranges, kernels, launches = reader.ranges.table(), reader.kernels.table(), reader.launches.table()
    # Kernels stand at 0 and last 0 where another session of the profiler had begun before the export: Kineto converts
    # their times late (libkineto/src/CuptiActivity.h), with the clock of the session that is current then.
    untimed = (kernels.start == 0) & (kernels.end == 0)
    for times in (ranges.start, ranges.end, kernels.start, kernels.end, launches.start, memory.time):
        if len(times) and not (int(times.min()) + base >= 0 and int(times.max()) + base < INT64_END):
            raise InputError("has times outside all reason: damaged, or no trace of torch.profiler")
        np.add(times, base, out=times)
    earliest = min((int(times.min()) for times in (ranges.start, memory.time) if len(times)), default=0)
    kernels.start[untimed] = kernels.end[untimed] = earliest
    first = min((int(t.min()) for t in (ranges.start, memory.time, kernels.start) if len(t)), default=0)
    if not (len(ranges) or len(memory) or len(kernels)):
        raise InputError("has no ops, kernels or memory events: it is no trace of torch.profiler, or of an empty one")
    return Profile(
        path=path,
        texts=tuple(map(clean, reader.texts)),
        threads=tuple(map(clean, reader.threads)),
        ranges=ranges,
        kernels=kernels,
        launches=launches,
        memory=memory,
        epoch=first > _EPOCH,
        devices=_devices(about.get("deviceProperties")),
        rank=_rank(about.get("distributedInfo")),
        python_calls=reader.python_calls,
        other_events=reader.others,
        notes=(*_notes(reader), *_clock_notes(untimed)),
    )


_EPOCH = 1_400_000_000 * 10**9
"""Nanoseconds; 2014. The clock of a machine that runs that long does not get there."""


def _devices(value: Any) -> tuple[str, ...]:
    if type(value) is not list:
        return ()
    return tuple(clean(str(each["name"]))[:100] for each in value if type(each) is dict and "name" in each)


def _rank(value: Any) -> int | None:
    rank = value.get("rank") if type(value) is dict else None
    return rank if type(rank) is int and 0 <= rank < 1 << 31 else None


def _clock_notes(untimed: NDArray[np.bool_]) -> Iterable[str]:
    if untimed.any():
        yield (
            f"{int(untimed.sum()):,} of {len(untimed):,} kernels have no time in the file, because the profiler "
            "could not convert them: GPU times are not known; export a trace before another profiler starts"
        )


def _notes(reader: _Reader) -> Iterable[str]:
    count = len(reader.memory.columns[0])
    if not count:
        yield (
            "the trace has no [memory] events, so that nothing is known of memory: profile with profile_memory=True, "
            "or with memprof capture --profile"
        )
    elif reader.bare_memory:
        yield (
            f"{reader.bare_memory:,} of {count:,} [memory] events have no Addr, Total Allocated or Total Reserved: an "
            "older torch wrote them; they can be summed, but not compared with the allocator: use a newer torch"
        )
