"""Allocated bytes of every category after every event."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from memprof.categories.category import CATEGORIES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from memprof.analysis.account import DeviceAccount

__all__ = ["category_timeline", "drawn_columns"]


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


def drawn_columns(curves: Sequence[NDArray[np.int64]], limit: int) -> NDArray[np.int64]:
    """Choose the columns of a timeline to draw, so that no extreme of any curve is lost.

    Parameters
    ----------
    curves
        Arrays of one length, such as the rows of `category_timeline`, allocated and reserved.
    limit
        Where there are no more columns than this, all are chosen; else about as many.

    Returns
    -------
    numpy.ndarray
        Rising column numbers: the first and the last, and of each of many equal spans those in which a curve first
        reaches its highest and its lowest value there.

    """
    columns = len(curves[0])
    if columns <= limit:
        return np.arange(columns)
    spans = max(1, limit // (2 * len(curves)))
    edges = np.linspace(0, columns, spans + 1).astype(np.int64)
    chosen = {0, columns - 1}
    for begin, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        for curve in curves:
            part = curve[begin:end]
            chosen |= {begin + int(np.argmax(part)), begin + int(np.argmin(part))}
    return np.array(sorted(chosen), np.int64)
