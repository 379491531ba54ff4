"""Gives an allocation its category: the first one, in the order of `Category`, whose definition it meets."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from memprof.capture.facts import FOREVER
from memprof.capture.phases import NODE
from memprof.categories.category import Category

if TYPE_CHECKING:
    from memprof.capture.facts import Facts, Label
    from memprof.capture.marks import Mark
    from memprof.capture.phases import Phase
    from memprof.capture.timeline import Op, Timeline

__all__ = ["CUBLAS", "Judge", "by_sight"]

LIBRARY = (
    "mm",
    "bmm",
    "addmm",
    "baddbmm",
    "addmv",
    "mv",
    "dot",
    "matmul",
    "linear",
    "gemm",
    "convolution",
    "scaled_mm",
)
"""Ends of the names of ops that hand over to cuBLAS, cuBLASLt and cuDNN, which take workspaces of their own."""
GATHERED = Category.WEIGHTS, "gathered"
SHARDING = {
    "FSDP::all_gather": GATHERED,
    "FSDP::post_backward_reduce": (Category.GRADIENTS, "bucket"),
}
"""What ``fully_shard`` allocates in its ranges, by the beginning of their names
(torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py): whole parameters, and gradients to be reduced."""
CUBLAS = (4096 * 2 * 1024 + 16 * 8 * 1024, 4096 * 8 * 1024)
"""Bytes of the workspace that a cuBLAS handle keeps, without and with Hopper (``parseChosenWorkspaceSize`` in
aten/src/ATen/cuda/CublasHandlePool.cpp); CUBLAS_WORKSPACE_CONFIG can change them."""
CUBLASLT = 1024 * 1024
"""Bytes of cuBLASLt's workspace (``parseCUDABlasLtWorkspaceSize`` in aten/src/ATen/cuda/CublasHandlePool.cpp)."""
ROOM = 1024 * 1024
"""A block may be larger than what was asked for by as much as is not split off (c10/cuda/CUDACachingAllocator.cpp)."""


