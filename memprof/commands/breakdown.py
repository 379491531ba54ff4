"""``memprof breakdown``: load a snapshot, break it down, print it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from memprof.errors import MemprofError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["run"]

BY = ("module", "op", "dtype", "shape", "parameter", "stack")


def run(file: Path, *, at: str, by: str | None, device: int | None, top: int, as_json: bool) -> None:
    """Print the breakdown of `file`.

    Raises
    ------
    MemprofError
        If the file cannot be read, or has no such device or moment, or `by` is no grouping.

    """
    if by is not None and by not in BY:
        raise MemprofError(f"--by {by!r} is no grouping: use one of {', '.join(BY)}")
    from memprof.analysis.breakdown import break_down
    from memprof.analysis.groups import group_live
    from memprof.trace import load

    result = break_down(load(str(file)), at=at, device=device, top=top)
    if as_json:
        from memprof.report.as_json import breakdown_json, to_text

        sys.stdout.write(to_text(breakdown_json(result)) + "\n")
        return
    from memprof.report.console import breakdown_report, make_console

    groups = [] if by is None else [
        group_live(each.account, each.shown.event, ("category", by), top=max(top, 1) * 4) for each in result.devices
    ]  # fmt: skip
    make_console().print(breakdown_report(result, by=by, groups=groups))
