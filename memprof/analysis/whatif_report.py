"""A recording under other allocator settings, beside what was recorded: what reports say of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memprof.allocator.whatif import what_if
from memprof.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from memprof.allocator.whatif import Failure, WhatIf
    from memprof.analysis.account import DeviceAccount
    from memprof.trace.model import Settings

__all__ = ["OtherSettings", "RetriedRequest", "ask_settings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetriedRequest:
    """A request that failed when the run was recorded, and what would have become of it."""

    event: int
    requested: int
    fits: bool
    fits_always: bool
    """In every order of segment addresses that was tried."""
    fits_never: bool
    free: int
    """Bytes of the device that are left after it was served, or that there were when it failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherSettings:
    """One device's recording, as it was and under other settings. Sizes in bytes."""

    device: int
    recorded: Settings
    other: Settings
    answer: WhatIf
    recorded_allocated: int
    """Allocated peak as recorded; under other settings blocks are cut differently, and it can differ a little."""
    retried: tuple[RetriedRequest, ...]
    lost: tuple[Failure, ...]
    """Requests that were served in the recording and would have failed."""

    @property
    def recorded_excess(self) -> int:
        """Reserved above allocated as recorded, peak to peak: fragmentation and cache."""
        return self.answer.recorded_peak - self.recorded_allocated

    @property
    def excess(self) -> int:
        """The same under the other settings."""
        return self.answer.reserved_peak - self.answer.allocated_peak

    @property
    def control_error(self) -> int:
        """What the same replay under the recorded settings misses of the recorded peak: 0 where it can be trusted."""
        return self.answer.control_peak - self.answer.recorded_peak


def ask_settings(
    account: DeviceAccount, settings: Settings, *, progress: Callable[[float], None] | None = None
) -> OtherSettings:
    """Replay a device's recording under `settings`.

    Parameters
    ----------
    account
        The device's account.
    settings
        What ``PYTORCH_CUDA_ALLOC_CONF`` would have been; it takes the place of all that the recording was made with.
    progress
        Called with the fraction that is done, 0 to 1.

    Raises
    ------
    InputError
        If the recording has no caching allocator, or no event.

    """
    trace, device = account.trace, account.device
    if account.replay.reserved is None:
        raise InputError(
            f"{trace.path}: --alloc-conf needs a recording of a caching allocator, and the CPU has none; "
            "capture with --device cuda or --simulate"
        )
    if not len(device.events):
        raise InputError(
            f"{trace.path}: --alloc-conf replays events, and device {device.device} has none in this file; "
            "record with _record_memory_history, or memprof capture"
        )
    answer = what_if(device, trace.settings, settings, trace.source, progress=progress)
    return OtherSettings(
        device=device.device,
        recorded=trace.settings,
        other=settings,
        answer=answer,
        recorded_allocated=int(account.replay.allocated.max()),
        retried=tuple(_retried(failure, answer) for failure in answer.failures if failure.recorded),
        lost=tuple(failure for failure in answer.failures if not failure.recorded),
    )


def _retried(failure: Failure, answer: WhatIf) -> RetriedRequest:
    everywhere = [
        each.fits
        for failures in answer.failures_by_order
        for each in failures
        if each.recorded and each.event == failure.event
    ]
    return RetriedRequest(
        event=failure.event,
        requested=failure.requested,
        fits=failure.fits,
        fits_always=all(everywhere),
        fits_never=not any(everywhere),
        free=failure.free,
    )
