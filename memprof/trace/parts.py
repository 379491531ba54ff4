"""Bytes over a pipe in parts, with an end that tells a whole stream from a broken one.

A message is a letter, eight bytes of length, and so many bytes: ``P`` a part, ``Z`` the end, ``E`` an error in its
place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memprof.errors import InputError
from memprof.trace.wire import BrokenPipeDataError

if TYPE_CHECKING:
    import io
    from typing import IO

__all__ = ["PartsFile", "receive_parts", "send_end", "send_failure"]

_PART, _END, _ERROR = b"P", b"Z", b"E"
_LENGTH = 8
_SHORT = 1 << 20
"""An end or an error is no longer."""
_CHUNK = 1 << 18


class PartsFile:
    """A file to write to: each piece becomes a part."""

    def __init__(self, pipe: io.FileIO) -> None:
        self._pipe = pipe

    def write(self, data: Any, /) -> int:
        """Send one part; return how long it was."""
        _send(self._pipe, _PART, data)
        return len(data)


def send_end(pipe: io.FileIO, data: bytes) -> None:
    """Say that all parts were sent, and give `data` with it."""
    _send(pipe, _END, data)


def send_failure(pipe: io.FileIO, text: str) -> None:
    """Say why there will be no end."""
    _send(pipe, _ERROR, text.encode("utf-8", "replace")[:_SHORT])


def receive_parts(pipe: io.FileIO, sink: IO[bytes]) -> bytes:
    """Write every part to `sink`, and return what came with the end.

    Raises
    ------
    InputError
        The other side sent an error.
    BrokenPipeDataError
        The other side ended early.
    """
    while True:
        head = _exactly(pipe, 1 + _LENGTH)
        kind, size = head[:1], int.from_bytes(head[1:], "little")
        if kind == _PART:
            _copy(pipe, sink, size)
        elif size > _SHORT:
            raise BrokenPipeDataError("a message that is none")
        elif kind == _END:
            return _exactly(pipe, size)
        else:
            raise InputError(_exactly(pipe, size).decode("utf-8", "replace"))


def _send(pipe: io.FileIO, kind: bytes, data: Any) -> None:
    view = memoryview(data).cast("B")
    for part in (memoryview(kind + len(view).to_bytes(_LENGTH, "little")), view):
        left = part
        while len(left):
            left = left[pipe.write(left) or 0 :]


def _copy(pipe: io.FileIO, sink: IO[bytes], size: int) -> None:
    while size:
        data = pipe.read(min(size, _CHUNK))
        if not data:
            raise BrokenPipeDataError("the other side ended early")
        sink.write(data)
        size -= len(data)


def _exactly(pipe: io.FileIO, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = pipe.read(size - len(data))
        if not more:
            raise BrokenPipeDataError("the other side ended early")
        data += more
    return data
