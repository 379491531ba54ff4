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

__all__ = ["FLOATS", "activated", "casts", "in_float32_norms", "sources_of"]

FLOATS = frozenset({"float32", *HALF})
ACTIVATION_FUNCTIONS = frozenset(
    {f"aten::{name}" for name in ("gelu", "silu", "relu", "sigmoid", "tanh", "leaky_relu")}
)
"""What they return has the dtype of what they get, under autocast too."""
ROOT = "aten::rsqrt"
"""Norms that are written in Python take it; they do so in float32 (``RMSNorm`` of litgpt and of transformers)."""


SOON = 64
"""Allocations before an activation function's within which its input was made."""


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


def activated(view: View) -> dict[int, int]:
    """Return what activation functions made in forward, and of what each: of its size and dtype, and made last."""
    made = view.text("op", ACTIVATION_FUNCTIONS) & view.born_in("forward")
    allocations, known = view.account.replay.allocations, view.account.classification
    order = np.argsort(allocations.born, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    found: dict[int, int] = {}
    for row in np.flatnonzero(made).tolist():
        before = order[max(0, place[row] - SOON) : place[row]][::-1]
        like = (known.dtype[before] == known.dtype[row]) & (allocations.requested[before] == allocations.requested[row])
        like &= allocations.freed[before] > allocations.born[row]
        if np.any(like):
            found[row] = int(before[like][0])
    return found


def in_float32_norms(view: View) -> Mask:
    """Tell what is in float32 because a norm that is written in Python computes so: its own, and what it reads.

    In a run in float32 it reads what was there before; in one in half precision it makes a float32 copy of that, which
    autograd saves in its place.
    """
    known = view.account.classification
    inside = view.text("module", view.texts("module", view.text("op", {ROOT}) & view.born_in("forward")))
    single = view.text("dtype", {"float32"})
    mask = inside & single
    if not np.any(inside):
        return mask
    kept = known.saved & single & view.born_in("forward") & (known.shape >= 0)
    last, within = None, False
    for row in np.argsort(view.account.replay.allocations.born, kind="stable").tolist():
        if inside[row] and not within and last is not None:
            mask[last] = True
        within = bool(inside[row])
        if kept[row] and not within:
            last = row
    return mask
