"""Two accounts of the same memory held against each other: the profiler's memory events, and the replayed allocator.

They come from different code in torch: the profiler is told of each allocation, with the allocator's counters at that
moment; the allocator's own history is what `memprof.allocator` replays. What they have in common is the sequence of
addresses and sizes, allocated and reserved bytes after each, and so their peaks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from memprof.trace.kineto_model import DeviceKind
from memprof.trace.model import Source

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memprof.analysis.account import DeviceAccount
    from memprof.trace.kineto_model import Profile

    Column = NDArray[np.int64]

__all__ = ["MemoryCheck", "check_memory"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCheck:
    """How far the two agree. Sizes are bytes; `profile` figures are the profiler's, `replay` figures the replay's."""

    device: int
    events: int
    """Memory events of this device in the profile."""
    matched: int
    """Of these, how many the recording has too: same order, addresses and block sizes, from the first on."""
    first_event: int
    """Event of the recording that is the profile's first; -1 where nothing matches."""
    last_event: int
    allocated_equal: int
    """Matched events after which both say the same allocated bytes, on the CPU but for `allocated_offset`."""
    allocated_offset: int
    """What the replay says more after the first event.

    On the CPU that is no disagreement: the profiler's counter is the process's, begins with its first profile, and
    misses what is freed between two.
    """
    profile_peak: int
    replay_peak: int
    """Highest allocated bytes of each after the matched events."""
    reserved_equal: int | None
    """As `allocated_equal`; None where the device has no reserved bytes."""
    profile_peak_reserved: int | None
    replay_peak_reserved: int | None
    reason: str
    """Why nothing can be compared; empty where something was."""

    @property
    def _allowed(self) -> int:
        return self.allocated_offset if self.reserved_equal is None else 0

    @property
    def agrees(self) -> bool:
        """Whether every event is in both, and every figure is the same."""
        return (
            0 < self.events == self.matched == self.allocated_equal
            and self.reserved_equal in (None, self.events)
            and self.profile_peak + self._allowed == self.replay_peak
        )


def check_memory(profile: Profile, account: DeviceAccount) -> MemoryCheck:
    """Find the profile's memory events in a recording of the same run, and compare what both say."""
    memory = profile.memory
    device = account.device.device
    if account.trace.source is Source.PROFILED:
        rows = np.flatnonzero(memory.device_kind == DeviceKind.CPU)
    else:
        rows = np.flatnonzero((memory.device_kind == DeviceKind.CUDA) & (memory.device == device))
    if not len(rows):
        kind = "CPU" if account.trace.source is Source.PROFILED else f"CUDA device {device}"
        return _nothing(device, 0, f"the profile has no [memory] events of {kind}")
    if int(memory.address[rows].min()) < 0 or int(memory.allocated[rows].min()) < 0:
        return _nothing(device, len(rows), "the profile's [memory] events have no Addr or no Total Allocated")
    event, address, size = _changes(account)
    if not len(event):
        return _nothing(device, len(rows), "the snapshot has no events: it was taken without a recording")
    times = account.device.events.time_us[event] if profile.epoch else None
    start, matched = _place(
        (address, size), (memory.address[rows], memory.size[rows]), times, int(memory.time[rows[0]]) // 1000
    )
    few = matched < min(_PREFIX, len(rows)) and start + matched < len(event)
    if few:  # addresses are used again: another run in the same process can begin as this one did
        found = f"no more than {matched:,}" if matched else "none"
        reason = (
            f"{found} of the profile's {len(rows):,} [memory] events in a row is in the snapshot: it is of another run"
        )
        return _nothing(device, len(rows), reason)
    rows, event = rows[:matched], event[start : start + matched]
    allocated = account.replay.allocated[event + 1]
    reserved = None if account.replay.reserved is None else account.replay.reserved[event + 1]
    offset = int(allocated[0] - memory.allocated[rows[0]])
    allowed = offset if account.trace.source is Source.PROFILED else 0
    return MemoryCheck(
        device=device,
        events=int(np.count_nonzero(_same_device(profile, rows[0]))),
        matched=matched,
        first_event=int(event[0]),
        last_event=int(event[-1]),
        allocated_equal=int(np.count_nonzero(allocated == memory.allocated[rows] + allowed)),
        allocated_offset=offset,
        profile_peak=int(memory.allocated[rows].max()),
        replay_peak=int(allocated.max()),
        reserved_equal=None if reserved is None else int(np.count_nonzero(reserved == memory.reserved[rows])),
        profile_peak_reserved=None if reserved is None else int(memory.reserved[rows].max()),
        replay_peak_reserved=None if reserved is None else int(reserved.max()),
        reason="",
    )


def _nothing(device: int, events: int, reason: str) -> MemoryCheck:
    return MemoryCheck(
        device=device,
        events=events,
        matched=0,
        first_event=-1,
        last_event=-1,
        allocated_equal=0,
        allocated_offset=0,
        profile_peak=0,
        replay_peak=0,
        reserved_equal=None,
        profile_peak_reserved=None,
        replay_peak_reserved=None,
        reason=reason,
    )


def _same_device(profile: Profile, row: int) -> NDArray[np.bool_]:
    memory = profile.memory
    same: NDArray[np.bool_] = (memory.device_kind == memory.device_kind[row]) & (memory.device == memory.device[row])
    return same


def _changes(account: DeviceAccount) -> tuple[Column, Column, Column]:
    """Return event, address and signed block size of every allocation and free of the recording, in order."""
    allocations = account.replay.allocations
    count = len(account.device.events)
    born, freed = np.flatnonzero(allocations.born >= 0), np.flatnonzero(allocations.freed < count)
    event = np.concatenate([allocations.born[born], allocations.freed[freed]])
    address = np.concatenate([allocations.address[born], allocations.address[freed]])
    size = np.concatenate([allocations.size[born], -allocations.size[freed]])
    order = np.argsort(event, kind="stable")
    return event[order], address[order], size[order]


_PREFIX = 16
"""Events by which places are told apart, before whole sequences are compared."""
_PLACES = 1000


def _place(
    have: tuple[Column, Column], wanted: tuple[Column, Column], times: Column | None, time: int
) -> tuple[int, int]:
    """Return where the wanted sequence of addresses and sizes begins, and how many of its events follow there.

    Where it is there several times, as the steps of a training loop are, the place closest in time is taken.
    """
    address, size = have
    wanted_address, wanted_size = wanted
    places = np.flatnonzero((address == wanted_address[0]) & (size == wanted_size[0]))
    for ahead in range(1, min(_PREFIX, len(wanted_address))):
        inside = places[places + ahead < len(address)]
        here = (address[inside + ahead] == wanted_address[ahead]) & (size[inside + ahead] == wanted_size[ahead])
        if not here.any():
            break
        places = inside[here]
    if times is not None:
        places = places[np.argsort(np.abs(times[places] - time), kind="stable")]
    best = (0, 0)
    for start in places[:_PLACES].tolist():
        count = min(len(address) - start, len(wanted_address))
        same = (address[start : start + count] == wanted_address[:count]) & (
            size[start : start + count] == wanted_size[:count]
        )
        matched = count if same.all() else int(np.argmin(same))
        if matched > best[1]:
            best = (start, matched)
    return best
