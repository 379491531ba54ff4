"""Which steps of a run are recorded."""

from __future__ import annotations

import re
from dataclasses import dataclass

from memprof.errors import UsageError

__all__ = ["RecordedSteps"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSteps:
    """From the beginning of step `first` to the end of step `last`, counted from 0."""

    first: int | None = None
    """None: from the beginning of the recording, with the building of the model."""
    last: int | None = None
    """None: to the end of the run."""

    @classmethod
    def read(cls, text: int | str | None) -> RecordedSteps:
        """Read ``N`` (the first so many steps), ``N-M`` (these), or None (everything).

        Raises
        ------
        UsageError
            If it is neither, or empty.
        """
        if text is None:
            return cls()
        match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", str(text))
        if match is None or (match[2] is not None and int(match[1]) > int(match[2])):
            raise UsageError(f"--steps {text}: give how many, such as 2, or a range counted from 0, such as 10-12")
        if match[2] is not None:
            return cls(first=int(match[1]), last=int(match[2]))
        if not int(match[1]):
            raise UsageError(f"--steps {text}: must be at least 1")
        return cls(last=int(match[1]) - 1)

    def __str__(self) -> str:
        """Say it as `read` reads it, or ``all``."""
        if self.last is None:
            return "all"
        return str(self.last + 1) if self.first is None else f"{self.first}-{self.last}"
