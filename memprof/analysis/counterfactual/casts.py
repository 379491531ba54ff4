"""Which tensor a cast was made of: at the moment of the cast it is alive, and has as many elements or more."""

from __future__ import annotations

from collections import defaultdict
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from memprof.analysis.findings.view import HALF, TO_COPY
from memprof.categories.category import Category

if TYPE_CHECKING:
    from memprof.analysis.findings.view import Mask, View

__all__ = ["FLOATS", "casts", "sources_of"]

FLOATS = frozenset({"float32", *HALF})


def casts(view: View) -> Mask:
    """Tell what forward or backward cast from one floating type to another, but for weights."""
    made = view.text("op", {TO_COPY}) & view.text("dtype", FLOATS) & (view.account.classification.shape >= 0)
    return made & (view.born_in("forward") | view.born_in("backward")) & ~view.of(Category.WEIGHT_CASTS)


def sources_of(view: View, wanted: Mask) -> dict[int, int]:
    """Return the source of each cast in `wanted` whose source can be told.

    It is of another floating type than the cast, and was made last of those that have its shape. Each is the source of
    one cast only: where there is none left, the cast is of a view, of what was made last and has as many elements or
    more.
    """
    allocations, known = view.account.replay.allocations, view.account.classification
    floating = view.text("dtype", FLOATS) & (known.shape >= 0)
    floating &= ~view.of(Category.WEIGHTS, Category.WEIGHT_CASTS, Category.OPTIMIZER_STATE)
    elements = {row: prod(view.shape(row) or ()) for row in np.flatnonzero(floating).tolist()}
    born, freed = allocations.born.tolist(), allocations.freed.tolist()
    dtype, shape = known.dtype.tolist(), known.shape.tolist()
    found: dict[int, int] = {}
    used: set[int] = set()
    alive: list[int] = []  # in the order of birth, as the next
    of_shape: dict[int, list[int]] = defaultdict(list)

    def last(members: list[int], cast: int) -> int | None:
        members[:] = [row for row in members if freed[row] > born[cast] and row not in used]
        fits = (row for row in reversed(members) if dtype[row] != dtype[cast] and elements[row] >= elements[cast])
        return next(fits, None)

    for row in np.argsort(allocations.born, kind="stable").tolist():
        if row not in elements:
            continue
        if wanted[row]:
            source = last(of_shape[shape[row]], row)
            source = last(alive, row) if source is None else source
            if source is not None:
                found[row] = source
                used.add(source)
        alive.append(row)
        of_shape[shape[row]].append(row)
    return found
