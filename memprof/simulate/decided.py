"""What an op gives though not all that it reads is known: one number, everywhere.

"All false and x" is false whatever x is, and a mask of ones joined to a mask of ones is one. Two more are taken for
granted, with a caveat: an unknown integer is none of those that it is looked for among (a token is not the one that
ends a text), and an unknown number is of ordinary size (a score is above the -1e9 that stands for "none yet", a token
is none of the timestamps at the end of a vocabulary, a loss is neither infinite nor NaN).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    View = Callable[[torch.Tensor], torch.Tensor | None]
    Note = Callable[[str, str], None]

__all__ = ["Number", "spread_choices", "uniform", "whatever_else"]

Number = bool | int | float

_SCANNED_LIMIT = 4 << 20
"""Bytes of the largest tensor that is looked through for one number."""
_CHOICES_LIMIT = 512
"""Most columns that are experts to choose from rather than words."""
_EXTREME = 1e8
"""Size from which a number is not ordinary: programs write -1e9 or infinity where there is no score yet."""
_EXTREME_WHOLE = 10_000
"""The same of integers, which are tokens, classes and positions."""


def uniform(values: torch.Tensor | None) -> Number | None:
    """Return the number that fills `values`, a tensor on the host; None if there are several, or none is known."""
    if values is None or not values.numel() or values.dtype.is_complex:
        return None
    if any(step and extent > 1 for step, extent in zip(values.stride(), values.size(), strict=True)):
        if values.numel() * values.element_size() > _SCANNED_LIMIT:
            return None
        first, last = values[(0,) * values.dim()], values[(-1,) * values.dim()]
        if not (bool(first == last) and bool((values == first).all())):
            return None
    number: Number = values[(0,) * values.dim()].item()
    return number


def whatever_else(op: Any, args: Sequence[Any], view: View, note: Note) -> Number | None:
    """Return the number that fills the output of `op`, as far as that is decided; None if it is not.

    Parameters
    ----------
    view
        Gives the values of a tensor, where they are known.
    note
        Takes kind and words of a caveat.
    """
    rule = _RULES.get(op._schema.name)
    return None if rule is None else rule(op._schema.name, args, view, note)


def spread_choices(op: Any, args: Sequence[Any], kwargs: dict[str, Any], view: View) -> tuple[torch.Tensor, int] | None:
    """Return the indices that an op chooses by unknown scores, each as often as any other, and how many there are.

    None if it chooses nothing.

    A router of a mixture of experts sends about as many tokens to each expert, above all before it has learnt.
    """
    name = op._schema.name
    scores = args[0] if args else None
    if name not in _CHOOSING or not isinstance(scores, torch.Tensor) or not scores.dtype.is_floating_point:
        return None
    top = name == "aten::topk"
    given = kwargs.get("dim", next(iter(args[1 + top : 2 + top]), -1 if top else None))
    if given is None or not scores.dim() or not scores.numel() or view(scores) is not None:
        return None
    length, count = scores.size(given), args[1] if top else 1
    if length > _CHOICES_LIMIT or scores.numel() == length:
        return None
    rows = scores.numel() // length
    chosen = torch.arange(rows * count).remainder_(length)
    rest = [extent for dim, extent in enumerate(scores.size()) if dim != given % scores.dim()]
    chosen = chosen.view(*rest, count).movedim(-1, given)
    keep = top or kwargs.get("keepdim", next(iter(args[2:3]), False))
    return chosen if keep else chosen.squeeze(given), length


_CHOOSING = ("aten::topk", "aten::argmax", "aten::max")


def _number(value: Any, view: View) -> Number | None:
    if isinstance(value, (bool, int, float)):
        return value
    return uniform(view(value)) if isinstance(value, torch.Tensor) else None


def _absorbed(name: str, args: Sequence[Any], view: View, _note: Note) -> Number | None:
    """One side decides: true "or" x, false "and" x. Generation stops this way, at the length that was asked for."""
    absorbing = "_or" in name
    tensors = [side for side in args[:2] if isinstance(side, torch.Tensor)]
    if absorbing and any(side.dtype != torch.bool for side in tensors):
        return None
    for side in args[:2]:
        if isinstance(side, torch.Tensor):
            known = view(side)
            if known is not None and known.numel() and bool((known.bool() == absorbing).all()):
                return absorbing
        elif isinstance(side, bool) and side == absorbing:
            return absorbing
    return None if absorbing else _product(name, args, view, _note)


def _product(_name: str, args: Sequence[Any], view: View, _note: Note) -> Number | None:
    """Return whether both of two masks are all true."""
    sides = args[:2]
    if not all(
        isinstance(side, bool) or (isinstance(side, torch.Tensor) and side.dtype == torch.bool) for side in sides
    ):
        return None
    numbers = [_number(side, view) for side in sides]
    return None if None in numbers else all(numbers)


def _reduced(_name: str, args: Sequence[Any], view: View, _note: Note) -> Number | None:
    return _number(args[0], view) if args[0].dtype == torch.bool else None


def _filled(_name: str, args: Sequence[Any], _view: View, _note: Note) -> Number | None:
    value = args[1]
    if isinstance(value, torch.Tensor):
        return uniform(value) if value.device.type == "cpu" else None
    return value if isinstance(value, (bool, int, float)) else None


def _joined(_name: str, args: Sequence[Any], view: View, _note: Note) -> Number | None:
    numbers = {_number(part, view) for part in args[0] if part.numel()}
    return numbers.pop() if len(numbers) == 1 else None


def _taken(_name: str, args: Sequence[Any], view: View, _note: Note) -> Number | None:
    """Return the number that is there to pick from, whatever is picked."""
    return _number(args[0], view)


def _chosen(_name: str, args: Sequence[Any], view: View, _note: Note) -> Number | None:
    condition = _number(args[0], view)
    if condition is None or len(args) != 3:
        return None
    return _number(args[1] if condition else args[2], view)


def _looked_for(_name: str, args: Sequence[Any], view: View, note: Note) -> Number | None:
    elements = args[0]
    if not isinstance(elements, torch.Tensor) or elements.dtype.is_floating_point or view(elements) is not None:
        return None
    note("value", "unknown integers are taken as none of those that they are looked for among")
    return False


def _matched(name: str, args: Sequence[Any], view: View, note: Note) -> Number | None:
    """Compare tokens with tokens: what is not known matches nothing, so that a proposed text is not what is written.

    A number is itself, and no infinity, as `torch.isfinite` asks.
    """
    unknown = [side for side in args[:2] if _unknown_float(side, view)]
    if len(unknown) == 2 and _same(*unknown):
        note("value", _FINITE)
        return "::eq" in name
    if len(unknown) == 1:
        limit = _number(args[1] if unknown[0] is args[0] else args[0], view)
        if limit is not None and not abs(limit) < _EXTREME:
            note("value", _FINITE)
            return "::ne" in name
    whole = [isinstance(side, torch.Tensor) and side.dtype in _WHOLE and side.numel() > 0 for side in args[:2]]
    if not all(whole) or all(view(side) is not None for side in args[:2]):
        return None
    note("value", "unknown integers are taken as different when they are compared one by one")
    return "::ne" in name


_WHOLE = (torch.int64, torch.int32)
_FINITE = "unknown numbers are taken as finite"


def _unknown_float(value: Any, view: View) -> bool:
    return (
        isinstance(value, torch.Tensor) and value.dtype.is_floating_point and value.numel() > 0 and view(value) is None
    )


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Tell whether two tensors are one, or show the same memory in the same way."""
    return one is other or (
        one.dtype == other.dtype
        and one.data_ptr() == other.data_ptr()
        and one.size() == other.size()
        and one.stride() == other.stride()
    )


