"""One allocation: what was seen of it, and the label that follows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from memprof.categories.category import Category

if TYPE_CHECKING:
    from memprof.capture.marks import Mark
    from memprof.capture.timeline import TensorSight

__all__ = ["FOREVER", "Facts", "Label"]

FOREVER = 1 << 62
"""Rank of the free of what is never freed."""


@dataclass(slots=True, kw_only=True)
class Label:
    """What is known of one allocation."""

    born: float
    """Rank of the allocation; -1 before the recording began."""
    freed: float = FOREVER
    """Rank of its free."""
    address: int
    size: int
    category: Category = Category.UNKNOWN
    finer: str = ""
    phase: str = ""
    step: int = -1
    module: str | None = None
    op: str = ""
    dtype: str = ""
    shape: tuple[int, ...] | None = None
    parameter: str = ""
    saved: bool = False


@dataclass(slots=True, kw_only=True)
class Facts:
    """What the walk over the timeline found out about one allocation, before it is judged."""

    op: int
    """Innermost op around the allocation; -1 without one."""
    unreported: bool = False
    """Only the allocator's history has it, so that nobody knows what ran."""
    roles: list[Mark] = field(default_factory=list)
    """Sights of it, in order."""
    saved_at: list[int] = field(default_factory=list)
    first: TensorSight | None = None
    exact: TensorSight | None = None
    flows: bool = False
    """It was a gradient that flowed into an autograd node."""
    into_forward: bool = False
    """An op of a forward or an evaluation was given it."""
    logits: bool = False
    """A cross entropy was given it."""
    bucket: bool = False
    """It was sent between processes in backward."""
    source: int = -1
    """Allocation that it is a copy of, or was dequantized from; -1 if of none."""
    converted: bool = False
    """The copy is of another dtype (or device) than its source."""
    dequantized: int = -1
    """Op that dequantizes, in which it was allocated; -1 if in none."""
    fused: bool = False
    """That op also multiplies, and keeps what it rebuilds to itself."""
