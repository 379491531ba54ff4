"""``memprof profile``: read a profiler's trace, sum it up, hold it against the allocator, print it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from memprof.errors import InputError, UnsupportedError
from memprof.trace import start
from memprof.trace.kineto_file import load_profile

if TYPE_CHECKING:
    from pathlib import Path

    from memprof.analysis.profile import ProfileSummary
    from memprof.analysis.profile_check import MemoryCheck
    from memprof.analysis.profile_held import Held
    from memprof.analysis.profile_hta import HtaResult
    from memprof.trace.kineto_model import Profile

__all__ = ["run"]

ENDING = ".trace.json.gz"
"""What a capture adds to the name of its snapshot, without that one's ending."""


def run(file: Path, *, snapshot: Path | None, top: int, as_json: bool) -> None:
    """Print what `file` says of time and memory, and whether `snapshot`, or the one beside it, says the same.

    Raises
    ------
    MemprofError
        If a file cannot be read.

    """
    beside = snapshot if snapshot is not None else _beside(file)
    pending = None if beside is None else start(str(beside))  # it is read while the profile is
    profile = load_profile(str(file))
    from memprof.analysis.profile import summarize

    summary = summarize(profile)
    checks: list[MemoryCheck] = []
    held: Held | None = None
    notes = list(profile.notes)
    if pending is not None:
        checks, held = _check(profile, pending.result())
    elif len(profile.memory):
        notes.append("no snapshot of the same run beside it: give --snapshot to hold the two against each other")
    hta = _hta(summary, top, notes) if summary.kernels else None
    if as_json:
        from memprof.report.as_json import to_text
        from memprof.report.profile_json import profile_json

        values = profile_json(summary, checks, held, hta, notes=notes, snapshot=beside)
        sys.stdout.write(to_text(values) + "\n")
        return
    from memprof.report.console import make_console
    from memprof.report.profile import profile_report

    make_console().print(profile_report(summary, checks, held, hta, notes=notes, snapshot=beside, top=top))


def _beside(file: Path) -> Path | None:
    """Return the snapshot of a profile's name; None if there is none."""
    if not file.name.endswith(ENDING):
        return None
    found = file.with_name(file.name.removesuffix(ENDING) + ".pickle")
    return found if found.is_file() else None


def _check(profile: Profile, trace: object) -> tuple[list[MemoryCheck], Held | None]:
    from memprof.analysis.account import open_account
    from memprof.analysis.profile_check import check_memory
    from memprof.analysis.profile_held import held_at_peak
    from memprof.trace.model import Trace

    assert isinstance(trace, Trace)
    accounts = [open_account(trace, device) for device in trace.devices]
    checks = [check_memory(profile, account) for account in accounts]
    for account, check in zip(accounts, checks, strict=True):
        if check.matched and account.device.labels is not None:
            return checks, held_at_peak(account, check.first_event, check.last_event)
    return checks, None


def _hta(summary: ProfileSummary, top: int, notes: list[str]) -> HtaResult | None:
    """Ask HTA; why it has no answer becomes a note, for all the rest stands without it."""
    from memprof.analysis.profile_hta import analyze

    try:
        return analyze(summary, top=top)
    except (UnsupportedError, InputError) as error:
        notes.append(str(error))
        return None
