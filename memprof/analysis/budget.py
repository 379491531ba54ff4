"""Memory budgets: what a run may hold, what it held, and what it was that went over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from memprof.allocator.driver import AddressOrder
from memprof.allocator.whatif import what_if
from memprof.analysis.account import open_account
from memprof.analysis.caller import caller_of
from memprof.analysis.groups import group_live
from memprof.analysis.moment import oom_events
from memprof.analysis.state import State, state_at
from memprof.analysis.sweep import collapse_layers
from memprof.analysis.timeline import category_timeline
from memprof.categories.category import CATEGORIES, Category
from memprof.errors import InputError, MemprofError, UsageError
from memprof.trace.model import Source
from memprof.units import parse_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from memprof.analysis.account import DeviceAccount
    from memprof.trace.model import Trace

__all__ = ["Budget", "Check", "DeviceCheck", "Holder", "Spent", "check_budgets", "parse_budgets"]

TOTALS = ("reserved", "allocated", "device")
"""Budgets that are no categories: what was reserved, what of that was in use, what the whole card had in use."""
TOTAL = "total"
"""A budget without a name: reserved, or allocated where there is no caching allocator."""
HOLDER_KEYS = ("category", "finer", "module", "op", "dtype", "parameter", "stack")


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What may be held at any moment."""

    what: str
    """`TOTAL`, one of `TOTALS`, or a category's name."""
    limit: int
    """Bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Allocations of one cause at one moment."""

    category: Category
    finer: str | None
    place: str | None
    """Module with its layers collapsed, or who asked."""
    op: str | None
    dtype: str | None
    size: int
    """Bytes of whole blocks."""
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """One budget of one device, and what became of it."""

    budget: Budget
    what: str
    """One of `TOTALS` or a category: what the budget was taken to be for."""
    size: int
    """Most that was held at one moment, in bytes."""
    event: int
    """The moment: the state after this event."""
    failed: int
    """Bytes of a request that failed at that moment, which are in `size`; 0 if there was none."""
    state: State
    holders: tuple[Holder, ...]
    """What was held at that moment, of the category if it is one, largest first; all of it."""

    @property
    def over(self) -> int:
        """Bytes beyond the budget; negative where some are left."""
        return self.size - self.budget.limit


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCheck:
    """One device."""

    account: DeviceAccount
    spent: tuple[Spent, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One file."""

    trace: Trace
    devices: tuple[DeviceCheck, ...]
    ended: str | None
    """Why the run did not come to its end; None if it did, or if the file does not say."""

    @property
    def passed(self) -> bool:
        """Whether every budget was kept, by a run that came to its end."""
        return self.ended is None and all(spent.over <= 0 for device in self.devices for spent in device.spent)


def parse_budgets(texts: Iterable[str]) -> tuple[Budget, ...]:
    """Read ``15GB`` or ``activations=8GB``.

    Raises
    ------
    UsageError
        If one is neither, or two are for the same.

    """
    budgets: dict[str, Budget] = {}
    known = (*TOTALS, *(category.value for category in CATEGORIES))
    for text in texts:
        name, equals, size = text.partition("=")
        what = name.strip().lower() if equals else TOTAL
        if equals and what not in known:
            raise UsageError(f"--budget {text}: {name!r} is nothing that is counted; it can be {', '.join(known)}")
        try:
            limit = parse_bytes(size if equals else text)
        except MemprofError as error:
            raise UsageError(f"--budget {text}: {error}") from None
        if what in budgets:
            raise UsageError(f"--budget {text}: there is another budget for {what}; give one")
        budgets[what] = Budget(what=what, limit=limit)
    if not budgets:
        raise UsageError("no budget: give --budget 15GB, or --budget activations=8GB")
    return tuple(budgets.values())


def check_budgets(trace: Trace, budgets: Iterable[Budget], *, device: int | None = None) -> Check:
    """Hold every device of `trace`, or only `device`, against the budgets.

    Raises
    ------
    InputError
        If nothing was recorded of the device, or the file does not have what a budget is for.

    """
    chosen = [each for each in trace.devices if device is None or each.device == device]
    if not chosen:
        raise InputError(f"{trace.path}: nothing was recorded{'' if device is None else f' of device {device}'}")
    wanted = tuple(budgets)
    devices = []
    for each in chosen:
        account = open_account(trace, each)
        devices.append(DeviceCheck(account=account, spent=tuple(_spend(account, budget) for budget in wanted)))
    status = (trace.made_by or {}).get("status")
    return Check(
        trace=trace,
        devices=tuple(devices),
        ended=None if status in (None, "ok") else "it ran out of memory" if status == "oom" else str(status),
    )


def _spend(account: DeviceAccount, budget: Budget) -> Spent:
    what = budget.what
    if what == TOTAL:
        what = "allocated" if account.replay.reserved is None else "reserved"
    if what in TOTALS:
        held, more = _total(account, what)
        category = None
    else:
        category = next(each for each in CATEGORIES if each.value == what)
        held, more = category_timeline(account)[category.code], 0
    # Reserved stays at its highest for long: the moment to look at is the one at which most of it was in use.
    highest = np.where(held == held.max(), account.replay.allocated, -1)
    event, failed = int(np.argmax(highest)) - 1, 0
    size = int(held[event + 1]) + more
    for oom in oom_events(account) if category is None else ():
        asked = int(account.device.events.size[oom])
        if int(held[oom + 1]) + more + asked > size:
            size, event, failed = int(held[oom + 1]) + more + asked, oom, asked
    return Spent(
        budget=budget,
        what=what,
        size=size,
        event=event,
        failed=failed,
        state=state_at(account, event),
        holders=_holders(account, event, category),
    )


def _total(account: DeviceAccount, what: str) -> tuple[NDArray[np.int64], int]:
    """Return a total after every event, and what is to be added to it."""
    if what == "allocated":
        return account.replay.allocated, 0
    reserved = account.replay.reserved
    if reserved is None:
        raise InputError(
            f"{account.trace.path}: --budget {what} needs a caching allocator, and the CPU has none; "
            "use --budget allocated=SIZE"
        )
    more = _unlucky(account)
    if what == "reserved":
        return reserved, more
    state = state_at(account, account.replay.peak_event)
    if state.device_used is None or state.reserved is None:
        raise InputError(
            f"{account.trace.path} does not say how much of the device was in use; use --budget reserved=SIZE"
        )
    return reserved, more + state.device_used - state.reserved


def _unlucky(account: DeviceAccount) -> int:
    """Return what a simulated run would reserve more, if the driver placed segments otherwise."""
    if account.trace.source is not Source.SIMULATED or account.replay.reserved is None:
        return 0
    settings = account.trace.settings
    answer = what_if(account.device, settings, settings, Source.SIMULATED, orders=tuple(AddressOrder))
    return max(0, answer.reserved_range[1] - int(account.replay.reserved.max()))


def _holders(account: DeviceAccount, event: int, category: Category | None) -> tuple[Holder, ...]:
    found: dict[tuple[Category, str | None, str | None, str | None, str | None], tuple[int, int]] = {}
    for group in group_live(account, event, HOLDER_KEYS):
        if category is not None and group.category is not category:
            continue
        place = collapse_layers(group.module or group.parameter) or caller_of(group.stack)
        key = (group.category, group.finer, place, group.op, group.dtype)
        size, count = found.get(key, (0, 0))
        found[key] = (size + group.size, count + group.count)
    holders = [
        Holder(category=key[0], finer=key[1], place=key[2], op=key[3], dtype=key[4], size=size, count=count)
        for key, (size, count) in found.items()
    ]
    return tuple(sorted(holders, key=lambda holder: -holder.size))
