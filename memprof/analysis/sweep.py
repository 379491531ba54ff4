"""One point of a sweep: what a single capture holds at its peak, boiled down to what growth needs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from memprof.analysis.account import open_account
from memprof.analysis.caller import caller_of
from memprof.analysis.findings.registry import find_all
from memprof.analysis.groups import group_live
from memprof.analysis.moment import step_phases
from memprof.analysis.state import state_at
from memprof.analysis.timeline import category_timeline
from memprof.categories.category import CATEGORIES, Category
from memprof.errors import InputError
from memprof.trace.model import Action

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memprof.analysis.account import DeviceAccount
    from memprof.analysis.findings.finding import Finding
    from memprof.trace.model import Trace

__all__ = ["Amount", "Cause", "Figures", "PeakPlace", "Point", "collapse_layers", "point_of"]

CAUSE_KEYS = ("category", "finer", "module", "op", "dtype", "stack")
_LAYER = re.compile(r"(?<=\.)\d+(?=\.|$)")


class Amount(NamedTuple):
    """Bytes of whole blocks, and what the program asked for in them."""

    size: int
    requested: int


class Cause(NamedTuple):
    """What allocations are for."""

    category: Category
    finer: str | None
    module: str | None
    """With its layers collapsed (``transformer.h.*.mlp``); function and line that asked, where it is in no module."""
    op: str | None
    dtype: str | None


class PeakPlace(NamedTuple):
    """The allocation that reached the peak: when and by what."""

    phase: str | None
    step: int
    module: str | None
    op: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The account of one capture, in bytes."""

    peak: Amount
    first_step: Amount | None
    """Peak of the first step; None where nothing marks steps."""
    steady: Amount | None
    """Peak of the steps that begin after the first ``optimizer.step``; None where there are none."""
    reserved: int | None
    """Highest."""
    device_used: int | None
    """`reserved` and what lies outside the allocator."""
    categories: Mapping[Category, Amount]
    """At the peak; they sum to `peak`."""
    own_maximum: Mapping[Category, int]
    """Each category's own maximum over the run, whenever that was."""
    causes: Mapping[Cause, Amount]
    """At the peak; they sum to `peak`."""
    place: PeakPlace


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One configuration, and what came of it."""

    config: Mapping[str, Any]
    """The recipe's settings; also its name, the source of the capture and the card, as far as they are known."""
    file: str | None
    """Name within the sweep's directory; None where there is none."""
    status: str
    """ok, oom or failed."""
    reason: str | None = None
    figures: Figures | None = None
    """None where it failed. Where it ran out of memory they are those up to then."""
    labelled: bool = False
    source: str | None = None
    environment: Mapping[str, Any] | None = None
    findings: tuple[Finding, ...] = ()
    """What was found at the peak, however few bytes it takes."""


def collapse_layers(module: str | None) -> str | None:
    """Return a module path with the numbers of its layers as ``*``, so that equal layers have one name."""
    return None if module is None else _LAYER.sub("*", module)


def point_of(trace: Trace, name: str) -> Point:
    """Boil a capture down to a point.

    Parameters
    ----------
    trace
        What `memprof.load` returned.
    name
        The file's name, to be kept in the point.

    Raises
    ------
    InputError
        If the file does not say how it was made, or nothing was recorded in it.

    """
    made_by = trace.made_by or {}
    config = made_by.get("config")
    if not isinstance(config, dict):
        raise InputError(
            f"{trace.path} does not say with which configuration it was made: growth needs memprof's captures"
        )
    if not trace.devices:
        raise InputError(f"{trace.path}: no device in it has a segment or an event")
    account = max(
        (open_account(trace, device) for device in trace.devices), key=lambda a: int(a.replay.allocated.max())
    )
    status, reason = "ok", None
    if made_by.get("status") == "oom":
        status, reason = "oom", "out of memory"
    failed = [int(size) for size in account.device.events.size[account.device.events.action == Action.OOM]]
    return Point(
        config={
            "recipe": made_by.get("recipe"),
            "source": trace.source.value,
            "card": (trace.environment or {}).get("card"),
            **config,
        },
        file=name,
        status=status,
        reason=f"{reason}: {failed[-1]:,} B requested" if reason and failed else reason,
        figures=_figures(account),
        labelled=account.device.labels is not None,
        source=trace.source.value,
        environment=trace.environment,
        findings=find_all(account, worth=0.0),
    )


def _figures(account: DeviceAccount) -> Figures:
    replay = account.replay
    state = state_at(account, replay.peak_event)
    reserved = None if replay.reserved is None else int(replay.reserved.max())
    outside = None if state.device_used is None or state.reserved is None else state.device_used - state.reserved
    own = category_timeline(account).max(axis=1)
    causes: dict[Cause, Amount] = {}
    for group in group_live(account, replay.peak_event, CAUSE_KEYS):
        module = collapse_layers(group.module) or caller_of(group.stack)
        cause = Cause(group.category, group.finer, module, group.op, group.dtype)
        before = causes.get(cause, Amount(0, 0))
        causes[cause] = Amount(before.size + group.size, before.requested + group.requested)
    first, steady = _steps(account)
    return Figures(
        peak=Amount(state.allocated, state.requested),
        first_step=first,
        steady=steady,
        reserved=reserved,
        device_used=None if outside is None or reserved is None else reserved + outside,
        categories={
            category: Amount(state.categories[category], state.categories_requested[category])
            for category in CATEGORIES
        },
        own_maximum={category: int(own[category.code]) for category in CATEGORIES},
        causes=causes,
        place=_place(account, replay.peak_event),
    )


def _place(account: DeviceAccount, event: int) -> PeakPlace:
    known = account.classification
    rows = np.flatnonzero(account.replay.allocations.born == event)
    if event < 0 or not len(rows):
        return PeakPlace(None, -1, None, None)
    row = int(rows[0])
    return PeakPlace(
        known.text(known.phase, row),
        int(known.step[row]),
        collapse_layers(known.text(known.module, row)),
        known.text(known.op, row),
    )


def _steps(account: DeviceAccount) -> tuple[Amount | None, Amount | None]:
    """Return the peaks of the first step, and of those that begin after the first optimizer step."""
    phases = [phase for phase in step_phases(account) if phase.step >= 0 and phase.end > phase.begin]
    if not phases:
        return None, None
    first = min(phase.step for phase in phases)
    stepped = [phase.step for phase in phases if phase.phase == "optimizer"]

    def highest(spans: list[tuple[int, int]]) -> Amount | None:
        if not spans:
            return None
        events = [begin + int(np.argmax(account.replay.allocated[begin + 1 : end + 1])) for begin, end in spans]
        event = max(events, key=lambda each: int(account.replay.allocated[each + 1]))
        return Amount(int(account.replay.allocated[event + 1]), int(account.replay.requested[event + 1]))

    return (
        highest([(phase.begin, phase.end) for phase in phases if phase.step == first]),
        highest([(phase.begin, phase.end) for phase in phases if stepped and phase.step > stepped[0]]),
    )
