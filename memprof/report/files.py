"""Writing a report: whole or not at all."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from memprof.errors import MemprofError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["write_text"]


def write_text(path: Path, text: str) -> None:
    """Write `text` beside `path` and move it there once it is complete.

    Raises
    ------
    MemprofError
        If it cannot be written.

    """
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with beside.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise MemprofError(f"{path} cannot be written: {error.strerror or error}") from None
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
