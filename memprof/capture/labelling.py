"""Turns a `Timeline` into what is known of each allocation. No torch here: plain values in, plain values out.

The facts come from three places: marks that the capture wrote into the timeline (phases, modules, what autograd saves,
which tensor is what), the op around an allocation, and the tensors that later ops were given, which show what lives at
an address and where it goes.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from memprof.capture.marks import Mark, parse
from memprof.categories.category import Category

if TYPE_CHECKING:
    from memprof.capture.timeline import Op, TensorSight, Timeline

__all__ = ["Label", "Phase", "label"]

FOREVER = 1 << 62
"""Rank of the free of what is never freed."""
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
OUTSIDE = "(no op)"
"""Where no op ran, when a Python number becomes a tensor, say. That nothing ran is known, so it is not unknown."""
CONVERT = "aten::_to_copy"
COPIES = frozenset({CONVERT, "aten::clone"})
"""Ops whose result holds the values of their first tensor."""
DEQUANTIZE = ("bitsandbytes::dequantize_",)
"""Beginnings of the names of ops whose result is a quantized tensor at full precision."""
FUSED = frozenset({"bitsandbytes::gemm_4bit", "bitsandbytes::gemv_4bit"})
"""Ops that may rebuild the quantized weight, their second tensor, in a buffer of their own; CUDA has no op for that
(``_dequant_linear_fallback`` in bitsandbytes/backends/cuda/ops.py)."""
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
CUBLAS = (4096 * 2 * 1024 + 16 * 8 * 1024, 4096 * 8 * 1024)
"""Bytes of the workspace that a cuBLAS handle keeps, without and with Hopper (``parseChosenWorkspaceSize`` in
aten/src/ATen/cuda/CublasHandlePool.cpp); CUBLAS_WORKSPACE_CONFIG can change them."""
CUBLASLT = 1024 * 1024
"""Bytes of cuBLASLt's workspace (``parseCUDABlasLtWorkspaceSize`` in aten/src/ATen/cuda/CublasHandlePool.cpp)."""
ROOM = 1024 * 1024
"""A block may be larger than what was asked for by as much as is not split off (c10/cuda/CUDACachingAllocator.cpp)."""
NODE = "autograd::engine::evaluate_function: "
"""What the name of an autograd node's range begins with (torch/csrc/autograd/engine.cpp)."""


@dataclass(slots=True, kw_only=True)
class Label:
    """What is known of one allocation."""

    born: int
    """Rank of the allocation."""
    freed: int = FOREVER
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One phase of one step, from rank `start` to rank `end`."""

    name: str
    step: int
    start: int
    end: int


@dataclass(slots=True)
class _Facts:
    """What the walk over the timeline found out about one allocation, before it is judged."""

    op: int
    roles: list[Mark] = field(default_factory=list)
    saved_at: list[int] = field(default_factory=list)
    first: TensorSight | None = None
    exact: TensorSight | None = None
    flows: bool = False
    """It was a gradient that flowed into an autograd node."""
    source: int = -1
    """Allocation that it is a copy of, or was dequantized from; -1 if of none."""
    converted: bool = False
    """The copy is of another dtype (or device) than its source."""
    dequantized: int = -1
    """Op that dequantizes, in which it was allocated; -1 if in none."""


def label(timeline: Timeline) -> tuple[list[Label], list[Phase]]:
    """Label every allocation of `timeline`, in order of birth, and return the run's phases."""
    marks = [parse(op.name) for op in timeline.ops]
    phases = sorted(
        (
            Phase(name=mark.name, step=mark.step, start=op.start, end=op.end)
            for mark, op in zip(marks, timeline.ops, strict=True)
            if mark is not None and mark.kind == "phase"
        ),
        key=lambda phase: phase.start,
    )
    labels, facts = _walk(timeline, marks)
    modules = _Modules(timeline, marks)
    starts = [phase.start for phase in phases]
    backwards = [phase.start for phase in phases if phase.name == "backward"]
    for item, fact in zip(labels, facts, strict=True):
        _place(item, starts, phases)
        item.module = modules.of(fact.op, item.born)
        item.op = _op_name(timeline, marks, fact.op)
        sight = fact.exact or fact.first
        if sight is not None:
            item.dtype, item.shape = sight.dtype, sight.shape
        item.saved = bool(fact.saved_at)
    # A copy's category follows from its source's, and a source is always born before its copy.
    for item, fact in zip(labels, facts, strict=True):
        source = labels[fact.source] if fact.source >= 0 else None
        _judge(item, fact, source=source, timeline=timeline, backwards=backwards, phases=phases)
    return labels, phases


