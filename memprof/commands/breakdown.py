"""``memprof breakdown``: load a snapshot, break it down, print it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from memprof.errors import MemprofError
from memprof.trace import start

if TYPE_CHECKING:
    from pathlib import Path

    from memprof.trace import PendingTrace
    from memprof.trace.model import Trace

__all__ = ["run"]

BY = ("module", "op", "dtype", "shape", "parameter", "stack")
SLOW_BYTES = 20_000_000
"""A file larger than this gets a progress bar while it is read."""


def run(file: Path, *, at: str, by: str | None, device: int | None, top: int, as_json: bool) -> None:
    """Print the breakdown of `file`.

    Raises
    ------
    MemprofError
        If the file cannot be read, or has no such device or moment, or `by` is no grouping.

    """
    if by is not None and by not in BY:
        raise MemprofError(f"--by {by!r} is no grouping: use one of {', '.join(BY)}")
    pending = start(str(file))  # another process reads while this one imports
    from memprof.analysis.breakdown import break_down
    from memprof.analysis.groups import group_live

    if as_json:
        from memprof.report.as_json import breakdown_json, to_text

        result = break_down(pending.result(), at=at, device=device, top=top)
        sys.stdout.write(to_text(breakdown_json(result)) + "\n")
        return
    from memprof.analysis.findings import top_finding
    from memprof.report.console import breakdown_report, make_console
    from memprof.report.findings import finding_line

    result = break_down(_read(pending, file), at=at, device=device, top=top)
    groups = []
    if by is not None:
        limit = max(top, 1) * 4
        groups = [group_live(each.account, each.shown.event, ("category", by), top=limit) for each in result.devices]
    console = make_console()
    console.print(breakdown_report(result, by=by, groups=groups))
    found = [finding for each in result.devices if (finding := top_finding(each.account)) is not None]
    if found:
        console.print()
        console.print(finding_line(max(found, key=lambda finding: finding.size)))


def _read(pending: PendingTrace, file: Path) -> Trace:
    """Wait for the trace, with a progress bar where that takes long and somebody is watching."""
    if file.stat().st_size < SLOW_BYTES or not sys.stderr.isatty():
        return pending.result()
    from memprof.report.progress import bar

    with bar(f"reading {file.name}", file.stat().st_size) as advance:
        return pending.result(progress=advance)
