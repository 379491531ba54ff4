"""``memprof fixes``: what each fix of a sweep was predicted to save, and saved."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from memprof.analysis.savings import measure_savings
from memprof.errors import InputError
from memprof.trace import load

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["run"]


def run(folder: Path, *, as_json: bool) -> None:
    """Print one row for each run in `folder` that was made with a fix and without.

    Raises
    ------
    MemprofError
        If there is no such directory, a file in it cannot be read, or no run was made both ways.

    """
    from memprof.analysis.sweep_folder import ENDINGS

    if not folder.is_dir():
        raise InputError(f"{folder} is not a directory: give one that memprof sweep --fix none,NAME wrote")
    files = sorted(path for path in folder.iterdir() if path.name.endswith(ENDINGS) and not path.name.startswith("."))
    savings = measure_savings([load(path) for path in files])
    if not savings:
        raise InputError(f"{folder}: no run in it was made both with a fix and without; sweep with --fix none,NAME")
    if as_json:
        from memprof.report.as_json import to_text
        from memprof.report.fixes import fixes_json

        sys.stdout.write(to_text(fixes_json(savings)) + "\n")
        return
    from memprof.report.console import make_console
    from memprof.report.fixes import fixes_report

    make_console().print(fixes_report(savings))
