"""``memprof compare``: load two captures, compare them at their peaks, print the difference."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from memprof.errors import UsageError
from memprof.trace import start

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["run"]

BY = ("category", "module", "op", "dtype")


def run(a: Path, b: Path, *, by: str | None, device: int | None, top: int, as_json: bool) -> None:
    """Print what `b` holds more than `a`.

    Raises
    ------
    InputError, UsageError
        If a file cannot be read or has no such device, or `by` is no grouping.

    """
    if by is not None and by not in BY:
        raise UsageError(f"--by {by}: unknown; it can be {', '.join(BY)}")
    pending = start(str(a)), start(str(b))  # both are read while this process imports
    from memprof.analysis.compare import compare

    result = compare(pending[0].result(), pending[1].result(), device=device)
    if as_json:
        from memprof.report.as_json import to_text
        from memprof.report.compare_json import compare_json

        sys.stdout.write(to_text(compare_json(result)) + "\n")
        return
    from memprof.report.compare import compare_report
    from memprof.report.console import make_console

    make_console().print(compare_report(result, by=by, top=top))
