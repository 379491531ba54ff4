"""Scrubbing a file: starts the process that does it (`scrub_child`), and puts what it sends into its place."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from memprof.errors import MemprofError
from memprof.trace.parts import receive_parts
from memprof.trace.reader import PendingTrace, open_file

if TYPE_CHECKING:
    import io

__all__ = ["scrub_file"]


def scrub_file(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> dict[str, int]:
    """Write to `target` the snapshot in `source` without paths, user and host names; return what was changed.

    `target` is always a plain pickle that memory_viz opens, whatever `source` is, and appears only when it is complete.
    They may be the same file. Nothing is unpickled in this process.

    Raises
    ------
    InputError
        `source` cannot be read, or is not a snapshot.
    MemprofError
        `target` cannot be written.
    """
    place = Path(target)
    if place.is_dir():
        raise MemprofError(f"{target} is a directory: name the file to write in it")
    place = place.resolve()  # through a link: the file that it names is replaced, not the link
    name = os.fsdecode(source)
    file = open_file(name)
    beside = place.with_name(f".{place.name}.{os.getpid()}.part")
    try:
        try:
            with beside.open("xb") as sink:
                pending = _PendingScrub(name, os.fstat(file).st_size, file, sink)
                file = -1
                counts = pending.result()
                sink.flush()
                os.fsync(sink.fileno())
            beside.replace(place)
        except OSError as error:
            raise MemprofError(f"{target} cannot be written: {error.strerror or error}") from None
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    finally:
        if file >= 0:
            os.close(file)
    assert isinstance(counts, dict)
    return counts


class _PendingScrub(PendingTrace):
    """A file that is being scrubbed; its `result` is the counts, once the pickle is in the sink."""

    entry = "memprof.trace.scrub_child"

    def __init__(self, path: str, size: int, file: int, sink: IO[bytes]) -> None:
        self._sink = sink
        super().__init__(path, size, file)

    def _receive(self, pipe: io.FileIO) -> Any:
        return json.loads(receive_parts(pipe, self._sink))
