"""Two captures at their peaks: what one holds more, tensor by tensor, so that the rows sum to the whole difference."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from memprof.analysis.account import open_account
from memprof.analysis.caller import caller_of
from memprof.analysis.state import State, state_at
from memprof.categories.category import CATEGORIES, Category
from memprof.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from memprof.analysis.account import DeviceAccount
    from memprof.trace.model import Trace

__all__ = ["Change", "Comparison", "Side", "compare"]


class Tensor(NamedTuple):
    """One allocation that is live at the peak."""

    category: Category
    finer: str | None
    module: str | None
    op: str | None
    parameter: str | None
    caller: str | None
    """Function and line that asked for it, where no module or parameter is known."""
    dtype: str | None
    shape: str | None
    size: int

    @property
    def cause(self) -> tuple[str | None, ...]:
        """What it is for, whatever its category, type and size."""
        if self.parameter is not None:
            return ("parameter", self.parameter)
        return ("op", self.module, self.op, self.caller)

    @property
    def elements(self) -> int | None:
        """Product of the shape, which a view of the same tensor shares; None where it is a scalar or not known."""
        parts = (self.shape or "").split(",")
        return prod(map(int, parts)) if all(part.isdecimal() for part in parts) else None

    @property
    def named(self) -> bool:
        """Whether anything at all is known of its cause."""
        return any((self.parameter, self.module, self.op, self.caller))


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Tensors of one cause that are alike on each side; a side that does not have them has no bytes and no type."""

    category_a: Category | None
    category_b: Category | None
    finer_a: str | None
    finer_b: str | None
    module: str | None
    parameter: str | None
    caller: str | None
    op_a: str | None
    op_b: str | None
    dtype_a: str | None
    dtype_b: str | None
    count_a: int
    count_b: int
    bytes_a: int
    bytes_b: int

    @property
    def category(self) -> Category:
        """The category on side b, or on side a where b has none."""
        category = self.category_b or self.category_a
        assert category is not None  # a change has at least one side
        return category

    @property
    def op(self) -> str | None:
        """The op on side b, or on side a where b has none."""
        return self.op_b if self.count_b else self.op_a

    @property
    def difference(self) -> int:
        """Bytes that side b has more."""
        return self.bytes_b - self.bytes_a

    @property
    def paired(self) -> bool:
        """Whether both sides have it."""
        return bool(self.count_a and self.count_b)


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two files: one device at its peak."""

    trace: Trace
    device: int
    state: State
    classified_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The whole difference."""

    a: Side
    b: Side
    changes: tuple[Change, ...]
    """Largest difference first; those without any are among them."""
    notes: tuple[str, ...]

    @property
    def difference(self) -> int:
        """Bytes that b has allocated more at its peak than a at its own."""
        return self.b.state.allocated - self.a.state.allocated


def compare(a: Trace, b: Trace, *, device: int | None = None) -> Comparison:
    """Compare two captures at their peaks.

    Parameters
    ----------
    a, b
        What `memprof.load` returned; labelled or not.
    device
        Index of the device in both; None for the first that each has.

    Raises
    ------
    InputError
        If a file has no such device.
    AssertionError
        If the rows do not sum to the difference; that is a bug in memprof, never a matter of the files.

    """
    accounts = [_account(trace, device) for trace in (a, b)]
    sides = [
        Side(
            trace=account.trace,
            device=account.device.device,
            state=state_at(account, account.replay.peak_event),
            classified_by=account.classification.by,
        )
        for account in accounts
    ]
    labelled = all(side.classified_by == "labels" for side in sides)
    changes = _changes(*(list(_tensors(account, labelled=labelled)) for account in accounts))
    result = Comparison(a=sides[0], b=sides[1], changes=changes, notes=tuple(_notes(sides)))
    total = sum(change.difference for change in changes)
    assert total == result.difference, f"rows sum to {total}, the peaks differ by {result.difference}"
    return result


def _account(trace: Trace, device: int | None) -> DeviceAccount:
    for each in trace.devices:
        if device is None or each.device == device:
            return open_account(trace, each)
    have = ", ".join(str(each.device) for each in trace.devices) or "none"
    raise InputError(f"{trace.path}: nothing recorded for device {device or 0}; the file has devices: {have}")


