"""Records a Lightning Trainer."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from memprof.capture.record import record

if TYPE_CHECKING:
    from pathlib import Path

    from memprof.capture.record import Recording
    from memprof.capture.session import CaptureResult

__all__ = ["LightningCallback"]

# The older name of the same package has classes of its own, and a Trainer takes only those.
_OLD = "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules
Callback: Any = import_module("pytorch_lightning" if _OLD else "lightning.pytorch").Callback


class LightningCallback(Callback):  # type: ignore[misc]  # known when lightning is
    """Records ``fit``, ``validate``, ``test`` or ``predict`` from setup to teardown; a step is a training batch.

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

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:  # noqa: ARG002 - the callback's signature
        """Begin recording."""
        self._recording = record(self._output, model=pl_module, **self._options)
        self._recording.start(counts_steps=True)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:  # noqa: ARG002 - the callback's signature
        """End a step."""
        if self._recording is not None:
            self._recording.step()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:  # noqa: ARG002 - the callback's signature
        """End recording; the file is written if memory ran out, or after Ctrl-C."""
        if self._recording is not None:
            self._recording.finish(exception)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:  # noqa: ARG002 - the callback's signature
        """End recording and write the file."""
        if self._recording is not None:
            self._recording.finish()
