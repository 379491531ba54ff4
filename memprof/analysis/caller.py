"""Who asked for an allocation: the innermost frame that is not a library's."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memprof.trace.model import Frame

__all__ = ["caller_of"]

LIBRARIES = ("torch/", "bitsandbytes/", "accelerate/")
"""Parts of file names that are not the cause: somebody called them."""


COMPREHENSIONS = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>"})
"""Names of frames that Python has up to 3.11 only; from 3.12 on their lines belong to the function around them."""


def caller_of(stack: Sequence[Frame]) -> str | None:
    """Name function, file and line of the innermost Python frame outside `LIBRARIES`; None if there is none."""
    line = None
    for frame in stack:
        if frame.filename.endswith(".py") and not any(part in frame.filename for part in LIBRARIES):
            line = frame.line if line is None else line
            if frame.name not in COMPREHENSIONS:
                return f"{frame.name} ({'/'.join(frame.filename.split('/')[-2:])}:{line})"
    return None
