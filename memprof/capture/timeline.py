"""The profiler's record of a run as plain values: op ranges, the tensors they were given, allocations and frees.

Moments are ranks: 0, 1, 2, ... in the order in which things happened, over all threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["MemoryEvent", "Op", "TensorSight", "Timeline"]


@dataclass(frozen=True, slots=True)
class TensorSight:
    """A tensor that an op was given."""

    address: int
    """Where its storage begins."""
    dtype: str
    """torch's name without its prefix."""
    shape: tuple[int, ...]
    itemsize: int

    @property
    def bytes(self) -> int:
        """Size of the tensor's elements."""
        total = self.itemsize
        for size in self.shape:
            total *= size
        return total


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One range of the profiler: an operator, an autograd node, or one of our marks."""

    name: str
    parent: int
    """Row of the enclosing op on the same thread; -1 without one."""
    start: int
    """Rank."""
    end: int
    """Rank."""
    sequence: int = -1
    """Autograd's number: of the node that a forward op makes, or that a backward op is; -1 without one."""
    backward: bool = False
    """True for the call of an autograd node: its tensors are the gradients that flow into it."""
    operator: bool = True
    """False for a region that somebody named with ``record_function``."""
    tensors: tuple[TensorSight, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEvent:
    """One allocation (`size` > 0) or free (`size` < 0)."""

    at: float
    """Rank; between two ranks where nobody reported it."""
    time_ns: int
    """Nanoseconds since the epoch, on the profiler's clock."""
    address: int
    size: int
    """Bytes as the allocator reports them: of the whole block on CUDA, as requested on the CPU."""
    op: int
    """Row of the innermost op around it; -1 without one."""
    implied: bool = False
    """Nobody reported it: it is known because the memory was given out again, or from the allocator's history."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Everything that happened."""

    ops: list[Op]
    """A parent stands before its children."""
    memory: list[MemoryEvent]
    """Of one device, in rising rank."""
    device: str = "cpu"
    """Kind of the device: cpu or cuda."""

    def around(self, op: int) -> Iterator[Op]:
        """Yield op number `op` and the ops around it, innermost first; nothing for -1."""
        while op >= 0:
            yield self.ops[op]
            op = self.ops[op].parent
