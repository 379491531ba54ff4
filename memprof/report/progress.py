"""Progress bars on stderr, so that what is printed on stdout can be piped."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from memprof.report.console import make_console

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["bar", "steps"]


@contextmanager
def bar(label: str, total: int) -> Iterator[Callable[[int, int], None]]:
    """Show a bar while the block runs; yields a function that takes what is done and the whole."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    console = make_console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(label, total=total)
        yield lambda done, whole: progress.update(task, completed=done, total=whole)


@contextmanager
def steps() -> Iterator[Callable[[str, int, int], None]]:
    """Show what is being done and how far it is; yields a function that takes a text, the steps done and all steps."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    console = make_console(stderr=True)
    off = not console.is_terminal  # rich would print an empty line
    # No thread that refreshes: it would collect garbage of the run, whose frees the profiler then misses.
    with Progress(*columns, console=console, transient=True, auto_refresh=False, disable=off) as progress:
        task = progress.add_task("starting", total=None)

        def tell(text: str, done: int, whole: int) -> None:
            progress.update(task, description=text, completed=done, total=whole, refresh=True)

        yield tell
