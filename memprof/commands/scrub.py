"""``memprof scrub``: a snapshot without paths, user and host names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memprof.trace.scrub_file import scrub_file

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["run"]


def run(source: Path, target: Path) -> None:
    """Scrub `source` into `target` and say what was changed.

    Raises
    ------
    MemprofError
        If one cannot be read or the other cannot be written.

    """
    counts = scrub_file(source, target)
    from memprof.report.console import make_console

    make_console().print(
        f"wrote {target}: {counts['files']:,} file names shortened, {counts['texts']:,} other texts changed, "
        f"{counts['emptied']:,} emptied; every number is as it was\n"
        "function, module and annotation names are still in it: look through them before you publish",
        markup=False,
    )
