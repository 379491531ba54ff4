"""Knows which module and which op an allocation belongs to."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from memprof.capture.phases import NODE

if TYPE_CHECKING:
    from memprof.capture.marks import Mark
    from memprof.capture.timeline import Timeline

__all__ = ["PLUMBING", "Modules", "op_name"]

PLUMBING = frozenset(
    {
        "aten::empty",
        "aten::empty_like",
        "aten::empty_strided",
        "aten::new_empty",
        "aten::new_empty_strided",
        "aten::resize_",
        "aten::resolve_conj",
    }
)
"""Ops that only fetch memory for another op: an allocation's op is the one that asked them."""
REGION = "Torch-Compiled Region: "
"""What the name of a compiled graph's range begins with; its number follows (torch/_dynamo/convert_frame.py).

There are no modules inside: the graph is named beside the module around it."""
TRACED = "GraphModule"
"""Type of the module that a traced graph is: it has no name of its own."""
OUTSIDE = "(no op)"
"""Where no op ran, when a Python number becomes a tensor, say. That nothing ran is known, so it is not unknown."""


class Modules:
    """The module around every op, or compiled graph; in backward, that of the forward op which made the node."""

    def __init__(self, timeline: Timeline, marks: list[Mark | None]) -> None:
        self._timeline = timeline
        self._module: list[str | None] = []
        self._makers: dict[int, list[tuple[float, int]]] = {}
        for row, (op, mark) in enumerate(zip(timeline.ops, marks, strict=True)):
            inherited = self._module[op.parent] if op.parent >= 0 else None
            if op.name.startswith(REGION):
                inherited = f"{inherited or ''} [graph {op.name.removeprefix(REGION)}]".lstrip()
            named = mark is not None and mark.kind == "module" and (mark.name != TRACED or inherited is None)
            self._module.append(mark.name if named and mark is not None else inherited)
            if op.sequence >= 0 and not op.backward and not op.name.startswith(NODE):
                self._makers.setdefault(op.sequence, []).append((op.start, row))
        for makers in self._makers.values():
            makers.sort()

    def of(self, op: int, born: float) -> str | None:
        """Return the module of what op number `op` allocated at rank `born`; None without one."""
        if op < 0:
            return None
        if self._module[op] is not None:
            return self._module[op]
        for around in self._timeline.around(op):
            if around.sequence >= 0 and (around.backward or around.name.startswith(NODE)):
                # Ops that make no node carry the number of the next one that does: the last op that had it made it.
                makers = self._makers.get(around.sequence, [])
                row = bisect_right(makers, (born, 0)) - 1
                if row >= 0:
                    return self._module[makers[row][1]]
        return None


def op_name(timeline: Timeline, marks: list[Mark | None], op: int) -> str:
    """Name the op that an allocation is for: the innermost one that is not plumbing."""
    innermost = OUTSIDE
    while op >= 0:
        name = timeline.ops[op].name
        if marks[op] is None and timeline.ops[op].operator:
            if name not in PLUMBING:
                return name.removeprefix(NODE)
            innermost = name if innermost == OUTSIDE else innermost
        op = timeline.ops[op].parent
    return innermost
