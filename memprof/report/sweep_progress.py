"""How far a sweep is: a bar with the time left on a terminal, and a line for each point that ended."""

from __future__ import annotations

import time
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from memprof.report.console import make_console
from memprof.report.text import clean
from memprof.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memprof.analysis.sweep import Point

__all__ = ["SweepProgress", "sweep_progress"]

STYLES = {"ok": "green", "oom": "yellow", "failed": "red"}


class SweepProgress:
    """Shows which points run and which have ended."""

    def __init__(self, progress: Progress, *, total: int, done: int) -> None:
        self._progress = progress
        self._task = progress.add_task("starting", total=total, completed=done, left="")
        self._running: list[str] = []
        self._total, self._done = total, done
        self._new = 0
        self._began = time.monotonic()

    def begins(self, file: str) -> None:
        """Show that a point runs."""
        self._running.append(file)
        self._show()

    def ended(self, point: Point, seconds: float) -> None:
        """Print what came of a point."""
        if point.file in self._running:
            self._running.remove(point.file)
        text = Text(f"{point.status:6} ", style=STYLES[point.status])
        text.append(clean(point.file or ""), style="default")
        if point.figures is not None:
            text.append(f"  {format_bytes(point.figures.peak.size)} allocated", style="default")
        text.append(f"  {seconds:.0f} s", style="dim")
        if point.reason:
            text.append(f"  {clean(point.reason, 400)}", style="default")
        self._progress.console.print(text, soft_wrap=True)
        self._done += 1
        self._new += 1
        # rich would forget points that took longer than its window.
        each = (time.monotonic() - self._began) / self._new
        left = timedelta(seconds=round(each * (self._total - self._done)))
        self._progress.update(self._task, completed=self._done, left=f"about {left} left")
        self._show()

    def _show(self) -> None:
        self._progress.update(self._task, description=", ".join(self._running) or "done")


@contextmanager
def sweep_progress(total: int, *, done: int) -> Iterator[SweepProgress]:
    """Show progress on stderr while the block runs.

    Parameters
    ----------
    total
        Points of the whole sweep.
    done
        Those that were finished before it began.

    """
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
    )
    console = make_console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield SweepProgress(progress, total=total, done=done)
