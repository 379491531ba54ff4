"""Records a loop of Lightning Fabric's that calls its callbacks."""

from __future__ import annotations

from typing import Any

from memprof.capture.followed import FollowedRun

__all__ = ["FabricCallback"]


class FabricCallback(FollowedRun):
    """Records from ``fabric.call("on_train_start")`` to ``fabric.call("on_train_end")``.

    A step ends with each ``fabric.call("on_train_batch_end")``; whatever else these are called with is not looked at.
    Where an exception is to be seen, such as memory running out, put ``with memprof.record(...)`` around the loop.

    Parameters
    ----------
    output
        As of `memprof.record`; so are the options.
    """

    def on_train_start(self, *_: Any, **__: Any) -> None:
        """Begin recording; a recording that an earlier training left behind is dropped."""
        self._begin()

    def on_train_batch_end(self, *_: Any, **__: Any) -> None:
        """End a step."""
        self._step()

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """End recording and write the file."""
        self._finish()
