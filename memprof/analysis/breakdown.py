"""The breakdown of one file: every byte at the peak, and at any other moment asked for, in its category."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from memprof.analysis.account import open_account
from memprof.analysis.groups import Group, group_live
from memprof.analysis.moment import event_of_moment, oom_events, step_phases
from memprof.analysis.state import State, state_at
from memprof.errors import InputError

if TYPE_CHECKING:
    from memprof.analysis.account import DeviceAccount
    from memprof.trace.model import Trace

__all__ = ["Breakdown", "DeviceBreakdown", "OutOfMemoryEvent", "PhasePeak", "break_down"]

TOP_KEYS = ("category", "finer", "module", "op", "dtype", "shape", "parameter", "stack")


@dataclass(frozen=True, slots=True, kw_only=True)
class PhasePeak:
    """Highest allocated bytes within one phase of one step."""

    step: int
    phase: str
    peak_allocated: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfMemoryEvent:
    """A request that failed."""

    event: int
    requested: int
    free: int
    """Free bytes of the device at that moment."""
    state: State


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """The allocator's own figures in the file, and where ours differ."""

    max_allocated: int | None
    max_reserved: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceBreakdown:
    """One device: its states, phases, failed requests and largest allocations."""

    account: DeviceAccount
    base: State
    peak: State
    end: State
    at: State | None
    """The state asked for with `at`; None where that is the peak."""
    moment: str
    max_reserved: int | None
    reported: Reported
    phases: tuple[PhasePeak, ...]
    oom: tuple[OutOfMemoryEvent, ...]
    top: tuple[Group, ...]
    """Largest groups of like allocations, at the moment asked for."""

    @property
    def shown(self) -> State:
        """The state that the report is about."""
        return self.peak if self.at is None else self.at


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakdown:
    """One file."""

    trace: Trace
    devices: tuple[DeviceBreakdown, ...]


def break_down(trace: Trace, *, at: str = "peak", device: int | None = None, top: int = 10) -> Breakdown:
    """Break down every device of `trace`, or only `device`.

    Parameters
    ----------
    trace
        What `memprof.load` returns.
    at
        The moment to show: ``peak``, ``end``, ``oom``, ``event:N`` or ``step:N``.
    device
        Index of one device; None for all that the file has. A moment that only some devices have (``oom``, ``step``)
        shows those.
    top
        How many groups of largest allocations to list.

    Raises
    ------
    InputError
        If the file has no such device, or no device has such a moment.

    """
    chosen = [each for each in trace.devices if device is None or each.device == device]
    if not chosen:
        have = ", ".join(str(each.device) for each in trace.devices) or "none"
        raise InputError(
            f"{trace.path}: nothing recorded for device {device}; the file has devices: {have}"
            if device is not None
            else f"{trace.path}: no device in it has a segment or an event"
        )
    results, refusals = [], []
    for each in chosen:
        account = open_account(trace, each)
        try:
            results.append(_device(account, at, top))
        except InputError as error:
            refusals.append(error)
    if not results:
        raise refusals[0]
    return Breakdown(trace=trace, devices=tuple(results))


def _device(account: DeviceAccount, at: str, top: int) -> DeviceBreakdown:
    replay = account.replay
    event = event_of_moment(account, at)
    peak = state_at(account, replay.peak_event)
    last = len(account.device.events) - 1
    stats = account.device.stats
    return DeviceBreakdown(
        account=account,
        base=state_at(account, -1),
        peak=peak,
        end=state_at(account, last),
        at=None if event == peak.event else state_at(account, event),
        moment=at,
        max_reserved=None if replay.reserved is None else int(replay.reserved.max()),
        reported=Reported(
            max_allocated=max(
                (s.max_allocated_bytes for s in stats if s.max_allocated_bytes is not None), default=None
            ),
            max_reserved=max((s.max_reserved_bytes for s in stats if s.max_reserved_bytes is not None), default=None),
        ),
        phases=tuple(
            PhasePeak(
                step=phase.step,
                phase=phase.phase,
                peak_allocated=int(np.max(replay.allocated[phase.begin : phase.end + 1])),
            )
            for phase in step_phases(account)
        ),
        oom=tuple(
            OutOfMemoryEvent(
                event=event,
                requested=int(account.device.events.size[event]),
                free=int(account.device.events.address[event]),
                state=state_at(account, event),
            )
            for event in oom_events(account)
        ),
        top=tuple(group_live(account, event, TOP_KEYS, top=top)),
    )