def _notes(sides: list[Side]) -> Iterable[str]:
    a, b = sides
    if a.classified_by != b.classified_by:
        yield (
            "one file has labels and the other is classified by rules: tensors are matched by the code that asked for "
            "them, and the categories of the two need not agree"
        )
    if a.trace.source is not b.trace.source:
        yield f"the files come from different sources: {a.trace.source.value} and {b.trace.source.value}"


def _tensors(account: DeviceAccount, *, labelled: bool) -> Iterable[Tensor]:
    known, allocations = account.classification, account.replay.allocations
    callers: dict[int, str | None] = {}
    for row in allocations.live_at(account.replay.peak_event).tolist():
        module, parameter = (
            known.text(column, row) if labelled else None for column in (known.module, known.parameter)
        )
        stack = int(allocations.stack[row])
        caller = None
        if module is None and parameter is None:
            if stack not in callers:
                callers[stack] = caller_of(account.trace.stacks.stack(stack))
            caller = callers[stack]
        yield Tensor(
            category=CATEGORIES[known.category[row]],
            finer=known.text(known.finer, row),
            module=module,
            op=known.text(known.op, row) if labelled else None,
            parameter=parameter,
            caller=caller,
            dtype=known.text(known.dtype, row),
            shape=known.text(known.shape, row),
            size=int(allocations.size[row]),
        )


# From the surest match to the least sure: tensors that agree in all that is listed are the same one on both sides.
MATCHES: tuple[Callable[[Tensor], Hashable], ...] = (
    lambda t: (t.category, t.finer, t.cause, t.op, t.dtype, t.shape),
    lambda t: (t.category, t.cause, t.shape) if t.shape else None,  # another type
    lambda t: (t.category, t.cause, t.dtype),  # another size
    lambda t: (t.category, t.cause),
    lambda t: (t.category, t.module, t.elements) if t.module and t.shape else None,  # another op
    lambda t: (t.cause, t.shape) if t.named and t.shape else None,  # another category
    lambda t: t.cause if t.parameter else None,
)


def _changes(a: list[Tensor], b: list[Tensor]) -> tuple[Change, ...]:
    pairs: list[tuple[Tensor | None, Tensor | None]] = []
    for match in MATCHES:
        a, b = _pair(a, b, match, pairs)
    pairs += [(tensor, None) for tensor in a]
    pairs += [(None, tensor) for tensor in b]
    grouped: dict[tuple[object, ...], list[tuple[Tensor | None, Tensor | None]]] = defaultdict(list)
    for one, other in pairs:
        grouped[_alike(one, other)].append((one, other))
    changes = [_change(members) for members in grouped.values()]
    return tuple(sorted(changes, key=lambda change: -abs(change.difference)))


def _pair(
    a: list[Tensor],
    b: list[Tensor],
    match: Callable[[Tensor], Hashable],
    pairs: list[tuple[Tensor | None, Tensor | None]],
) -> tuple[list[Tensor], list[Tensor]]:
    """Move the tensors that `match` into `pairs`, largest first; return what is left on each side."""
    waiting: dict[Hashable, list[Tensor]] = defaultdict(list)
    for tensor in sorted(b, key=lambda each: each.size):
        waiting[match(tensor)].append(tensor)
    left = []
    for tensor in sorted(a, key=lambda each: -each.size):
        key = match(tensor)
        others = waiting.get(key) if key is not None else None
        if others:
            pairs.append((tensor, others.pop()))
        else:
            left.append(tensor)
    return left, [tensor for tensors in waiting.values() for tensor in tensors]


def _alike(one: Tensor | None, other: Tensor | None) -> tuple[object, ...]:
    return tuple(None if each is None else each[:-2] for each in (one, other))


def _change(members: list[tuple[Tensor | None, Tensor | None]]) -> Change:
    one, other = members[0]
    some = other or one
    assert some is not None
    return Change(
        category_a=one and one.category,
        category_b=other and other.category,
        finer_a=one and one.finer,
        finer_b=other and other.finer,
        module=some.module,
        parameter=some.parameter,
        caller=some.caller,
        op_a=one and one.op,
        op_b=other and other.op,
        dtype_a=one and one.dtype,
        dtype_b=other and other.dtype,
        count_a=sum(each is not None for each, _ in members),
        count_b=sum(each is not None for _, each in members),
        bytes_a=sum(each.size for each, _ in members if each),
        bytes_b=sum(each.size for _, each in members if each),
    )
