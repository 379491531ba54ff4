"""Which tensors make one configuration grow faster than another: causes of both, matched, and what they cost more."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from memprof.analysis.sweep import Amount, Cause

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from memprof.analysis.sweep import Figures
    from memprof.categories.category import Category

__all__ = ["CauseDifference", "cause_differences"]

NOTHING = Amount(0, 0)
# From the surest match to the least sure; a cause without a module is only matched with one of the same op.
MATCHES: tuple[Callable[[Cause], Hashable], ...] = (
    lambda cause: cause,
    lambda cause: (cause.category, cause.finer, cause.module, cause.op),
    lambda cause: (cause.category, cause.finer, cause.module) if cause.module else None,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseDifference:
    """One cause in two configurations; where only one has it, the other side's texts are None and its bytes nothing."""

    category: Category
    finer: str | None
    module: str | None
    op_a: str | None
    op_b: str | None
    dtype_a: str | None
    dtype_b: str | None
    per_sample: Fraction
    """Bytes that b needs more per unit of what grows."""
    size: int
    """Bytes that b needs more at the right end of the interval."""


def cause_differences(
    a: tuple[Figures, Figures], b: tuple[Figures, Figures], interval: tuple[int, int]
) -> tuple[CauseDifference, ...]:
    """Match the causes of two configurations at two points and say what they cost more, largest per unit first.

    Parameters
    ----------
    a, b
        What was measured at both ends of `interval`.
    interval
        Two points of what grows.

    """
    mine, theirs = (_sizes(*ends) for ends in (a, b))
    pairs: list[tuple[Cause | None, Cause | None]] = []
    left, right = list(mine), list(theirs)
    for match in MATCHES:
        waiting: dict[Hashable, list[Cause]] = defaultdict(list)
        for cause in sorted(right, key=lambda each: theirs[each][1]):
            waiting[match(cause)].append(cause)
        unmatched = []
        for cause in sorted(left, key=lambda each: -mine[each][1]):
            key = match(cause)
            if key is not None and waiting.get(key):
                pairs.append((cause, waiting[key].pop()))
            else:
                unmatched.append(cause)
        left, right = unmatched, [cause for causes in waiting.values() for cause in causes]
    pairs += [(cause, None) for cause in left]
    pairs += [(None, cause) for cause in right]
    differences = [_difference(one, other, mine, theirs, interval) for one, other in pairs]
    return tuple(sorted(differences, key=lambda each: -abs(each.per_sample)))


def _sizes(left: Figures, right: Figures) -> dict[Cause, tuple[int, int]]:
    causes = dict.fromkeys((*left.causes, *right.causes))
    return {cause: (left.causes.get(cause, NOTHING).size, right.causes.get(cause, NOTHING).size) for cause in causes}


def _difference(
    one: Cause | None,
    other: Cause | None,
    mine: Mapping[Cause, tuple[int, int]],
    theirs: Mapping[Cause, tuple[int, int]],
    interval: tuple[int, int],
) -> CauseDifference:
    some = other or one
    assert some is not None
    before, after = mine[one] if one else (0, 0), theirs[other] if other else (0, 0)
    growth = (after[1] - after[0]) - (before[1] - before[0])
    return CauseDifference(
        category=some.category,
        finer=some.finer,
        module=some.module,
        op_a=one and one.op,
        op_b=other and other.op,
        dtype_a=one and one.dtype,
        dtype_b=other and other.dtype,
        per_sample=Fraction(growth, interval[1] - interval[0]),
        size=after[1] - before[1],
    )
