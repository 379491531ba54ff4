"""Records a loop of Lightning Fabric's that calls its callbacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memprof.capture.record import record

if TYPE_CHECKING:
    from pathlib import Path

    from memprof.capture.record import Recording
    from memprof.capture.session import CaptureResult

__all__ = ["FabricCallback"]


class FabricCallback:
    """Records from ``fabric.call("on_train_start")`` to ``fabric.call("on_train_end")``.

    A step ends with each ``fabric.call("on_train_batch_end")``; whatever else these are called with is not looked at.
    Where an exception is to be seen, such as memory running out, put ``with memprof.record(...)`` around the loop.

    Parameters
    ----------
    output
        As of `memprof.record`; so are the options.
    """

    def __init__(self, output: str | Path, **options: Any) -> None:
        self._output = output
        self._options = options
        self._recording: Recording | None = None

    @property
    def result(self) -> CaptureResult | None:
        """What was written, once it is."""
        return None if self._recording is None else self._recording.result

    def on_train_start(self, *_: Any, **__: Any) -> None:
        """Begin recording; a recording that an earlier training left behind is dropped."""
        if self._recording is not None:
            self._recording.abandon()
        self._recording = record(self._output, **self._options)
        self._recording.start(counts_steps=True)

    def on_train_batch_end(self, *_: Any, **__: Any) -> None:
        """End a step."""
        if self._recording is not None:
            self._recording.step()

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """End recording and write the file."""
        if self._recording is not None:
            self._recording.finish()
