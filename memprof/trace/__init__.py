"""What happened: readers of snapshots and profiler traces, and the plain values that they yield. No torch here.

`load` reads a file; `start` does so in the background. Both are imported on use, so that this package costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memprof.trace.reader import PendingTrace, load, start

__all__ = ["PendingTrace", "load", "start"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from memprof.trace import reader

        return getattr(reader, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
