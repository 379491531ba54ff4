# ruff: noqa: INP001  # a script, not a package
"""Predict every measured configuration on the simulated device, and write measured beside predicted.

    python scripts/predict_table.py [--only TEXT] [--output DIRECTORY]

Reads ``tests/simulate/data/measured.json``; writes ``predictions.json`` and ``predictions.md``. Each row runs in a
process of its own. Measured with torch 2.11+cu130 on an H200; predicted with the installed torch.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
MEASURED = ROOT / "tests/simulate/data/measured.json"
_CHILD = """
import json, sys, warnings
warnings.filterwarnings("ignore")
sys.path[:0] = [{scripts!r}]
from memprof.simulate import install
device = install("h200")
from prediction_runs import run
run(json.loads(sys.argv[1]))
low, high = device.reserved_range()
print("RESULT " + json.dumps({{**device.figures(), "reserved_low": low, "reserved_high": high,
    # VmHWM, not getrusage: that counts from the size of the process that started this one.
    "host_peak_bytes": 1024 * next(int(line.split()[1]) for line in open("/proc/self/status") if "VmHWM" in line),
    "caveats": [[c.kind, c.what, c.count, c.bytes] for c in device.caveats]}}))
"""


def predict(config: dict[str, Any]) -> dict[str, Any]:
    """Run one configuration in a child process; return its figures and seconds."""
    started = time.perf_counter()
    code = _CHILD.format(scripts=str(ROOT / "scripts"))
    result = subprocess.run(  # noqa: S603  # our own code
        [sys.executable, "-c", code, json.dumps(config)],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONFAULTHANDLER": "1"},
        check=False,
    )
    lines = [line for line in result.stdout.splitlines() if line.startswith("RESULT ")]
    if result.returncode or len(lines) != 1:
        raise SystemExit(f"{config}: the simulated run failed\n{result.stderr[-2000:]}")
    seconds = round(time.perf_counter() - started, 1)
    return {**json.loads(lines[0].removeprefix("RESULT ")), "seconds": seconds}


def error(predicted: int, measured: int) -> str:
    """Return the relative error."""
    return "0" if predicted == measured else f"{predicted / measured - 1:+.3%}"


def line(row: dict[str, Any], found: dict[str, Any]) -> str:
    """Write one row of the table."""
    allocated = error(found["max_allocated_bytes"], row["allocated"])
    reserved = error(found["max_reserved_bytes"], row["reserved"])
    return (
        f"| {row['name']} | {row['allocated']:,} | {found['max_allocated_bytes']:,} | {allocated} "
        f"| {row['reserved']:,} | {found['max_reserved_bytes']:,} | {reserved} "
        f"| {found['reserved_low']:,} to {found['reserved_high']:,} | {found['seconds']} |"
    )


def main() -> None:
    """Predict all rows and write both files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--output", type=Path, default=ROOT / "docs")
    options = parser.parse_args()
    rows = [row for row in json.loads(MEASURED.read_text(encoding="utf-8")) if options.only in row["name"]]
    lines = [
        "Measured on an H200 with torch 2.11+cu130, in bytes; predicted without a GPU by `scripts/predict_table.py`,",
        f"torch {importlib.metadata.version('torch')}. *By address*: the reserved peak under other orders of segments.",
        "*s*: seconds of the whole process, on two cores that may have been busy with other work.",
        "",
        "| run | allocated measured | predicted | error | reserved measured | predicted | error | by address | s |",
        "|---|---:|---:|---:|---:|---:|---:|---|---:|",
    ]
    results = []
    for row in rows:
        found = predict(row["config"])
        results.append({**row, "predicted": found})
        lines.append(line(row, found))
        sys.stdout.write(lines[-1] + "\n")
        sys.stdout.flush()
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "predictions.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    (options.output / "predictions.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
