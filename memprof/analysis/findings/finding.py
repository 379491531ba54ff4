"""What a finding is: a cause, its bytes, the rows that prove it, and what to change."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["Certainty", "Evidence", "Finding"]


class Certainty(Enum):
    """How sure a finding is."""

    CERTAIN = "certain"
    """The capture's labels or the allocator's own events say so."""
    LIKELY = "likely"
    """It rests on rules about a file without labels, or on something that the file does not quite say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Like allocations that a finding rests on; the layers of a model are one row, with ``*`` for their number."""

    module: str | None
    op: str | None
    dtype: str | None
    size: int
    """Their part of the finding's bytes."""
    count: int = 1
    where: str | None = None
    """Innermost frame of the user's own code, where no module is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One cause of memory."""

    id: str
    title: str
    """The fact in one line, with its figures."""
    category: str
    """A `Category` value, or ``cached`` for free blocks that the allocator keeps."""
    size: int
    """Bytes; the sum of the evidence."""
    per_sample: float | None
    """Bytes per sample of the micro-batch; None where they do not grow with it, or its size is not known."""
    certainty: Certainty
    evidence: tuple[Evidence, ...]
    """Largest first."""
    fix: str
    gives_back: int | None = None
    """Bytes by which the run's peak falls where the cause is taken away and everything else stays as it is: the
    highest sum over the whole run, wherever it then is. Less than `size` where another moment is nearly as high, or
    something else takes the place. None where the run does not tell."""
