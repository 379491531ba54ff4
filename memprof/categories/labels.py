"""Labels: what our own captures know becomes the classification, unchanged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from memprof.categories.category import Category
from memprof.categories.classification import Classification, empty_columns
from memprof.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memprof.allocator.account import Allocations
    from memprof.trace.model import Labels

__all__ = ["classify_by_labels"]

TEXT_COLUMNS = ("finer", "phase", "module", "op", "dtype", "shape", "parameter")


def classify_by_labels(labels: Labels, allocations: Allocations, texts: tuple[str, ...]) -> Classification:
    """Give each allocation the facts that the capture recorded; what has no label is unknown.

    Raises
    ------
    InputError
        If a label names a category that memprof does not have.

    """
    rows, of = rows_of(labels, allocations)
    codes = np.full(len(texts) + 1, -1, np.int16)  # the last element answers for row -1
    known = {category.value: category.code for category in Category}
    for row in np.unique(labels.category):
        text = texts[row] if row >= 0 else Category.UNKNOWN.value
        if text not in known:
            raise InputError(f"label with unknown category {text[:40]!r}: the file was not written by this memprof")
        codes[row] = known[text]
    category = np.full(len(allocations), Category.UNKNOWN.code, np.uint8)
    category[rows] = codes[labels.category[of]]
    columns = empty_columns(len(allocations))
    for name in (*TEXT_COLUMNS, "step"):
        columns[name][rows] = getattr(labels, name)[of]
    saved = np.zeros(len(allocations), np.bool_)
    saved[rows] = labels.saved[of]
    return Classification(by="labels", texts=texts, category=category, saved=saved, **columns)


def rows_of(labels: Labels, allocations: Allocations) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Match labels with allocations: allocation rows, and for each the label row that is about it."""
    by_event = np.flatnonzero(labels.entry >= 0)
    born_order = np.argsort(allocations.born, kind="stable")
    born = allocations.born[born_order]
    at = np.searchsorted(born, labels.entry[by_event])
    hit = (at < len(born)) & (born[np.minimum(at, len(born) - 1)] == labels.entry[by_event]) if len(born) else at < 0

    before = born_order[: np.searchsorted(born, 0)]
    address_order = before[np.argsort(allocations.address[before], kind="stable")]
    address = allocations.address[address_order]
    by_address = np.flatnonzero(labels.entry < 0)
    at_base = np.searchsorted(address, labels.address[by_address])
    hit_base = at_base < len(address)
    hit_base[hit_base] = address[at_base[hit_base]] == labels.address[by_address][hit_base]

    rows = np.concatenate([born_order[at[hit]], address_order[at_base[hit_base]]])
    return rows, np.concatenate([by_event[hit], by_address[hit_base]])
