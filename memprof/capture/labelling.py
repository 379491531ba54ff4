"""Turns a `Timeline` into what is known of each allocation. No torch here: plain values in, plain values out.

The facts come from three places: marks that the capture wrote into the timeline (phases, modules, what autograd saves,
which tensor is what), the op around an allocation, and the tensors that later ops were given, which show what lives at
an address and where it goes.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from memprof.capture.facts import Facts, Label
from memprof.capture.judging import Judge, by_sight
from memprof.capture.liveblocks import LiveBlocks
from memprof.capture.marks import parse
from memprof.capture.modules import PLUMBING, Modules, op_name
from memprof.capture.phases import Phase, phases_of

if TYPE_CHECKING:
    from memprof.capture.marks import Mark
    from memprof.capture.timeline import MemoryEvent, Op, TensorSight, Timeline

__all__ = ["Labelling", "label"]

CONVERT = "aten::_to_copy"
COPIES = frozenset({CONVERT, "aten::clone"})
"""Ops whose result holds the values of their first tensor."""
DEQUANTIZE = ("bitsandbytes::dequantize_",)
"""Beginnings of the names of ops whose result is a quantized tensor at full precision."""
FUSED = frozenset({"bitsandbytes::gemm_4bit", "bitsandbytes::gemv_4bit"})
"""Ops that may rebuild the quantized weight, their second tensor, in a buffer of their own; CUDA has no op for that
(``_dequant_linear_fallback`` in bitsandbytes/backends/cuda/ops.py)."""
CROSS_ENTROPY = "aten::cross_entropy_loss"
"""The op whose first tensor are logits."""
COLLECTIVE = "c10d::"
"""What the name of an op between processes begins with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelling:
    """What is known of a run's allocations."""

    labels: list[Label]
    """One for every allocation, in order of birth."""
    base: list[Label]
    """What was there before the recording began and was seen in it: `born` is -1, and `size` what the tensors show."""
    phases: list[Phase]


def label(timeline: Timeline, *, unfinished: bool = False, light: bool = False) -> Labelling:
    """Label every allocation of `timeline`.

    Parameters
    ----------
    unfinished
        The run ended before it wanted to.
    light
        The timeline has marks and no ops: only what was looked at has a category.
    """
    marks = [parse(op.name) for op in timeline.ops]
    phases = phases_of(timeline, marks)
    walk = _Walk(timeline, marks, phases)
    walk.run()
    modules = Modules(timeline, marks)
    starts = [phase.start for phase in phases]
    for item, fact in zip(walk.labels, walk.facts, strict=True):
        _place(item, starts, phases)
        item.module = modules.of(fact.op, item.born)
        if item.born >= 0 and not light and not fact.unreported:
            item.op = op_name(timeline, marks, fact.op)
        sight = fact.exact or fact.first
        if sight is not None:
            item.dtype, item.shape = sight.dtype, sight.shape
        item.saved = bool(fact.saved_at)
    if light:
        for item, fact in zip(walk.labels, walk.facts, strict=True):
            by_sight(item, fact)
        return _labelling(walk)
    marked = any(mark is not None and mark.kind == "phase" for mark in marks)
    judge = Judge(timeline, phases, marked=marked, unfinished=unfinished)
    # A copy's category follows from its source's, and a source always stands before its copy.
    for item, fact in zip(walk.labels, walk.facts, strict=True):
        judge.decide(item, fact, source=walk.labels[fact.source] if fact.source >= 0 else None)
    return _labelling(walk)


def _labelling(walk: _Walk) -> Labelling:
    return Labelling(
        labels=[item for item in walk.labels if item.born >= 0],
        base=[item for item in walk.labels if item.born < 0],
        phases=walk.phases,
    )


