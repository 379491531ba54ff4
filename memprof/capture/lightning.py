"""Records a Lightning Trainer."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from memprof.capture.followed import FollowedRun

__all__ = ["LightningCallback"]

# The older name of the same package has classes of its own, and a Trainer takes only those.
_OLD = "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules
Callback: Any = import_module("pytorch_lightning" if _OLD else "lightning.pytorch").Callback


class LightningCallback(FollowedRun, Callback):  # type: ignore[misc]  # known when lightning is
    """Records ``fit``, ``validate``, ``test`` or ``predict`` from setup to teardown; a step is a training batch.

    Parameters
    ----------
    output
        As of `memprof.record`; so are the options.
    """

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:  # noqa: ARG002 - the callback's signature
        """Begin recording."""
        self._begin(model=pl_module)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:  # noqa: ARG002 - the callback's signature
        """End a step."""
        self._step()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:  # noqa: ARG002 - the callback's signature
        """End recording; the file is written if memory ran out, or after Ctrl-C."""
        self._finish(exception)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:  # noqa: ARG002 - the callback's signature
        """End recording and write the file."""
        self._finish()
