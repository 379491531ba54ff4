"""The phases of a run: as a recipe marked them, or found from modules, autograd nodes and optimizer steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memprof.capture.marks import NO_GRAD, TOLD, TRAINING

if TYPE_CHECKING:
    from memprof.capture.marks import Mark
    from memprof.capture.timeline import Timeline

__all__ = ["NODE", "Phase", "phases_of"]

NODE = "autograd::engine::evaluate_function: "
"""What the name of an autograd node's range begins with (torch/csrc/autograd/engine.cpp)."""
OPTIMIZER = "Optimizer.step#"
"""What the name of an optimizer step's range begins with (``profile_hook_step`` in torch/optim/optimizer.py)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One phase of one step, from rank `start` to rank `end`."""

    name: str
    step: int
    start: int
    end: int


def phases_of(timeline: Timeline, marks: list[Mark | None]) -> list[Phase]:
    """Return the run's phases in order; those that the run marked, or else those that are found.

    `marks` has the mark of each op of `timeline`, None where it is none.
    """
    marked = [
        Phase(name=mark.name, step=mark.step, start=op.start, end=op.end)
        for mark, op in zip(marks, timeline.ops, strict=True)
        if mark is not None and mark.kind == "phase"
    ]
    if marked:
        return sorted(marked, key=lambda phase: phase.start)
    finder = _Finder()
    for at, kind, mode in _moments(timeline, marks):
        finder.meet(at, kind, mode)
    last = max((op.end for op in timeline.ops), default=0)
    return finder.finish(int(max(last, max((event.at for event in timeline.memory), default=0))) + 1)


def _moments(timeline: Timeline, marks: list[Mark | None]) -> list[tuple[int, str, str]]:
    """Return (rank, what begins or ends, its mode or step) of outermost modules and nodes, optimizer and step marks."""
    found: list[tuple[int, str, str]] = []
    in_module: list[bool] = []  # the op is a module's, or inside one
    in_node: list[bool] = []
    # Where the run counts its steps, they are what counts, but for the beginning of the first.
    told = any(mark is not None and mark.kind == "step" and mark.finer == TOLD for mark in marks)
    for op, mark in zip(timeline.ops, marks, strict=True):
        module = op.parent >= 0 and in_module[op.parent]
        node = op.parent >= 0 and in_node[op.parent]
        is_module = mark is not None and mark.kind == "module"
        is_node = op.name.startswith(NODE)
        if mark is not None and mark.kind == "step":
            if not told or mark.finer == TOLD or mark.step == 0:
                found.append((op.start, "step", str(mark.step)))
        elif mark is not None and mark.kind == "saved" and not module and not node:
            # A forward without modules, or a loss after them.
            found.extend([(op.start, "module", TRAINING), (op.end, "module ends", "")])
        elif mark is not None and is_module and not module and not node:
            found.extend([(op.start, "module", mark.finer), (op.end, "module ends", "")])
        elif is_node and not node:
            found.extend([(op.start, "node", ""), (op.end, "node ends", "")])
        elif op.name.startswith(OPTIMIZER):
            found.extend([(op.start, "optimizer", ""), (op.end, "optimizer ends", "")])
        in_module.append(module or is_module)
        in_node.append(node or is_node)
    return sorted(found)


class _Finder:
    """Cuts a run into phases, moment by moment.

    A forward lasts until its backward begins, so that the loss belongs to it; one that no backward follows, until its
    last module returned. A backward lasts until its last node. What is left is init before the first of them, and
    between.
    """

    def __init__(self) -> None:
        self._phases: list[Phase] = []
        self._name = "init"
        self._step = -1
        self._start = 0
        self._until = 0
        """Where the phase ends unless it goes on."""
        self._trains = False
        self._modules = 0
        self._optimizers = 0

    def meet(self, at: int, kind: str, mode: str) -> None:
        if kind == "module":
            self._modules += 1
            name = "eval" if mode == NO_GRAD else "forward"
            if self._name != name:
                self._leave()
                self._switch(name, at)
                self._trains = False
            self._trains = self._trains or mode == TRAINING
        elif kind == "module ends":
            self._modules -= 1
            self._until = at
        elif kind == "node" and not self._modules and self._name != "backward":
            if self._name == "forward":
                self._trains = True
            else:
                self._leave()
            self._switch("backward", at)
        elif kind == "node ends" and self._name == "backward":
            self._until = at
        elif kind == "optimizer":
            self._leave()
            self._optimizers += 1
            self._switch("optimizer", at)
        elif kind == "optimizer ends":
            self._leave()
            self._optimizers -= 1
            self._switch(self._rest(), at)
        elif kind == "step":
            self._leave()
            self._switch(self._rest(), at)
            self._step = int(mode)

    def finish(self, at: int) -> list[Phase]:
        self._leave()
        self._switch("", at)
        return self._phases

    def _rest(self) -> str:
        return "optimizer" if self._optimizers else "between"

    def _leave(self) -> None:
        """End a phase whose end shows only afterwards."""
        if self._name == "forward" and not self._trains:
            self._name = "eval"
        if self._name in ("forward", "eval", "backward"):
            self._switch(self._rest(), self._until)

    def _switch(self, name: str, at: int) -> None:
        if at > self._start:
            self._phases.append(Phase(name=self._name, step=self._step, start=self._start, end=at))
        self._name, self._start = name, at
