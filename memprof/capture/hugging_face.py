"""Records a Hugging Face Trainer, and what builds on it, such as TRL's."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from memprof.capture.followed import FollowedRun

__all__ = ["HuggingFaceCallback"]


class HuggingFaceCallback(FollowedRun, TrainerCallback):  # type: ignore[misc]  # transformers has no types that mypy follows
    """Records from the beginning of training to its end; a step is an optimizer step.

    A Trainer tells its callbacks nothing of an exception: where that matters, such as for memory running out, put
    ``with memprof.record(...)`` around ``trainer.train()`` instead.

    Parameters
    ----------
    output
        As of `memprof.record`; so are the options.
    """

    def on_train_begin(self, args: Any, state: Any, control: Any, **objects: Any) -> None:  # noqa: ARG002 - the callback's signature
        """Begin recording; a recording that an earlier training left behind is dropped."""
        self._begin(model=objects.get("model"), optimizer=objects.get("optimizer"))

    def on_step_end(self, args: Any, state: Any, control: Any, **objects: Any) -> None:  # noqa: ARG002 - the callback's signature
        """End a step."""
        self._step()

    def on_train_end(self, args: Any, state: Any, control: Any, **objects: Any) -> None:  # noqa: ARG002 - the callback's signature
        """End recording and write the file."""
        self._finish()
