"""What each module holds at the peak of the profiled part of a recording."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from memprof.analysis.profile_causes import NO_MODULE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memprof.analysis.account import DeviceAccount

__all__ = ["Held", "held_at_peak"]

ROOT = "(root)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Live bytes at one event of a recording."""

    event: int
    allocated: int
    modules: Mapping[str, int]
    """Bytes of whole blocks by the module that allocated them; they sum to `allocated`."""


def held_at_peak(account: DeviceAccount, first: int, last: int) -> Held:
    """Return who holds what at the highest allocated bytes after any of the events `first` to `last`."""
    event = first + int(np.argmax(account.replay.allocated[first + 1 : last + 2]))
    known, allocations = account.classification, account.replay.allocations
    live = allocations.live_at(event)
    names = ["", *known.texts]
    sums = np.zeros(len(names), np.int64)
    np.add.at(sums, known.module[live] + 1, allocations.size[live])
    modules: dict[str, int] = {}
    for row in np.flatnonzero(sums).tolist():
        name = NO_MODULE if row == 0 else names[row] or ROOT
        modules[name] = modules.get(name, 0) + int(sums[row])
    return Held(event=event, allocated=int(account.replay.allocated[event + 1]), modules=modules)
