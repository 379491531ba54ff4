"""Allocated bytes of every category after every event."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from memprof.categories.category import CATEGORIES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memprof.analysis.account import DeviceAccount

__all__ = ["category_timeline"]


def category_timeline(account: DeviceAccount) -> NDArray[np.int64]:
    """Return bytes of whole blocks by category code and event, shape (10, events + 1); column 0 is before any event.

    Raises
    ------
    AssertionError
        If a column does not add up to the allocator's figure; that is a bug in memprof, never a matter of the file.

    """
    allocations, codes = account.replay.allocations, account.classification.category
    columns = len(account.replay.allocated)
    timeline = np.zeros((len(CATEGORIES), columns), np.int64)
    for code in np.unique(codes).tolist():
        rows = np.flatnonzero(codes == code)
        row = timeline[code]
        np.add.at(row, allocations.born[rows] + 1, allocations.size[rows])
        ends = allocations.freed[rows] + 1
        inside = ends < columns
        np.subtract.at(row, ends[inside], allocations.size[rows][inside])
        np.cumsum(row, out=row)
    assert np.array_equal(timeline.sum(axis=0), account.replay.allocated), "categories do not sum to allocated"
    return timeline
