"""``memprof check``: a memory budget for CI, held against a file or against a capture made for it."""

from __future__ import annotations

import shlex
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from memprof.errors import InputError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["run"]

OURS = ("-o", "--output", "--json")
"""Options of ``memprof capture`` that are `check`'s own here."""


def run(
    budgets: Sequence[str],
    words: Sequence[str],
    *,
    output: Path | None,
    device: int | None,
    top: int,
    as_json: bool,
) -> None:
    """Check budgets; end with status 1 if one was not kept.

    Parameters
    ----------
    budgets
        ``15GB``, ``activations=8GB``.
    words
        A file, or options of ``memprof capture``.
    output
        Where to keep the capture; None throws it away. Not for a file.
    device
        Only this device.
    top
        Of what went over, so many of the largest holders are listed.

    Raises
    ------
    UsageError
        If an option has a wrong value.
    InputError
        If the file is a directory.
    MemprofError
        If the file cannot be read, or does not have what a budget is for.

    """
    from memprof.analysis.budget import check_budgets, parse_budgets

    wanted = parse_budgets(budgets)
    with _file(words, output) as file:
        from memprof.trace import load

        check = check_budgets(load(str(file)), wanted, device=device)
    made = words[0].startswith("-") and output is None
    name = f"memprof capture {shlex.join(words)}" if made else check.trace.path
    if as_json:
        from memprof.report.as_json import to_text
        from memprof.report.check_json import check_json

        sys.stdout.write(to_text(check_json(check, name=name)) + "\n")
    else:
        from memprof.report.check import check_report
        from memprof.report.console import make_console

        make_console().print(check_report(check, name=name, top=top))
    sys.exit(0 if check.passed else 1)


@contextmanager
def _file(words: Sequence[str], output: Path | None) -> Iterator[Path]:
    """Give the file that `words` names, or that a capture with them as options writes."""
    if not words:
        raise UsageError("nothing to check: give a file, or -- and options of memprof capture")
    if not words[0].startswith("-"):
        if len(words) > 1 or output is not None:
            raise UsageError(f"{words[0]} is a file: give no other, no options of a capture, and no -o with it")
        if not words[0]:
            raise UsageError("the name of the file is empty: name the snapshot file")
        file = Path(words[0])
        if file.is_dir():
            raise InputError(f"{words[0]} is a directory: name the snapshot file in it")
        yield file
        return
    for word in words:
        if word.split("=")[0] in OURS:
            raise UsageError(f"{word}: give it before the --, it is memprof check's own")
    with TemporaryDirectory(prefix="memprof-") as folder:
        file = output if output is not None else Path(folder) / "run.pickle"
        # The capture's report ends with the name of its file and what to do with it: not of one that is thrown away.
        _capture(words, file, report=subprocess.DEVNULL if output is None else sys.stderr.fileno())
        yield file


def _capture(words: Sequence[str], file: Path, *, report: int) -> None:
    """Capture in a process of its own, whose report goes to the file `report`; end as it ends if it fails."""
    command = [sys.executable, "-m", "memprof", "capture", *words, "--output", str(file)]
    done = subprocess.run(command, stdout=report, check=False)  # noqa: S603 - our own program
    if done.returncode:
        sys.exit(done.returncode if done.returncode > 0 else 1)
