"""How far ``memprof fit`` is: what runs now, and a line for each run that ended."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from memprof.analysis.fit_search_need import Answer
from memprof.report.console import make_console
from memprof.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memprof.analysis.fit_search_need import Need

__all__ = ["ANSWERS", "FitProgress", "fit_progress"]

ANSWERS = {
    Answer.YES: ("yes", "green"),
    Answer.TIGHT: ("yes, at worst by giving cached memory back", "yellow"),
    Answer.CLOSE: ("too close to say", "yellow"),
    Answer.NO: ("no", "red"),
}
"""How an answer is said, and its colour."""


class FitProgress:
    """Shows what runs, and what came of each run."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("starting", total=None)

    def says(self, text: str) -> None:
        """Show what is being done."""
        self._progress.update(self._task, description=text)

    def ended(self, card: str, over: str, at: int, need: Need, seconds: float) -> None:
        """Print what came of a run."""
        word, style = ANSWERS[need.answer]
        text = Text(f"{card} {over} {at}: simulated, reserves {format_bytes(need.reserved_range[1])}, fits: ")
        text.append(word, style=style)
        text.append(f"  {seconds:.1f} s", style="dim")
        self._progress.console.print(text, soft_wrap=True)


@contextmanager
def fit_progress() -> Iterator[FitProgress]:
    """Show progress on stderr while the block runs."""
    console = make_console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield FitProgress(progress)
