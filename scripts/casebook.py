"""Run the casebook: each case in a process of its own, and what is found in it.

    python scripts/casebook.py run DIRECTORY [--on simulated|cuda] [--only CASE[/RUN],...]
    python scripts/casebook.py collect DIRECTORY simulated|measured

``run`` writes one small JSON a run and keeps those that are there; ``collect`` puts them into
``docs/study/data/casebook-*.json``.
"""

# ruff: noqa: INP001, T201, E402, S603 - a script, the path is set first, and it runs our own programs
from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]

from casebook_runs import CASES

from memprof.analysis.account import open_account
from memprof.analysis.findings import explain_trace
from memprof.analysis.state import state_at
from memprof.report.findings import findings_json
from memprof.trace import load

if TYPE_CHECKING:
    from casebook_runs import Case, Run

ROOT = Path(__file__).parents[1]
DATA = ROOT / "docs" / "study" / "data"
SHOWN = 4
"""Evidence rows kept of a finding."""


def main() -> None:
    """Run, or collect."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("run", "collect"))
    parser.add_argument("directory", type=Path)
    parser.add_argument("name", nargs="?", default="simulated")
    parser.add_argument("--on", default="simulated", choices=("simulated", "cuda"))
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    if options.what == "collect":
        collect(options.directory, options.name)
        return
    options.directory.mkdir(parents=True, exist_ok=True)
    only = [name for name in options.only.split(",") if name]
    for case in CASES:
        for each in case.runs:
            named = f"{case.key}/{each.name}"
            if only and case.key not in only and named not in only:
                continue
            if options.on == "cuda" and not each.gpu:
                continue
            if each.then and "LITGPT_2024" not in os.environ:
                print(f"left out: {named} needs a checkout of litgpt's commit 4a9b7e62, named by LITGPT_2024")
                continue
            target = options.directory / (re.sub(r"[^\w.]+", "-", named) + ".json")
            if not target.exists():
                run(case, each, target, options.on)


def run(case: Case, each: Run, target: Path, on: str) -> None:
    """Run one program under memprof and write what is found."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "run.pickle"
        card = each.card if on == "simulated" else None
        command = [sys.executable, "-m", "memprof"]
        if each.script == "capture":
            command += ["capture", "--json", "-o", str(file), *(["--simulate", card] if card else ["--device", "cuda"])]
        else:
            command += [
                "run",
                "-o",
                str(file),
                *(["--simulate", card] if card else []),
                f"scripts/casebook/{each.script}",
            ]
        command += each.arguments.split()
        # A checkout of litgpt has to be found before the installed one.
        path = [os.environ["LITGPT_2024"]] if each.then else []
        path = os.pathsep.join([*path, str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        done = subprocess.run(
            command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
        )
        if not file.exists():
            print(f"failed: {case.key} {each.name}: {done.stderr.strip()[-600:]}")
            return
        row = {"case": case.key, "run": each.name, "script": each.script, "arguments": each.arguments, **read(file)}
        row["said"] = [
            {name: int(value) for name, value in re.findall(r"(now|peak|most reserved|reserved|used) (\d+)", line)}
            for line in done.stdout.splitlines()
            if line.startswith("now ")
        ]
    target.write_text(json.dumps(row, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    print(f"{case.key} {each.name}: {row['allocated']:,} {row['status']} {[f['id'] for f in row['findings']]}")


def read(file: Path) -> dict[str, Any]:
    """Boil a recording down."""
    trace = load(file)
    account = max(
        (open_account(trace, device) for device in trace.devices), key=lambda a: int(a.replay.allocated.max())
    )
    replay = account.replay
    peak = state_at(account, replay.peak_event)
    findings = [each for each in findings_json(explain_trace(trace)) if each["device"] == account.device.device]
    environment = dict(trace.environment or {})
    figures = [each.device_used_bytes for each in account.device.stats if each.device_used_bytes]
    return {
        "source": trace.source.value,
        "status": (trace.made_by or {}).get("status", "ok"),
        "card": environment.get("card"),
        "torch": environment.get("torch"),
        "allocated": int(replay.allocated.max()),
        "reserved": int(replay.reserved.max()),
        "device_used": max(figures, default=None),
        "at_the_end": int(replay.allocated[-1]),
        "reserved_at_the_end": int(replay.reserved[-1]),
        "categories": {name.value: size for name, size in peak.categories.items() if size},
        "findings": [
            {
                **{key: each[key] for key in ("id", "title", "bytes", "certainty")},
                "evidence": [
                    {key: row[key] for key in ("module", "op", "dtype", "bytes", "count")}
                    for row in each["evidence"][:SHOWN]
                ],
            }
            for each in findings
        ],
    }


def collect(directory: Path, name: str) -> None:
    """Write every row into one committed file."""
    order = {(case.key, each.name): number for number, (case, each) in enumerate((c, r) for c in CASES for r in c.runs)}
    rows = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(directory.glob("*.json"))]
    rows = sorted((row for row in rows if (row["case"], row["run"]) in order), key=lambda r: order[r["case"], r["run"]])
    target = DATA / f"casebook-{name}.json"
    target.write_text(json.dumps(rows, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    print(f"wrote {target.name}: {len(rows)} runs, {len(order)} known")


if __name__ == "__main__":
    main()
