"""Records training runs: every allocation, and what it is for. Importing `capture` from here loads torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memprof.capture.recorder import CaptureResult, capture

__all__ = ["CaptureResult", "capture"]


def __getattr__(name: str) -> Any:
    """Load the recorder, and torch with it, when it is first asked for."""
    if name in __all__:
        from memprof.capture import recorder

        return getattr(recorder, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
