"""What the callbacks of all frameworks have in common: they begin a recording, count steps, and end it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memprof.capture.record import record

if TYPE_CHECKING:
    from pathlib import Path

    from memprof.capture.record import Recording
    from memprof.capture.session import CaptureResult

__all__ = ["FollowedRun"]


class FollowedRun:
    """Records a run that a framework tells of, one after the other.

    Parameters
    ----------
    output
        As of `memprof.record`; so are the options.
    """

    def __init__(self, output: str | Path, **options: Any) -> None:
        super().__init__()
        self._output = output
        self._options = options
        self._recording: Recording | None = None

    @property
    def result(self) -> CaptureResult | None:
        """What was written, once it is."""
        return None if self._recording is None else self._recording.result

    def _begin(self, **objects: Any) -> None:
        """Begin recording; a recording that an earlier run left behind is dropped."""
        if self._recording is not None:
            self._recording.abandon()
        self._recording = record(self._output, **objects, **self._options)
        self._recording.start(counts_steps=True)

    def _step(self) -> None:
        if self._recording is not None:
            self._recording.step()

    def _finish(self, error: BaseException | None = None) -> None:
        if self._recording is not None:
            self._recording.finish(error)
