"""A `Trace` over a pipe: messages of a JSON header and raw columns, which can hold nothing but numbers and texts.

A message is eight bytes of length, that much JSON, and the bytes of the column that the JSON describes. Columns of
events come in parts while they are being made, so that the other side takes them meanwhile. The last message has the
rest of the trace, or an error.
"""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from memprof.errors import InputError
from memprof.trace.model import (
    Annotation,
    Blocks,
    DeviceTrace,
    Events,
    Frame,
    Labels,
    Mark,
    Segments,
    Settings,
    Source,
    StackTable,
    Stats,
    Trace,
)

if TYPE_CHECKING:
    from typing import Protocol

    from numpy.typing import NDArray

    class _Sink(Protocol):
        def write(self, data: Any, /) -> Any: ...

    class _Pipe(Protocol):
        def readinto(self, buffer: Any, /) -> int | None: ...


__all__ = ["BrokenPipeDataError", "PartSender", "receive", "send", "send_error"]

_LENGTH = 8
_HEADER_END = 1 << 31
_DTYPES = ("int64", "int32", "uint8", "bool")
_TABLES: dict[str, type] = {"events": Events, "segments": Segments, "blocks": Blocks, "labels": Labels}


class BrokenPipeDataError(Exception):
    """The other side ended before it had sent everything."""


class PartSender:
    """Sends columns in parts, ahead of their trace."""

    def __init__(self, sink: _Sink) -> None:
        self.sink = sink
        self.names: dict[int, str] = {}
        """Name of each column, by its identity."""

    def __call__(self, name: str, column: NDArray[Any], start: int, end: int) -> None:
        """Send `column[start:end]`, the part behind the one that was sent before."""
        self.names[id(column)] = name
        header = {"part": name, "dtype": column.dtype.name, "length": len(column), "start": start, "end": end}
        _send_header(self.sink, header)
        _send_all(self.sink, column[start:end].view(np.uint8))


def send(trace: Trace, sink: _Sink, parts: PartSender | None = None) -> None:
    """Write `trace` into `sink`; the columns that `parts` has sent are only named."""
    sent = parts.names if parts is not None else {}
    _send_column(sink, "frame_index", trace.stacks.frame_index)
    _send_column(sink, "offsets", trace.stacks.offsets)
    for index, device in enumerate(trace.devices):
        for table, kind in _TABLES.items():
            columns = getattr(device, table)
            if columns is not None:
                for field in fields(kind):
                    name, column = f"{index}.{table}.{field.name}", getattr(columns, field.name)
                    if id(column) in sent:
                        _send_header(sink, {"column": name, "parts": sent[id(column)]})
                    else:
                        _send_column(sink, name, column)
    strings: dict[str, int] = {}
    frames = [
        (strings.setdefault(frame.name, len(strings)), strings.setdefault(frame.filename, len(strings)), frame.line)
        for frame in trace.stacks.frames
    ]
    rest = {
        "source": trace.source.value,
        "frames": frames,
        "strings": list(strings),
        "texts": trace.texts,
        "settings": asdict(trace.settings),
        "made_by": trace.made_by,
        "environment": trace.environment,
        "notes": trace.notes,
        "devices": [
            {
                "device": device.device,
                "labels": device.labels is not None,
                "annotations": [(a.name, a.start, a.time_us) for a in device.annotations],
                "marks": [(mark.entry, mark.name) for mark in device.marks],
                "stats": [asdict(stats) for stats in device.stats],
            }
            for device in trace.devices
        ],
    }
    _send_header(sink, {"trace": rest})


def send_error(text: str, sink: _Sink) -> None:
    """Write the one line that says why there is no trace."""
    _send_header(sink, {"error": text})