class Judge:
    """Decides on the allocations of one timeline.

    Parameters
    ----------
    marked
        The run said itself what its phases and inputs are; else inputs are found from their use.
    unfinished
        The run ended before it wanted to: a backward may be missing.
    """

    def __init__(self, timeline: Timeline, phases: list[Phase], *, marked: bool, unfinished: bool) -> None:
        self._timeline = timeline
        self._phases = phases
        self._marked = marked
        self._starts = [phase.start for phase in phases]
        self._backwards = [phase.start for phase in phases if phase.name == "backward"]
        forwards = [phase.start for phase in phases if phase.name in ("forward", "backward")]
        self._cut_off = forwards[-1] if forwards and unfinished else FOREVER
        self._recomputed = self._recomputations()

    def decide(self, item: Label, fact: Facts, *, source: Label | None) -> None:
        """Set category, finer category, parameter name and, where only that tells it, the module of `item`.

        `source` is what `item` is a copy of, or was dequantized from, already decided.
        """
        role = _role(fact)
        if role is not None:
            item.parameter = role.name
            if role.finer in ("adapter", "base") and self._sharding(item, fact) == GATHERED:
                item.finer = "gathered"
        category = Category(role.category) if role is not None else Category.UNKNOWN
        if category.code <= Category.GRADIENTS.code and role is not None:
            item.category, item.finer = category, item.finer or role.finer
            if not item.module:
                item.module = role.name.rpartition(".")[0]
            return
        sharding = self._sharding(item, fact)
        if sharding is not None:
            item.category, item.finer = sharding
            return
        if fact.bucket:
            item.category, item.finer = Category.GRADIENTS, "bucket"
            return
        if self._dequantized(item, fact, source):
            item.category = Category.DEQUANTIZED
            item.finer = "backward" if item.phase == "backward" else "forward"
            item.parameter = source.parameter if source is not None else ""
            return
        around = list(self._timeline.around(fact.op))
        cast = (
            source is not None
            and source.category in (Category.WEIGHTS, Category.WEIGHT_CASTS)
            and fact.converted
            and fact.dequantized < 0
            and item.phase not in ("init", "optimizer")
        )
        workspace = _is_workspace(item, fact, around, stays=self._timeline.device == "cuda")
        if item.phase == "backward" and not cast and not workspace and self._flows(item, fact):
            return
        if cast and source is not None:
            item.category, item.finer, item.parameter = Category.WEIGHT_CASTS, source.finer, source.parameter
            return
        if category is Category.INPUTS and role is not None:
            item.category, item.finer = category, role.finer
            return
        if not self._marked and item.phase in ("init", "between") and fact.into_forward:
            item.category = Category.INPUTS
            return
        if workspace:
            # Before activations: a workspace that stays is alive when backward begins, and is still no activation.
            item.category = Category.WORKSPACE
            item.finer = _library(item, around) if self._timeline.device == "cuda" else ""
            return
        if item.phase == "forward" and self._reaches_backward(item):
            item.category = Category.ACTIVATIONS
            item.finer = "saved" if fact.saved_at else "held"
            if role is not None:
                item.finer = role.finer
            elif fact.logits:
                item.finer = "logits"
            return
        if item.phase and item.born >= 0:
            item.category, item.finer = Category.TEMPORARIES, item.phase

    def _sharding(self, item: Label, fact: Facts) -> tuple[Category, str] | None:
        """Tell what FSDP2 gathers and reduces: what outlives the range in which it was allocated."""
        for around in self._timeline.around(fact.op):
            for name, verdict in SHARDING.items():
                if around.name.startswith(name):
                    return verdict if item.freed > around.end else None
        return None

    def _flows(self, item: Label, fact: Facts) -> bool:
        """Decide on what a node made in backward and left: a recomputed activation, or a flowing gradient."""
        row, node = fact.op, fact.op
        while node >= 0 and not self._timeline.ops[node].name.startswith(NODE):
            node = self._timeline.ops[node].parent
        recomputing = self._recomputing(row, node)
        if node >= 0 and (fact.saved_at or (recomputing and item.freed > self._recomputed[node])):
            item.category, item.finer = Category.ACTIVATIONS, "recomputed"
            return True
        if fact.flows or (node >= 0 and not recomputing and item.freed > self._timeline.ops[node].end):
            item.category, item.finer = Category.GRADIENTS, "activation"
            return True
        return False

    def _recomputing(self, row: int, node: int) -> bool:
        """Tell an op that makes autograd nodes while a node runs: checkpointing runs a forward again."""
        while row >= 0 and row != node:
            op = self._timeline.ops[row]
            if op.sequence >= 0 and not op.backward:
                return True
            row = op.parent
        return False

    def _recomputations(self) -> dict[int, int]:
        """Return, for every node in which a forward is run again, where that ends."""
        ops = self._timeline.ops
        node_of: list[int] = []
        ends: dict[int, int] = {}
        for row, op in enumerate(ops):
            if op.name.startswith(NODE):
                node_of.append(row)
                continue
            node = node_of[op.parent] if op.parent >= 0 else -1
            node_of.append(node)
            if node >= 0 and op.sequence >= 0 and not op.backward:
                ends[node] = max(ends.get(node, 0), op.end)
        return ends

    def _reaches_backward(self, item: Label) -> bool:
        """Tell what a forward leaves to its backward, also where the run ended before it came."""
        row = bisect_right(self._backwards, item.born)
        if row < len(self._backwards) and item.freed > self._backwards[row]:
            begins = self._backwards[row]
            phase = self._phases[bisect_right(self._starts, begins) - 1]
            return phase.step == item.step
        return row == len(self._backwards) and item.freed == FOREVER and item.born > self._cut_off

    def _dequantized(self, item: Label, fact: Facts, source: Label | None) -> bool:
        rebuilt = False
        if fact.dequantized >= 0:
            # What a dequantizing op returns, and what an op that multiplies keeps to itself.
            end = self._timeline.ops[fact.dequantized].end
            rebuilt = item.freed < end if fact.fused else item.freed > end
        copied = fact.dequantized < 0
        quantized = source is not None and source.category is Category.WEIGHTS and source.finer == "quantized"
        copy_of_rebuilt = source is not None and source.category is Category.DEQUANTIZED and copied
        return (rebuilt and item.phase != "init") or copy_of_rebuilt or (quantized and copied)


def by_sight(item: Label, fact: Facts) -> None:
    """Set what the sights of `item` alone tell: its category if it was seen in a role, else none."""
    role = _role(fact)
    if role is None:
        return
    item.category, item.finer, item.parameter = Category(role.category), role.finer, role.name
    if not item.module:
        item.module = role.name.rpartition(".")[0]


def _role(fact: Facts) -> Mark | None:
    """Return the last word of the highest category.

    A layer's float weight may become a trained one, never the reverse.
    """
    return min(reversed(fact.roles), key=lambda role: Category(role.category).code, default=None)


def _is_workspace(item: Label, fact: Facts, around: list[Op], *, stays: bool) -> bool:
    """Tell memory that a library took for itself: no op was ever given it as a tensor, and no result stays in it.

    `stays`: libraries of this device keep workspaces from call to call.
    """
    if fact.first is not None or fact.roles or fact.saved_at:
        return False
    library = next((op for op in around if "::" in op.name and op.name.rstrip("_").endswith(LIBRARY)), None)
    return library is not None and (item.freed < library.end or (stays and item.freed == FOREVER))


def _library(item: Label, around: list[Op]) -> str:
    """Name the CUDA library that took a workspace; empty where neither op nor size tells."""
    if any(op.name.rstrip("_").endswith("convolution") for op in around):
        return "cudnn"
    if any(size <= item.size < size + ROOM for size in CUBLAS):
        return "cublas"
    return "cublaslt" if item.size == CUBLASLT else ""
