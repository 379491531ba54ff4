"""The module and the op that each range of a profile works for."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from memprof.trace.kineto import MODULE
from memprof.trace.kineto_model import RangeKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memprof.analysis.profile_nesting import Nesting
    from memprof.trace.kineto_model import Profile

    Column = NDArray[np.int64]

__all__ = ["NO_MODULE", "NO_OP", "OURS", "Causes", "find_causes"]

MARK = "memprof."
MODULE_MARK = f"{MARK}module "
LOOK = f"{MARK}look"
"""How a capture names the ranges in which it looks at tensors (`memprof.capture.trace_file`)."""
NODE = "autograd::engine::evaluate_function: "
"""What the engine puts before the name of an autograd node (``torch/csrc/autograd/engine.cpp``)."""
FETCHERS = ("aten::empty", "aten::new_empty", "aten::resize_", "aten::resolve_conj")
"""Beginnings of the names of ops that only fetch memory for another op: what they do is for the one that asked."""
NO_MODULE = "(no module)"
NO_OP = "(no op)"
OURS = "(memprof)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Causes:
    """For every range a row of `modules` and of `ops`."""

    module: Column
    op: Column
    modules: tuple[str, ...]
    ops: tuple[str, ...]


class _Names:
    def __init__(self, first: str) -> None:
        self.rows = {first: 0}

    def row(self, name: str) -> int:
        return self.rows.setdefault(name, len(self.rows))


def find_causes(profile: Profile, nesting: Nesting) -> Causes:
    """Say what each range is for.

    A range belongs to the closest module around it, marked by memprof or, where it marked none, by the profiler; in
    backward to the module whose forward op made the autograd node, found by autograd's sequence number.
    """
    ranges, texts = profile.ranges, profile.texts
    modules, ops = _Names(NO_MODULE), _Names(NO_OP)
    module, op = [0] * len(ranges), [0] * len(ranges)
    kinds, names, parents = ranges.kind.tolist(), ranges.name.tolist(), nesting.parent.tolist()
    sequences, backward = ranges.sequence.tolist(), (ranges.forward_thread > 0).tolist()
    starts = ranges.start.tolist()
    makers = _makers(profile)
    marked = any(text.startswith(MODULE_MARK) for text in texts)
    for row in nesting.order.tolist():
        name, parent = texts[names[row]], parents[row]
        inherited = parent >= 0
        if kinds[row] == RangeKind.OP:
            fetches = name.startswith(FETCHERS) and inherited and op[parent]
            op[row] = op[parent] if fetches else ops.row(name.removeprefix(NODE))
        elif inherited:
            op[row] = op[parent]
        own = None if marked and kinds[row] == RangeKind.MODULE else _module_of(name, kinds[row])
        if own is not None:
            module[row] = modules.row(own)
        elif inherited:
            module[row] = module[parent]
    # Only now: the forward may be on a thread that comes later.
    for row in nesting.order.tolist():
        if module[row]:
            continue
        if parents[row] >= 0 and module[parents[row]]:
            module[row] = module[parents[row]]
        elif backward[row] and sequences[row] >= 0:
            # Ops that make no node carry the number of the next one that does: the last that had it made it.
            made = makers.get(sequences[row], ())
            place = bisect_left(made, (starts[row], -1)) - 1
            module[row] = module[made[place][1]] if place >= 0 else 0
    return Causes(
        module=np.array(module, np.int64),
        op=np.array(op, np.int64),
        modules=tuple(modules.rows),
        ops=tuple(ops.rows),
    )


def _makers(profile: Profile) -> dict[int, list[tuple[int, int]]]:
    """Return (start, row) of the forward ops with each of autograd's numbers, in order of time."""
    ranges = profile.ranges
    found: dict[int, list[tuple[int, int]]] = {}
    rows = np.flatnonzero((ranges.sequence >= 0) & (ranges.forward_thread <= 0))
    for row, number, start in zip(
        rows.tolist(), ranges.sequence[rows].tolist(), ranges.start[rows].tolist(), strict=True
    ):
        found.setdefault(number, []).append((start, row))
    for made in found.values():
        made.sort()
    return found


def _module_of(name: str, kind: int) -> str | None:
    """Name the module that a range marks."""
    if kind == RangeKind.MODULE:
        return name.removeprefix(MODULE)
    if name == LOOK:
        return OURS
    return name.removeprefix(MODULE_MARK) if name.startswith(MODULE_MARK) else None