def receive(pipe: _Pipe, path: str) -> Trace:
    """Return the trace that the other side sends; `path` becomes `Trace.path`.

    Raises
    ------
    InputError
        The other side sent an error.
    BrokenPipeDataError
        The other side ended early, or what it sent is no trace.
    """
    columns: dict[str, NDArray[Any]] = {}
    while True:
        header = _receive_header(pipe)
        if "error" in header:
            raise InputError(str(header["error"]))
        if "trace" in header:
            try:
                return _build(header["trace"], columns, path)
            except (KeyError, TypeError, ValueError, IndexError) as error:
                raise BrokenPipeDataError(f"what the reader sent is no trace: {error!r}") from error
        if "part" in header:
            if header["start"] == 0:
                columns[header["part"]] = _empty(header)
            _read_into(pipe, columns[header["part"]][header["start"] : header["end"]].view(np.uint8))
        elif "parts" in header:
            columns[header["column"]] = columns[header["parts"]]
        else:
            columns[header["column"]] = _receive_column(pipe, header)


def _send_header(sink: _Sink, header: dict[str, Any]) -> None:
    data = json.dumps(header, separators=(",", ":"), allow_nan=False).encode("ascii")
    _send_all(sink, len(data).to_bytes(_LENGTH, "little") + data)


def _send_all(sink: _Sink, data: Any) -> None:
    view = memoryview(data).cast("B")
    while len(view):
        view = view[sink.write(view) :]


def _send_column(sink: _Sink, name: str, column: NDArray[Any]) -> None:
    header: dict[str, Any] = {"column": name, "dtype": column.dtype.name, "length": len(column)}
    if len(column) > 1 and column[0] == column[-1] and bool((column == column[0]).all()):
        _send_header(sink, header | {"all": column[0].item()})
        return
    _send_header(sink, header)
    if len(column):
        _send_all(sink, np.ascontiguousarray(column).view(np.uint8))


def _read_into(pipe: _Pipe, buffer: Any) -> None:
    view = memoryview(buffer).cast("B")
    while len(view):
        count = pipe.readinto(view)
        if not count:
            raise BrokenPipeDataError("the reader ended early")
        view = view[count:]


def _receive_header(pipe: _Pipe) -> dict[str, Any]:
    length = bytearray(_LENGTH)
    _read_into(pipe, length)
    size = int.from_bytes(length, "little")
    if size >= _HEADER_END:
        raise BrokenPipeDataError("the reader sent a header that is none")
    data = bytearray(size)
    _read_into(pipe, data)
    header = json.loads(data)
    assert isinstance(header, dict)
    return header


def _empty(header: dict[str, Any]) -> NDArray[Any]:
    if header["dtype"] not in _DTYPES:
        raise BrokenPipeDataError("the reader sent a column of no known type")
    return np.empty(header["length"], header["dtype"])


def _receive_column(pipe: _Pipe, header: dict[str, Any]) -> NDArray[Any]:
    column = _empty(header)
    if "all" in header:
        column.fill(header["all"])
    elif len(column):
        _read_into(pipe, column.view(np.uint8))
    return column


def _build(rest: dict[str, Any], columns: dict[str, NDArray[Any]], path: str) -> Trace:
    strings = rest["strings"]

    def table(index: int, name: str) -> Any:
        kind = _TABLES[name]
        return kind(**{column.name: columns[f"{index}.{name}.{column.name}"] for column in fields(kind)})

    devices = tuple(
        DeviceTrace(
            device=value["device"],
            events=table(index, "events"),
            segments=table(index, "segments"),
            blocks=table(index, "blocks"),
            labels=table(index, "labels") if value["labels"] else None,
            annotations=tuple(
                Annotation(name=name, start=start, time_us=time) for name, start, time in value["annotations"]
            ),
            marks=tuple(Mark(entry=entry, name=name) for entry, name in value["marks"]),
            stats=tuple(Stats(**stats) for stats in value["stats"]),
        )
        for index, value in enumerate(rest["devices"])
    )
    settings = rest["settings"]
    settings["roundup_power2_divisions"] = tuple(tuple(pair) for pair in settings["roundup_power2_divisions"])
    return Trace(
        path=path,
        source=Source(rest["source"]),
        devices=devices,
        stacks=StackTable(
            frames=tuple(Frame(strings[name], strings[filename], line) for name, filename, line in rest["frames"]),
            frame_index=columns["frame_index"],
            offsets=columns["offsets"],
        ),
        texts=tuple(rest["texts"]),
        settings=Settings(**settings),
        made_by=rest["made_by"],
        environment=rest["environment"],
        notes=tuple(rest["notes"]),
    )