def _walk(timeline: Timeline, marks: list[Mark | None]) -> tuple[list[Label], list[_Facts]]:
    """Pair allocations with frees, and give each the tensors and marks that were seen at its address while it lived."""
    labels: list[Label] = []
    facts: list[_Facts] = []
    live: dict[int, int] = {}
    sources: dict[int, int] = {}  # op that copies or dequantizes -> allocation that it reads
    # Memory events and op starts, in order; ranks are unique.
    moments: list[tuple[int, int]] = [(event.at, -1 - row) for row, event in enumerate(timeline.memory)]
    moments.extend((op.start, row) for row, op in enumerate(timeline.ops) if op.tensors)
    moments.sort()
    for _, row in moments:
        if row < 0:
            event = timeline.memory[-1 - row]
            if event.size > 0:
                fact = _Facts(event.op)
                _find_source(fact, timeline, sources)
                live[event.address] = len(labels)
                labels.append(Label(born=event.at, address=event.address, size=event.size))
                facts.append(fact)
            elif event.address in live:
                labels[live.pop(event.address)].freed = event.at
            continue
        op, mark = timeline.ops[row], marks[row]
        if op.name in COPIES or op.name.startswith(DEQUANTIZE):
            sources[row] = live.get(op.tensors[0].address, -1)
        elif op.name in FUSED:
            sources[row] = live.get(op.tensors[1].address, -1) if len(op.tensors) > 1 else -1
        for tensor in op.tensors:
            allocation = live.get(tensor.address)
            if allocation is None:
                continue
            fact = facts[allocation]
            if fact.first is None and tensor.bytes:
                fact.first = tensor
            if mark is not None and mark.kind == "sight":
                fact.roles.append(mark)
                fact.exact = tensor
            elif mark is not None and mark.kind == "saved":
                fact.saved_at.append(op.start)
            elif op.backward:
                fact.flows = True
            if fact.exact is None and tensor.bytes == labels[allocation].size:
                fact.exact = tensor
    return labels, facts


def _find_source(fact: _Facts, timeline: Timeline, sources: dict[int, int]) -> None:
    row = fact.op
    direct = True
    while row >= 0:
        op = timeline.ops[row]
        if op.name.startswith(DEQUANTIZE) or (direct and op.name in FUSED):
            fact.dequantized = row
            fact.source = sources.get(row, -1)
            return
        direct = direct and op.name in PLUMBING
        if op.name in COPIES and fact.source < 0:
            fact.source = sources.get(row, -1)
            fact.converted = op.name == CONVERT
        row = op.parent


def _place(item: Label, starts: list[int], phases: list[Phase]) -> None:
    row = bisect_right(starts, item.born) - 1
    if row < 0:
        return
    phase = phases[row]
    item.step = phase.step
    item.phase = phase.name if item.born < phase.end else "between"


class _Modules:
    """Knows which module an allocation belongs to."""

    def __init__(self, timeline: Timeline, marks: list[Mark | None]) -> None:
        self._timeline = timeline
        self._module: list[str | None] = []
        self._makers: dict[int, list[tuple[int, int]]] = {}
        for row, (op, mark) in enumerate(zip(timeline.ops, marks, strict=True)):
            inherited = self._module[op.parent] if op.parent >= 0 else None
            self._module.append(mark.name if mark is not None and mark.kind == "module" else inherited)
            if op.sequence >= 0 and not op.backward and not op.name.startswith(NODE):
                self._makers.setdefault(op.sequence, []).append((op.start, row))
        for makers in self._makers.values():
            makers.sort()

    def of(self, op: int, born: int) -> str | None:
        """Return the module around `op`; in backward, that of the forward op which made the autograd node."""
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


def _op_name(timeline: Timeline, marks: list[Mark | None], op: int) -> str:
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


