"""``memprof breakdown``: load a snapshot, break it down, print it."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

from memprof.errors import InputError, UsageError
from memprof.trace import start

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from memprof.analysis.breakdown import Breakdown
    from memprof.analysis.groups import Group
    from memprof.analysis.whatif_report import OtherSettings
    from memprof.trace import PendingTrace
    from memprof.trace.model import Settings, Trace

__all__ = ["run"]

BY = ("module", "op", "dtype", "shape", "parameter", "stack")
SLOW_BYTES = 20_000_000
"""A file larger than this gets a progress bar while it is read."""
SLOW_EVENTS = 100_000
"""A device with more events than this gets a progress bar while it is replayed under other settings."""


def run(
    file: Path, *, at: str, by: str | None, device: int | None, top: int, alloc_conf: str | None, as_json: bool
) -> None:
    """Print the breakdown of `file`.

    Raises
    ------
    InputError
        If the file cannot be read, or has no such device or moment.
    UsageError
        If `by` is no grouping, or `at` no moment.

    """
    if by is not None and by not in BY:
        raise UsageError(f"--by {by!r} is no grouping: use one of {', '.join(BY)}")
    settings = None
    if alloc_conf is not None:
        from memprof.allocator.conf import parse_alloc_conf

        try:
            settings = parse_alloc_conf(alloc_conf)
        except InputError as error:
            raise UsageError(f"--alloc-conf: {error}") from None
    pending = start(str(file))  # another process reads while this one imports
    from memprof.analysis.breakdown import break_down

    if as_json:
        from memprof.report.as_json import breakdown_json, to_text

        result = break_down(pending.result(), at=at, device=device, top=top)
        document = breakdown_json(result, by=by, groups=_groups(result, by, top))
        if settings is not None:
            from memprof.report.whatif import other_settings_json

            for asked in _ask(result, settings):
                each = next(each for each in document["devices"] if each["device"] == asked.device)
                each["alloc_conf"] = other_settings_json(asked)
        sys.stdout.write(to_text(document) + "\n")
        return
    from memprof.analysis.findings import top_finding
    from memprof.report.console import breakdown_report, make_console
    from memprof.report.findings import finding_line

    result = break_down(_read(pending, file), at=at, device=device, top=top)
    groups = _groups(result, by, top)
    asked_of = [] if settings is None else _ask(result, settings)
    console = make_console()
    console.print(breakdown_report(result, by=by, groups=groups))
    if asked_of:
        from memprof.report.whatif import other_settings_parts

        for asked in asked_of:
            console.print(*other_settings_parts(asked, result.trace.source, several=len(result.devices) > 1), sep="\n")
    found = [finding for each in result.devices if (finding := top_finding(each.account)) is not None]
    if found:
        console.print()
        console.print(finding_line(max(found, key=lambda finding: finding.size)))


def _ask(result: Breakdown, settings: Settings) -> list[OtherSettings]:
    """Replay every device under other settings; a device that cannot be is left out, unless none can."""
    from memprof.analysis.whatif_report import ask_settings
    from memprof.report.progress import bar

    answers, refusals = [], []
    for each in result.devices:
        try:
            if len(each.account.device.events) < SLOW_EVENTS or not sys.stderr.isatty():
                answers.append(ask_settings(each.account, settings))
                continue
            with bar("replaying under other settings", 100) as advance:
                tell = partial(_percent, advance)
                answers.append(ask_settings(each.account, settings, progress=tell))
        except InputError as error:
            refusals.append(error)
    if not answers:
        raise refusals[0]
    return answers


def _percent(advance: Callable[[int, int], None], part: float) -> None:
    advance(int(part * 100), 100)


def _groups(result: Breakdown, by: str | None, top: int) -> list[list[Group]]:
    """Group what each device shows by category and `by`; nothing where that was not asked for."""
    if by is None:
        return []
    from memprof.analysis.groups import group_live

    limit = max(top, 1) * 4
    return [group_live(each.account, each.shown.event, ("category", by), top=limit) for each in result.devices]


def _read(pending: PendingTrace, file: Path) -> Trace:
    """Wait for the trace, with a progress bar where that takes long and somebody is watching."""
    if pending.size < SLOW_BYTES or not sys.stderr.isatty():
        return pending.result()
    from memprof.report.progress import bar

    with bar(f"reading {file.name}", pending.size) as advance:
        return pending.result(progress=advance)
