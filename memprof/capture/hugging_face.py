"""Records a Hugging Face Trainer, and what builds on it, such as TRL's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from memprof.capture.record import record

if TYPE_CHECKING:
    from pathlib import Path

    from memprof.capture.record import Recording
    from memprof.capture.session import CaptureResult

__all__ = ["HuggingFaceCallback"]


class HuggingFaceCallback(TrainerCallback):  # type: ignore[misc]  # transformers has no types that mypy follows
    """Records from the beginning of training to its end; a step is an optimizer step.

    A Trainer tells its callbacks nothing of an exception: where that matters, such as for memory running out, put
    ``with memprof.record(...)`` around ``trainer.train()`` instead.

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

    def on_train_begin(self, args: Any, state: Any, control: Any, **objects: Any) -> None:  # noqa: ARG002 - the callback's signature
        """Begin recording; a recording that an earlier training left behind is dropped."""
        if self._recording is not None:
            self._recording.abandon()
        self._recording = record(
            self._output, model=objects.get("model"), optimizer=objects.get("optimizer"), **self._options
        )
        self._recording.start(counts_steps=True)

    def on_step_end(self, args: Any, state: Any, control: Any, **objects: Any) -> None:  # noqa: ARG002 - the callback's signature
        """End a step."""
        if self._recording is not None:
            self._recording.step()

    def on_train_end(self, args: Any, state: Any, control: Any, **objects: Any) -> None:  # noqa: ARG002 - the callback's signature
        """End recording and write the file."""
        if self._recording is not None:
            self._recording.finish()
