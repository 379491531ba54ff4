"""Scrubbing a file: starts the process that does it (`scrub_child`), and puts what it sends into its place."""

from __future__ import annotations

import json
import os
from typing import IO, TYPE_CHECKING, Any

from memprof.atomic import check_writable, write_whole
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
    OutputError
        `target` cannot be written.
    UnsupportedError
        There is no Python interpreter to start.
    """
    name = os.fsdecode(source)
    counts: dict[str, int] = {}

    def scrub(sink: IO[bytes]) -> None:
        file = open_file(name)
        try:
            pending = _PendingScrub(name, os.fstat(file).st_size, file, sink)
        except BaseException:
            os.close(file)
            raise
        counts.update(pending.changes())

    os.close(open_file(name))  # a source that is not there is told first, whatever the target is
    check_writable(target)
    write_whole(target, scrub)
    return counts


class _PendingScrub(PendingTrace):
    """A file that is being scrubbed; its `result` is the counts, once the pickle is in the sink."""

    entry = "memprof.trace.scrub_child"

    def __init__(self, path: str, size: int, file: int, sink: IO[bytes]) -> None:
        self._sink = sink
        super().__init__(path, size, file)

    def changes(self) -> dict[str, int]:
        """Wait for the end of the pickle, and return what was changed."""
        counts: Any = self.result()
        assert isinstance(counts, dict)
        return counts

    def _receive(self, pipe: io.FileIO) -> Any:
        return json.loads(receive_parts(pipe, self._sink))