def _judge(
    item: Label,
    fact: _Facts,
    *,
    source: Label | None,
    timeline: Timeline,
    backwards: list[int],
    phases: list[Phase],
) -> None:
    """Give `item` its category: the first one, in the order of `Category`, whose definition it meets."""
    # The last word of the highest category: a layer's float weight may become a trained one, never the reverse.
    role = min(reversed(fact.roles), key=lambda role: Category(role.category).code, default=None)
    if role is not None:
        item.parameter = role.name
    category = Category(role.category) if role is not None else Category.UNKNOWN
    around = list(timeline.around(fact.op))
    if category.code <= Category.GRADIENTS.code and role is not None:
        item.category, item.finer = category, role.finer
        if not item.module:
            item.module = _owner(role.name)
        return
    node = next((op for op in around if op.name.startswith(NODE)), None)
    rebuilt = _is_rebuilt(item, fact, timeline)
    quantized = source is not None and source.category is Category.WEIGHTS and source.finer == "quantized"
    copied = fact.dequantized < 0
    copy_of_rebuilt = source is not None and source.category is Category.DEQUANTIZED and copied
    if (rebuilt and item.phase != "init") or copy_of_rebuilt or (quantized and copied):
        item.category = Category.DEQUANTIZED
        item.finer = "backward" if item.phase == "backward" else "forward"
        item.parameter = source.parameter if source is not None else ""
        return
    cast = (
        source is not None
        and source.category in (Category.WEIGHTS, Category.WEIGHT_CASTS)
        and fact.converted
        and copied
        and item.phase not in ("init", "optimizer")
    )
    workspace = _is_workspace(item, fact, around, stays=timeline.device == "cuda")
    if item.phase == "backward" and not cast and not workspace:
        outlives = node is not None and item.freed > node.end
        if node is not None and fact.saved_at:
            item.category, item.finer = Category.ACTIVATIONS, "recomputed"
            return
        if fact.flows or outlives:
            item.category, item.finer = Category.GRADIENTS, "activation"
            return
    if cast and source is not None:
        item.category, item.parameter = Category.WEIGHT_CASTS, source.parameter
        item.finer = source.finer
        return
    if category is Category.INPUTS and role is not None:
        item.category, item.finer = category, role.finer
        return
    if workspace:
        # Before activations: a workspace that stays is alive when backward begins, and is still no activation.
        item.category = Category.WORKSPACE
        item.finer = _library(item, around) if timeline.device == "cuda" else ""
        return
    if item.phase == "forward":
        row = bisect_right(backwards, item.born)
        if row < len(backwards) and item.freed > backwards[row] and _same_step(item, backwards[row], phases):
            item.category = Category.ACTIVATIONS
            item.finer = role.finer if role is not None else "saved" if fact.saved_at else "held"
            return
    if item.phase:
        item.category, item.finer = Category.TEMPORARIES, item.phase


def _same_step(item: Label, backward: int, phases: list[Phase]) -> bool:
    return any(phase.start == backward and phase.step == item.step for phase in phases)


def _is_workspace(item: Label, fact: _Facts, around: list[Op], *, stays: bool) -> bool:
    """Tell memory that a library took for itself: no op was ever given it as a tensor, and no result stays in it.

    `stays`: libraries of this device keep workspaces from call to call.
    """
    if fact.first is not None or fact.roles or fact.saved_at:
        return False
    library = next((op for op in around if op.name.rstrip("_").endswith(LIBRARY)), None)
    return library is not None and (item.freed < library.end or (stays and item.freed == FOREVER))


def _library(item: Label, around: list[Op]) -> str:
    """Name the CUDA library that took a workspace; empty where neither op nor size tells."""
    if any(op.name.rstrip("_").endswith("convolution") for op in around):
        return "cudnn"
    if any(size <= item.size < size + ROOM for size in CUBLAS):
        return "cublas"
    return "cublaslt" if item.size == CUBLASLT else ""


def _is_rebuilt(item: Label, fact: _Facts, timeline: Timeline) -> bool:
    """Tell a rebuilt weight: what a dequantizing op returns, and what an op that multiplies keeps to itself."""
    if fact.dequantized < 0:
        return False
    op = timeline.ops[fact.dequantized]
    return (item.freed < op.end) if op.name in FUSED else (item.freed > op.end)


def _owner(parameter: str) -> str:
    """Return the module's part of a parameter's name."""
    return parameter.rpartition(".")[0]
