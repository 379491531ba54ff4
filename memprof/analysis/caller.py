"""Who asked for an allocation: the innermost frame that is not a library's."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memprof.trace.model import Frame

__all__ = ["caller_of"]

LIBRARIES = ("torch/", "bitsandbytes/", "accelerate/")
"""Parts of file names that are not the cause: somebody called them."""


def caller_of(stack: Sequence[Frame]) -> str | None:
    """Name function, file and line of the innermost Python frame outside `LIBRARIES`; None if there is none."""
    for frame in stack:
        if frame.filename.endswith(".py") and not any(part in frame.filename for part in LIBRARIES):
            return f"{frame.name} ({'/'.join(frame.filename.split('/')[-2:])}:{frame.line})"
    return None