@dataclass(slots=True)
class _Walk:
    """Pairs allocations with frees, and gives each the tensors and marks that were seen at its address in its life."""

    timeline: Timeline
    marks: list[Mark | None]
    phases: list[Phase]
    labels: list[Label] = field(default_factory=list)
    facts: list[Facts] = field(default_factory=list)
    live: dict[int, int] = field(default_factory=dict)
    blocks: LiveBlocks = field(default_factory=LiveBlocks)
    sources: dict[int, int] = field(default_factory=dict)
    """Op that copies or dequantizes -> allocation that it reads."""

    def run(self) -> None:
        timeline = self.timeline
        # Memory events and op starts, in order; ranks are unique.
        moments: list[tuple[float, int]] = [(event.at, -1 - row) for row, event in enumerate(timeline.memory)]
        moments.extend((op.start, row) for row, op in enumerate(timeline.ops) if op.tensors)
        moments.sort()
        number = 0
        for at, row in moments:
            if row < 0:
                self._remember(timeline.memory[-1 - row])
                continue
            while number < len(self.phases) and self.phases[number].end < at:
                number += 1
            inside = number < len(self.phases) and self.phases[number].start <= at
            self._look(row, self.phases[number].name if inside else "")

    def _remember(self, event: MemoryEvent) -> None:
        if event.size > 0:
            self.blocks.take(event.address, event.size)
        else:
            self.blocks.give_back(event.address)
        before = self.live.pop(event.address, None)
        if before is not None:
            self.labels[before].freed = event.at
        if event.size > 0:
            fact = Facts(op=event.op, unreported=event.implied)
            self._find_source(fact)
            self._add(Label(born=event.at, address=event.address, size=event.size), fact)
        elif before is not None and self.labels[before].born < 0:
            self.labels[before].size = -event.size

    def _add(self, item: Label, fact: Facts) -> int:
        row = self.live[item.address] = len(self.labels)
        self.labels.append(item)
        self.facts.append(fact)
        return row

    def _look(self, row: int, phase: str) -> None:
        op, mark = self.timeline.ops[row], self.marks[row]
        found = [self._at(tensor) for tensor in op.tensors]
        if op.name in COPIES or op.name.startswith(DEQUANTIZE):
            self.sources[row] = found[0]
        elif op.name in FUSED:
            self.sources[row] = found[1] if len(found) > 1 else -1
        elif op.name == CROSS_ENTROPY:
            self.facts[found[0]].logits = True
        for allocation, tensor in zip(found, op.tensors, strict=True):
            item, fact = self.labels[allocation], self.facts[allocation]
            sighted = mark is not None and mark.kind == "sight"
            if item.born < 0 and (sighted or not fact.roles):
                # What is expanded looks larger than it is; what was looked at on purpose is not.
                item.size = max(item.size if fact.roles or not sighted else 0, tensor.bytes)
            if fact.first is None and tensor.bytes:
                fact.first = tensor
            if mark is not None and mark.kind == "sight":
                fact.roles.append(mark)
                fact.exact = tensor
            elif mark is not None and mark.kind == "saved":
                fact.saved_at.append(op.start)
            elif mark is None:
                self._use(op, fact, phase)
            if fact.exact is None and tensor.bytes == item.size:
                fact.exact = tensor

    def _use(self, op: Op, fact: Facts, phase: str) -> None:
        if op.backward:
            fact.flows = True
        elif op.name.startswith(COLLECTIVE) and phase == "backward" and "gather" not in op.name:
            fact.bucket = True
        elif phase in ("forward", "eval"):
            fact.into_forward = True

    def _at(self, tensor: TensorSight) -> int:
        """Return the allocation in which a tensor lives; what nobody allocated was there before."""
        found = self.live.get(tensor.address)
        if found is None and (holder := self.blocks.holder(tensor.address)) is not None:
            found = self.live.get(holder)  # a storage that begins inside, as those of a safetensors file do
        if found is None:
            found = self._add(Label(born=-1, address=tensor.address, size=0), Facts(op=-1))
        return found

    def _find_source(self, fact: Facts) -> None:
        row = fact.op
        direct = True
        while row >= 0:
            op = self.timeline.ops[row]
            if op.name.startswith(DEQUANTIZE) or (direct and op.name in FUSED):
                fact.dequantized = row
                fact.fused = op.name in FUSED
                fact.source = self.sources.get(row, -1)
                return
            direct = direct and op.name in PLUMBING
            if op.name in COPIES and fact.source < 0:
                fact.source = self.sources.get(row, -1)
                fact.converted = op.name == CONVERT
            row = op.parent


def _place(item: Label, starts: list[int], phases: list[Phase]) -> None:
    if item.born < 0:
        item.phase = "init"
        return
    row = bisect_right(starts, item.born) - 1
    if row < 0:
        return
    phase = phases[row]
    item.step = phase.step
    item.phase = phase.name if item.born < phase.end else "between"
