"""Group what is alive at one event by its cause: category, module, op, dtype, shape, stack."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from memprof.categories.category import CATEGORIES, Category

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memprof.analysis.account import DeviceAccount
    from memprof.trace.model import Frame

__all__ = ["GROUP_KEYS", "Group", "group_live"]

GROUP_KEYS = ("category", "finer", "module", "op", "dtype", "shape", "parameter", "stack", "reason")
"""What allocations can be grouped by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Allocations that agree in every key they were grouped by; other fields are those of its largest member."""

    size: int
    """Bytes of whole blocks."""
    requested: int
    count: int
    category: Category
    finer: str | None
    module: str | None
    op: str | None
    dtype: str | None
    shape: tuple[int, ...] | None
    parameter: str | None
    reason: str | None
    phase: str | None
    step: int
    saved: bool
    stack: tuple[Frame, ...]


def group_live(account: DeviceAccount, event: int, keys: Sequence[str], *, top: int | None = None) -> list[Group]:
    """Group the allocations that are live after `event` by `keys`, largest group first.

    Parameters
    ----------
    account
        The device's account.
    event
        Event after which to look; -1 is before the first.
    keys
        Some of `GROUP_KEYS`.
    top
        How many groups to return; None for all.

    """
    allocations, classification = account.replay.allocations, account.classification
    live = allocations.live_at(event)
    live = live[np.argsort(-allocations.size[live], kind="stable")]  # so that a group's first member is its largest
    columns = [allocations.stack[live] if key == "stack" else getattr(classification, key)[live] for key in keys]
    table = np.stack([column.astype(np.int64) for column in columns], axis=1)
    _, first, inverse = np.unique(table, axis=0, return_index=True, return_inverse=True)
    inverse = inverse.reshape(-1)
    size, requested, count = (np.zeros(len(first), np.int64) for _ in range(3))
    np.add.at(size, inverse, allocations.size[live])
    np.add.at(requested, inverse, allocations.requested[live])
    np.add.at(count, inverse, 1)
    largest = np.argsort(-size, kind="stable")[:top]
    return [_group(account, int(live[first[i]]), int(size[i]), int(requested[i]), int(count[i])) for i in largest]


def _group(account: DeviceAccount, row: int, size: int, requested: int, count: int) -> Group:
    known = account.classification
    shape = known.text(known.shape, row)
    return Group(
        size=size,
        requested=requested,
        count=count,
        category=CATEGORIES[known.category[row]],
        finer=known.text(known.finer, row),
        module=known.text(known.module, row),
        op=known.text(known.op, row),
        dtype=known.text(known.dtype, row),
        shape=None if shape is None else tuple(int(part) for part in shape.split(",") if part),
        parameter=known.text(known.parameter, row),
        reason=known.text(known.reason, row),
        phase=known.text(known.phase, row),
        step=int(known.step[row]),
        saved=bool(known.saved[row]),
        stack=account.trace.stacks.stack(int(account.replay.allocations.stack[row])),
    )
