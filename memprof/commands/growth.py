"""``memprof growth``: read a sweep, fit it, print it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from memprof.analysis.growth import Growth, check_grouping, measure_growth
from memprof.analysis.sweep_folder import read_folder
from memprof.errors import InputError
from memprof.report.progress import bar

if TYPE_CHECKING:
    from pathlib import Path

    from memprof.analysis.sweep_folder import Folder

__all__ = ["growth_of", "read_watched", "run"]


def run(folder: Path, *, over: str | None, by: str | None, as_json: bool) -> None:
    """Print what grows over the captures in `folder`.

    Raises
    ------
    MemprofError
        If there is no such directory, no capture in it, or `over` or `by` is unknown.

    """
    growth = growth_of(folder, over=over, by=by)
    if as_json:
        from memprof.report.as_json import to_text
        from memprof.report.growth_json import growth_json

        sys.stdout.write(to_text(growth_json(growth)) + "\n")
        return
    from memprof.report.console import make_console
    from memprof.report.growth import growth_report

    make_console().print(growth_report(growth))


def read_watched(folder: Path) -> Folder:
    """Read `folder`, with a progress bar where somebody is watching."""
    if not sys.stderr.isatty():
        return read_folder(folder)
    with bar(f"reading {folder.name}", 1) as progress:
        return read_folder(folder, progress=progress)


def growth_of(folder: Path, *, over: str | None = None, by: str | None = None) -> Growth:
    """Read `folder` and fit what is in it; see `run` for errors."""
    check_grouping(over, by)  # before a whole sweep is read
    found = read_watched(folder)
    if not found.points and found.notes:
        raise InputError(f"no file in {folder} is a capture to measure growth on; the first: {found.notes[0]}")
    return measure_growth(found.points, over=over, by=by, notes=found.notes)
