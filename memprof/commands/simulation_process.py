"""The other end of `memprof.commands.simulation_server`: starts it, asks it, and leaves nothing running."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from memprof import errors

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Simulations"]

PATIENCE = 5.0
"""Seconds that the process has to end by itself."""


class Simulations:
    """Simulates runs in another process: one at a time, from one thread, until it is closed."""

    def __init__(self) -> None:
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process runs
        # A session of its own: Ctrl-C reaches this process, which then ends the other with all that it forked.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "memprof.commands.simulation_server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            start_new_session=True,
        )

    def __enter__(self) -> Simulations:  # noqa: PYI034 - typing.Self is newer than Python 3.10
        """Do nothing: the process was started."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        """End it; at once where something went wrong, or Ctrl-C was pressed."""
        if kind is not None:
            self.kill()
        self.close()

    def close(self) -> None:
        """End the process, and what it forked. From the thread that asks."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process.stdout.close()
        self._said.close()

    def kill(self) -> None:
        """End the process, and what it forked, at once. From any thread: one that waits for an answer gets none."""
        if self.alive:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    @property
    def alive(self) -> bool:
        """Whether the process can still be asked."""
        return self._process.poll() is None

    def ask(self, do: str, **values: Any) -> dict[str, Any]:
        """Make a request and wait for the answer.

        Raises
        ------
        MemprofError
            Of the kind that the other process raised; `CaptureError` if it ended without an answer.

        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **values}).encode() + b"\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = b""
        if not line:
            raise errors.CaptureError(f"the simulating process ended: {self._last_words()}")
        answer: Mapping[str, Any] = json.loads(line)
        if "error" in answer:
            kind = getattr(errors, str(answer["kind"]), errors.CaptureError)
            raise kind(str(answer["error"]))
        return dict(answer)

    def _last_words(self) -> str:
        self._said.seek(0)
        lines = self._said.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1].strip()[:300] if lines else "it said nothing"
