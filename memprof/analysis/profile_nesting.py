"""Which range runs when: the ranges of a profile nested within their threads, and what each takes by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memprof.trace.kineto_model import Kernels, Launches, Profile, Ranges

    Column = NDArray[np.int64]

__all__ = ["Nesting", "nest"]

NOTHING = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Nesting:
    """Ranges of a profile as trees; columns have one row a range."""

    parent: Column
    """Row of the range around; -1 without one."""
    own: Column
    """Nanoseconds that no inner range covers."""
    order: Column
    """Rows such that a parent stands before its children."""
    _moments: dict[int, tuple[Column, Column]]
    """Of each thread: times, and the innermost range from then on."""

    def innermost(self, thread: Column, time: Column) -> Column:
        """Return the innermost range around each moment of a thread; -1 where there is none."""
        found = np.full(len(time), NOTHING, np.int64)
        for number, (times, rows) in self._moments.items():
            here = np.flatnonzero(thread == number)
            place = np.searchsorted(times, time[here], side="right") - 1
            found[here] = np.where(place >= 0, rows[np.maximum(place, 0)], NOTHING)
        return found

    def launched_by(self, kernels: Kernels, launches: Launches, ranges: Ranges) -> Column:
        """Return the range that launched each kernel, by the profiler's number or else by its launch; -1 if unknown."""
        found = _rows_with(ranges.external, kernels.external)
        launch = _rows_with(launches.correlation, kernels.correlation)
        missing = np.flatnonzero((found < 0) & (launch >= 0))
        launch = launch[missing]
        found[missing] = self.innermost(launches.thread[launch], launches.start[launch])
        return found


def _rows_with(keys: Column, wanted: Column) -> Column:
    """Return the first row of `keys` that has each of `wanted`; -1 where none has, or where it is no number."""
    order = np.argsort(keys, kind="stable")
    place = np.searchsorted(keys[order], wanted)
    inside = place < len(keys)
    rows = order[np.where(inside, place, 0)] if len(keys) else np.zeros(len(wanted), np.int64)
    same = inside & (wanted > 0)
    if len(keys):
        same &= keys[rows] == wanted
    return np.where(same, rows, NOTHING)


def nest(profile: Profile) -> Nesting:
    """Nest the ranges of each thread by their times.

    A range that ends after the one it began in counts as its child until that ends.
    """
    ranges = profile.ranges
    count = len(ranges)
    order = np.lexsort((np.arange(count), -ranges.end, ranges.start, ranges.thread))
    parent, own = np.full(count, NOTHING, np.int64), ranges.end - ranges.start
    threads, begins = np.unique(ranges.thread[order], return_index=True)
    moments = {}
    ends = np.append(begins, count)[1:]
    for thread, begin, end in zip(threads.tolist(), begins.tolist(), ends.tolist(), strict=True):
        moments[thread] = _sweep(ranges, order[begin:end], parent, own)
    return Nesting(parent=parent, own=own, order=order, _moments=moments)


def _sweep(ranges: Ranges, rows: Column, parent: Column, own: Column) -> tuple[Column, Column]:
    """Fill `parent` and `own` for the `rows` of one thread; return when the innermost range changes, and to which."""
    starts, ends = ranges.start[rows].tolist(), ranges.end[rows].tolist()
    times: list[int] = []
    inner: list[int] = []
    around: list[tuple[int, int]] = []  # end, row
    for row, start, end in zip(rows.tolist(), starts, ends, strict=True):
        while around and around[-1][0] <= start:
            times.append(around.pop()[0])
            inner.append(around[-1][1] if around else NOTHING)
        if around:
            outer_end, outer = around[-1]
            parent[row] = outer
            end = min(end, outer_end)  # noqa: PLW2901 - what is over cannot hold anything
            own[outer] -= end - start
        times.append(start)
        inner.append(row)
        around.append((end, row))
    while around:
        times.append(around.pop()[0])
        inner.append(around[-1][1] if around else NOTHING)
    return np.array(times, np.int64), np.array(inner, np.int64)