def _infinite(_name: str, args: Sequence[Any], view: View, note: Note) -> Number | None:
    if not _unknown_float(args[0], view):
        return None
    note("value", _FINITE)
    return False


def _compared(name: str, args: Sequence[Any], view: View, note: Note) -> Number | None:
    """Compare something unknown with a number that no ordinary one is beyond."""
    greater = "::g" in name
    for side, other, upwards in ((args[0], args[1], greater), (args[1], args[0], not greater)):
        if not isinstance(side, torch.Tensor) or not (side.dtype.is_floating_point or side.dtype in _WHOLE):
            continue
        extreme = _EXTREME if side.dtype.is_floating_point else _EXTREME_WHOLE
        limit = _number(other, view)
        if limit is not None and abs(limit) >= extreme and side.numel() and view(side) is None:
            kind = "numbers" if side.dtype.is_floating_point else "integers"
            note("value", f"unknown {kind} are taken as smaller in size than {extreme:,.0f} when compared")
            return (limit < 0) == upwards
    return None


_RULES: dict[str, Callable[[str, Sequence[Any], View, Note], Number | None]] = {
    f"aten::{name}": rule
    for rule, names in (
        (_absorbed, "bitwise_or bitwise_or_ logical_or logical_or_ bitwise_and bitwise_and_ logical_and logical_and_"),
        (_product, "mul mul_"),
        (_reduced, "all any"),
        (_infinite, "isnan isinf isposinf isneginf"),
        (_filled, "fill_"),
        (_joined, "cat"),
        (_taken, "clone gather index_select index take"),
        (_chosen, "where"),
        (_looked_for, "isin"),
        (_matched, "eq ne"),
        (_compared, "gt ge lt le"),
    )
    for name in names.split()
}
