"""``memprof explain``: the findings of a file, or of a directory of captures."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from memprof.errors import InputError, MemprofError
from memprof.trace import load

if TYPE_CHECKING:
    from pathlib import Path

    from memprof.analysis.findings import Explained

__all__ = ["run"]


def run(path: Path, *, as_json: bool) -> None:
    """Print what is found in `path`, a snapshot or a directory of them.

    Raises
    ------
    MemprofError
        If it cannot be read, or a directory has no snapshot in it.

    """
    explained, unread = _directory(path) if path.is_dir() else (_file(path), [])
    if as_json:
        from memprof.report.as_json import to_text
        from memprof.report.findings import findings_json

        sys.stdout.write(to_text(findings_json(explained)) + "\n")
    else:
        from memprof.report.console import make_console
        from memprof.report.findings import findings_report

        make_console().print(findings_report(explained))
    if unread:
        from memprof.report.text import clean

        for reason in unread:
            sys.stderr.write(f"memprof: left out: {clean(reason, 1000)}\n")


def _file(path: Path) -> tuple[Explained, ...]:
    from memprof.analysis.findings import explain_trace

    return explain_trace(load(path))


def _directory(folder: Path) -> tuple[tuple[Explained, ...], list[str]]:
    """Explain every snapshot in `folder`, configurations together; also say which could not be read."""
    from memprof.analysis.findings import explain_trace, merge_sweep
    from memprof.analysis.sweep_folder import ENDINGS

    files = sorted(path for path in folder.iterdir() if path.name.endswith(ENDINGS) and not path.name.startswith("."))
    if not files:
        raise InputError(f"{folder} has no snapshot in it: give a file, or a directory that memprof sweep wrote")
    found: list[Explained] = []
    unread = []
    for file in files:
        try:
            found += explain_trace(load(file), worth=0.0)
        except MemprofError as error:  # noqa: PERF203 - one unreadable file is not the end of the others
            unread.append(str(error))
    if not found:
        raise InputError(f"{folder}: no file in it could be read; the first one: {unread[0]}")
    return merge_sweep(found), unread
