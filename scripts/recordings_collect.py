# ruff: noqa: INP001  # a script, not a package
"""Collect the files of recorded runs into one for each script: ``tests/simulate/data/SCRIPT_h200.json.gz``.

    python scripts/recordings_collect.py SCRIPT MADE_BY FILE.json.gz ...

SCRIPT is ``prediction_runs``, ``wider_runs``, ``truth_runs``, ``third_runs``, ``fourth_runs`` or ``fifth_runs``. Runs
that are there already are replaced.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

from recorded_events import read_events, write_events

DATA = Path(__file__).parents[1] / "tests/simulate/data"


def main() -> None:
    """Write one file."""
    script, made_by, *names = sys.argv[1:]
    path = DATA / f"{script}_h200.json.gz"
    there = json.loads(gzip.decompress(path.read_bytes()))["runs"] if path.exists() else []
    runs = {run["case"]: run for run in there}
    for name in names:
        run = read_events(Path(name))
        runs[run["case"]] = run
    write_events(path, {"made_by": made_by, "runs": [runs[case] for case in sorted(runs)]})


if __name__ == "__main__":
    main()
