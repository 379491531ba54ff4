"""The state at one event: the account and its categories, in bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from memprof.categories.category import CATEGORIES, Category

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memprof.analysis.account import DeviceAccount

__all__ = ["State", "state_at"]

UNSPECIFIED = "unspecified"
"""Finer name of what has a category but no finer one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Memory of one device after `event` (-1: before the first). All sizes in bytes of whole blocks but `requested`."""

    event: int
    allocated: int
    requested: int
    pending: int
    reserved: int | None
    device_used: int | None
    """Reserved plus what lies outside the allocator, as the capture last read it; None where nobody read it."""
    managed: int | None
    context: int | None = None
    """Of what lies outside the allocator, this process's: CUDA context and libraries; None where nobody read it."""
    others: int | None = None
    """Of what lies outside the allocator, that of other processes and the driver."""
    categories: Mapping[Category, int]
    categories_requested: Mapping[Category, int]
    counts: Mapping[Category, int]
    """Allocations per category."""
    finer: Mapping[Category, Mapping[str, int]] = field(default_factory=dict)

    @property
    def cached(self) -> int | None:
        """Free bytes in segments: reserved, but neither allocated nor pending."""
        return None if self.reserved is None else self.reserved - self.allocated - self.pending


def state_at(account: DeviceAccount, event: int) -> State:
    """Sum up who holds every byte after `event`.

    Raises
    ------
    AssertionError
        If the categories do not add up to the allocator's figure; that is a bug in memprof, never a matter of the file.

    """
    replay, classification = account.replay, account.classification
    live = replay.allocations.live_at(event)
    codes = classification.category[live].astype(np.int64)
    size, requested = replay.allocations.size[live], replay.allocations.requested[live]
    per_code = _sums(codes, size)
    allocated = int(replay.allocated[event + 1])
    assert sum(per_code) == allocated, f"categories sum to {sum(per_code)}, the allocator says {allocated}"
    reserved = None if replay.reserved is None else int(replay.reserved[event + 1])
    outside = _outside(account)
    context = _context(account) if outside is not None else None
    return State(
        event=event,
        allocated=allocated,
        requested=int(replay.requested[event + 1]),
        pending=int(replay.pending[event + 1]),
        reserved=reserved,
        device_used=None if outside is None or reserved is None else reserved + outside,
        context=context,
        others=None if context is None or outside is None else max(0, outside - context),
        managed=next(
            (stat.managed_bytes for stat in reversed(account.device.stats) if stat.managed_bytes is not None), None
        ),
        categories=dict(zip(CATEGORIES, per_code, strict=True)),
        categories_requested=dict(zip(CATEGORIES, _sums(codes, requested), strict=True)),
        counts=dict(zip(CATEGORIES, np.bincount(codes, minlength=len(CATEGORIES)).tolist(), strict=True)),
        finer=_finer(account, live),
    )


def _sums(
    codes: np.ndarray[tuple[int], np.dtype[np.int64]], size: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> list[int]:
    # np.bincount would sum in float64, which is not exact beyond 2**53.
    sums = np.zeros(len(CATEGORIES), np.int64)
    np.add.at(sums, codes, size)
    return [int(value) for value in sums]


def _finer(account: DeviceAccount, live: np.ndarray[tuple[int], np.dtype[np.int64]]) -> dict[Category, dict[str, int]]:
    classification = account.classification
    key = classification.category[live].astype(np.int64) << 32 | (classification.finer[live] + 1)
    keys, inverse = np.unique(key, return_inverse=True)
    sums = np.zeros(len(keys), np.int64)
    np.add.at(sums, inverse, account.replay.allocations.size[live])
    finer: dict[Category, dict[str, int]] = {category: {} for category in CATEGORIES}
    for value, size in sorted(zip(keys.tolist(), sums.tolist(), strict=True), key=lambda pair: -pair[1]):
        text = (value & 0xFFFFFFFF) - 1
        finer[CATEGORIES[value >> 32]][UNSPECIFIED if text < 0 else classification.texts[text]] = size
    return finer


def _context(account: DeviceAccount) -> int | None:
    """Bytes of this process that no segment holds, as last read: CUDA context and libraries."""
    for stat in reversed(account.device.stats):
        if stat.process_used_bytes is not None and stat.reserved_bytes is not None:
            return max(0, stat.process_used_bytes - stat.reserved_bytes)
    return None


def _outside(account: DeviceAccount) -> int | None:
    """Bytes of the device that no segment holds, as last read: CUDA context, libraries, other processes.

    The reading belongs to the end of the last step; reserved at that moment is the replay's last figure.
    """
    readings = [stat.device_used_bytes for stat in account.device.stats if stat.device_used_bytes is not None]
    if not readings or account.replay.reserved is None:
        return None
    return max(0, readings[-1] - int(account.replay.reserved[-1]))
