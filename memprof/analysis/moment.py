"""Moments of a trace that a user can name: peak, end, oom, event:N, step:N."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from memprof.errors import InputError, UsageError
from memprof.trace.model import Action

if TYPE_CHECKING:
    from memprof.analysis.account import DeviceAccount

__all__ = ["StepPhase", "event_of_moment", "oom_events", "step_phases"]

STEP_MARK = re.compile(r"step ([0-9]{1,9})(?: (\w+))?")
PROFILER_STEP = re.compile(r"ProfilerStep#([0-9]{1,9})")
"""Longer numbers are no steps but names: text of a stranger, which `int` would not take beyond 4,300 digits."""


class StepPhase:
    """A phase of a step: events `begin` up to but not including `end`."""

    __slots__ = ("begin", "end", "phase", "step")

    def __init__(self, step: int, phase: str, begin: int, end: int) -> None:
        self.step, self.phase, self.begin, self.end = step, phase, begin, end


def step_phases(account: DeviceAccount) -> tuple[StepPhase, ...]:
    """List the phases that the capture marked, in order; what comes before the first step has step -1.

    Files of other people have none, except where a profiler wrote ``ProfilerStep#N`` regions: those become whole steps.
    """
    marks = account.device.marks
    count = len(account.device.events)
    phases = []
    if marks:
        bounds = [*(mark.entry for mark in marks[1:]), count]
        for mark, end in zip(marks, bounds, strict=True):
            match = STEP_MARK.fullmatch(mark.name)
            step, phase = (int(match[1]), match[2] or "between") if match else (-1, mark.name)
            phases.append(StepPhase(step, phase, mark.entry, end))
        return tuple(phases)
    time_us = account.device.events.time_us
    starts = [
        (int(match[1]), note.time_us)
        for note in account.device.annotations
        if note.start and (match := PROFILER_STEP.fullmatch(note.name))
    ]
    order = np.maximum.accumulate(time_us) if count else time_us  # time may run backward between threads
    bounds = [int(np.searchsorted(order, time)) for _, time in starts] + [count]
    return tuple(
        StepPhase(step, "step", begin, end)
        for (step, _), begin, end in zip(starts, bounds[:-1], bounds[1:], strict=True)
    )


def oom_events(account: DeviceAccount) -> list[int]:
    """List the events at which a request failed for want of memory."""
    return [int(event) for event in np.flatnonzero(account.device.events.action == Action.OOM)]


def event_of_moment(account: DeviceAccount, moment: str) -> int:
    """Return the event after which the state named by `moment` stands.

    Parameters
    ----------
    account
        The device's account.
    moment
        ``peak`` (first event that reaches the highest allocated bytes), ``end``, ``oom`` (the first request that
        failed), ``event:N`` (N from 0; -1 is the state before any), ``step:N`` (peak within step N).

    Raises
    ------
    UsageError
        If the moment is not one of these.
    InputError
        If the trace does not have it.

    """
    events = len(account.device.events)
    kind, _, number = moment.partition(":")
    if moment == "peak":
        return account.replay.peak_event
    if moment == "end":
        return events - 1
    if moment == "oom":
        ooms = oom_events(account)
        if not ooms:
            raise InputError(
                f"{account.trace.path}: device {account.device.device} never ran out of memory in this trace; "
                "try --at peak"
            )
        return ooms[0]
    if kind == "event" and re.fullmatch(r"-?\d{1,18}", number):
        if not -1 <= int(number) < events:
            raise InputError(
                f"{account.trace.path}: device {account.device.device} has no event {int(number)}: "
                f"its trace has {events:,} events, counted from 0"
            )
        return int(number)
    if kind == "step" and re.fullmatch(r"\d{1,9}", number):
        spans = [phase for phase in step_phases(account) if phase.step == int(number) and phase.end > phase.begin]
        if not spans:
            known = sorted({phase.step for phase in step_phases(account) if phase.step >= 0})
            have = f"it has steps {known[0]} to {known[-1]}" if known else "nothing in it says where a step begins"
            raise InputError(f"{account.trace.path}: no step {int(number)} on device {account.device.device}; {have}")
        begin, end = spans[0].begin, max(phase.end for phase in spans)
        return begin + int(np.argmax(account.replay.allocated[begin + 1 : end + 1]))
    raise UsageError(f"--at {moment!r} is no moment: use peak, end, oom, event:N or step:N")
