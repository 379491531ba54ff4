"""Rules: categories for anybody's snapshot, from stacks, lifetimes and phases. Each verdict has its reason.

What a file without labels cannot say stays unsaid: whether autograd saved a tensor or something else held it, and
whether a short-lived allocation of backward was a flowing gradient or an op's own temporary. Memory that was there
before recording began, without a stack, is unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from memprof.categories.category import Category
from memprof.categories.classification import Classification, TextTable, empty_columns
from memprof.categories.stackfacts import StackFacts, facts_of_stack
from memprof.trace.model import Action

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memprof.allocator.account import Allocations
    from memprof.trace.model import Annotation, DeviceTrace, StackTable

__all__ = ["classify_by_rules"]

WORKSPACE_SIZES = (8_519_680, 33_554_432, 1_048_576)
"""Bytes of cuBLAS's workspace, ``:4096:2:16:8`` and on Hopper ``:4096:8``, and of cuBLASLt's, 1024 KiB
(parseChosenWorkspaceSize and parseCUDABlasLtWorkspaceSize in aten/src/ATen/cuda/CublasHandlePool.cpp)."""


def classify_by_rules(
    device: DeviceTrace, allocations: Allocations, stacks: StackTable, known: Classification | None = None
) -> Classification:
    """Decide each allocation's category from what the file shows, giving the reason.

    What of category and phase is `known` stays as it is.
    """
    rules = _Rules(device, allocations, stacks)
    if known is not None:
        rules.take_over(known)
    return rules.decide()


class _Rules:
    """The columns that the rules look at, and the verdicts as they are made."""

    def __init__(self, device: DeviceTrace, allocations: Allocations, stacks: StackTable) -> None:
        self.allocations = allocations
        self.texts = TextTable()
        self.columns = empty_columns(len(allocations))
        self.category = np.full(len(allocations), Category.UNKNOWN.code, np.uint8)
        self.open = np.ones(len(allocations), np.bool_)
        self.end = len(device.events)
        self.ooms = np.flatnonzero(device.events.action == Action.OOM).tolist()
        used = set(np.unique(allocations.stack).tolist())
        silent = StackFacts(None, None, None)
        facts = [facts_of_stack(stacks.stack(row)) if row in used else silent for row in range(len(stacks))]
        self.phase = self._column([fact.phase for fact in facts])
        self.role = self._column([fact.role for fact in facts])
        self.columns["op"] = self._column([fact.op for fact in facts])
        self._phase_from_optimizer_regions(device)
        self._phase_from_missing_stacks()
        self._phase_from_neighbours()
        self.columns["phase"] = self.phase

    def take_over(self, known: Classification) -> None:
        """Begin with the categories and phases that a capture knows."""
        decided = known.category != Category.UNKNOWN.code
        self.category[decided] = known.category[decided]
        self.open[decided] = False
        rows = np.array([*(self.texts.row(text) for text in known.texts), -1], np.int32)
        told = known.phase >= 0
        self.phase[told] = rows[known.phase[told]]

    def decide(self) -> Classification:
        """Apply the rules in the order of precedence of `Category`."""
        lives_on = self.allocations.freed >= self.end
        before = self.allocations.born < 0
        outlives = self._outlives_own_phase()
        kept = lives_on | outlives
        init, forward, backward = (self._in_phase(name) for name in ("init", "forward", "backward"))
        optimizer, between = self._in_phase("optimizer"), self._in_phase("between")
        role = {
            name: self.role == self.texts.row(name)
            for name in ("state", "weights", "quantized", "batch", "dequantized", "recompute", "workspace", "layer")
        }

        workspace = lives_on & (forward | backward) & np.isin(self.allocations.requested, WORKSPACE_SIZES)
        self._give(
            workspace, Category.WORKSPACE, "cublas", "has the size of a cuBLAS workspace, made at work, never freed"
        )
        self._give(
            role["quantized"] & kept, Category.WEIGHTS, "quantized", "made by a quantizer while the model was moved"
        )
        self._give(
            role["weights"] & kept & ~forward & ~backward,
            Category.WEIGHTS,
            None,
            "made while a model was moved or loaded",
        )
        self._give(role["state"] & kept, Category.OPTIMIZER_STATE, None, "made where the optimizer makes its state")
        self._give(
            backward & outlives & ~role["dequantized"] & ~role["workspace"],
            Category.GRADIENTS,
            "parameter",
            "born in backward and alive after it",
        )
        self._give(
            role["dequantized"] & backward, Category.DEQUANTIZED, "backward", "made by a dequantizer in backward"
        )
        self._give(role["dequantized"], Category.DEQUANTIZED, "forward", "made by a dequantizer")
        self._give(
            forward & role["layer"] & self._half_of_a_weight(),
            Category.WEIGHT_CASTS,
            None,
            "made where a layer with weights ran, with half the bytes of a weight: autocast's copy",
        )
        self._give(role["batch"], Category.INPUTS, None, "made where a batch is moved to the device")
        self._give(role["workspace"], Category.WORKSPACE, None, "a library's workspace function asked for it")
        self._give(role["recompute"] & backward, Category.ACTIVATIONS, "recomputed", "forward run again in backward")
        self._give(
            forward & self._alive_when_backward_begins(),
            Category.ACTIVATIONS,
            "saved_or_held",
            "born in forward and alive when backward begins; saved or held cannot be told without labels",
        )
        self._give(
            forward & self._alive_when_a_request_failed(),
            Category.ACTIVATIONS,
            "saved_or_held",
            "born in forward, which ran out of memory before backward; still alive then",
        )
        self._give(
            before & (self.columns["op"] >= 0),
            Category.UNKNOWN,
            None,
            "live before recording began; only its stack is known",
        )
        for name, phase in (("forward", forward), ("backward", backward), ("optimizer", optimizer), ("init", init)):
            self._give(phase, Category.TEMPORARIES, name, f"none of the other roles; made in {name}")
        self._give(between & ~before, Category.TEMPORARIES, "between", "made by the training script outside the phases")
        self._give(before, Category.UNKNOWN, None, "live before recording began, and has no stack")
        self._give(self.open.copy(), Category.UNKNOWN, None, "has no stack that says anything")
        return Classification(
            by="rules",
            texts=self.texts.freeze(),
            category=self.category,
            saved=np.zeros(len(self.category), np.bool_),
            **self.columns,
        )

    def _column(self, values: list[str | None]) -> NDArray[np.int32]:
        """Spread one text per stack over the allocations."""
        rows = np.array([-1 if value is None else self.texts.row(value) for value in values] + [-1], np.int32)
        return rows[self.allocations.stack]

    def _in_phase(self, name: str) -> NDArray[np.bool_]:
        return np.asarray(self.phase == self.texts.row(name), np.bool_)

    def _give(self, where: NDArray[np.bool_], category: Category, finer: str | None, reason: str) -> None:
        rows = np.flatnonzero(where & self.open)
        self.category[rows] = category.code
        self.columns["reason"][rows] = self.texts.row(reason)
        if finer is not None:
            self.columns["finer"][rows] = self.texts.row(finer)
        self.open[rows] = False

    def _phase_from_optimizer_regions(self, device: DeviceTrace) -> None:
        """Call everything inside an ``Optimizer.step`` region optimizer, also where the stack is missing."""
        born = self.allocations.born
        times = (
            np.where(born >= 0, device.events.time_us[np.maximum(born, 0)], -1) if self.end else np.full(len(born), -1)
        )
        for start, end in _regions(device.annotations, "Optimizer.step#"):
            inside = (times >= start) & (times <= end) & (self.phase < 0)
            self.phase[inside] = self.texts.row("optimizer")

    def _phase_from_missing_stacks(self) -> None:
        """Call an empty stack backward, where the file has Python stacks and a forward came before.

        Autograd runs backward on its own thread, which has no Python frames unless a custom Function runs there.
        """
        born = self.allocations.born
        forward = born[self._in_phase("forward") & (born >= 0)]
        if len(forward):
            bare = (self.allocations.stack < 0) | (self.columns["op"] < 0)
            self.phase[bare & (self.phase < 0) & (born > forward.min())] = self.texts.row("backward")

    def _phase_from_neighbours(self) -> None:
        """Call what the script itself makes after a module's forward, and before backward, forward: the loss."""
        order = np.argsort(self.allocations.born, kind="stable")
        phase = self.phase[order]
        between = phase == self.texts.row("between")
        known = np.where(between | (phase < 0), -1, np.arange(len(phase)))
        last = np.maximum.accumulate(known) if len(known) else known
        after_forward = between & (last >= 0) & (phase[np.maximum(last, 0)] == self.texts.row("forward"))
        self.phase[order[after_forward]] = self.texts.row("forward")

    def _phase_runs(self, name: str) -> NDArray[np.int64]:
        """Return births of the allocations of a phase, in order."""
        born = self.allocations.born
        return np.sort(born[self._in_phase(name) & (born >= 0)])

    def _alive_when_backward_begins(self) -> NDArray[np.bool_]:
        starts = self._phase_runs("backward")
        at = np.searchsorted(starts, self.allocations.born)
        follows = at < len(starts)
        begin = np.full(len(at), np.iinfo(np.int64).max)
        begin[follows] = starts[at[follows]]
        return np.asarray(self.allocations.freed > begin, np.bool_)

    def _half_of_a_weight(self) -> NDArray[np.bool_]:
        """Tell which allocations have half the bytes of a weight, as the 16-bit copy of a 32-bit one has."""
        requested = self.allocations.requested
        weights = np.unique(requested[self.category == Category.WEIGHTS.code])
        return np.asarray(np.isin(requested * 2, weights), np.bool_)

    def _alive_when_a_request_failed(self) -> NDArray[np.bool_]:
        alive = np.zeros(len(self.allocations), np.bool_)
        for event in self.ooms:
            alive[self.allocations.live_at(event)] = True
        return alive

    def _outlives_own_phase(self) -> NDArray[np.bool_]:
        """Tell which allocations are freed only after an allocation of another phase was made."""
        born = self.allocations.born
        order = np.argsort(born, kind="stable")
        phase = self.phase[order]
        change = np.flatnonzero(np.diff(phase)) + 1
        run = np.searchsorted(change, np.arange(len(order)), side="right")
        next_birth = np.append(born[order[change]], self.end)[run]
        ends = np.empty(len(born), np.int64)
        ends[order] = next_birth
        return np.asarray(self.allocations.freed > ends, np.bool_)


def _regions(annotations: tuple[Annotation, ...], prefix: str) -> list[tuple[int, int]]:
    """Pair the ends of the regions whose name starts with `prefix`."""
    opened: list[int] = []
    regions = []
    for annotation in annotations:
        if annotation.name.startswith(prefix):
            if annotation.start:
                opened.append(annotation.time_us)
            elif opened:
                regions.append((opened.pop(), annotation.time_us))
    return regions
