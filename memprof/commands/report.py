"""``memprof report``: a capture or a sweep as one HTML page."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from memprof.atomic import write_whole

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["run"]

TOP = 25


def run(source: Path, *, output: Path) -> None:
    """Write the page of `source`, a file or a directory of them, to `output`.

    Raises
    ------
    MemprofError
        If `source` cannot be read, `output` cannot be written, or plotly is not installed.

    """
    if source.is_dir():
        from memprof.commands.growth import growth_of
        from memprof.report.html_sweep import sweep_page

        text = sweep_page(growth_of(source), source.resolve().name)
    else:
        from memprof.analysis.breakdown import break_down
        from memprof.report.html import breakdown_page
        from memprof.trace import load

        text = breakdown_page(break_down(load(source), top=TOP))
    write_whole(output, lambda file: file.write(text.encode()))
    sys.stdout.write(f"wrote {output} ({len(text):,} characters; it needs no network)\n")
