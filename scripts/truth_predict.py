# ruff: noqa: INP001  # a script, not a package
"""Predict all cases of ``scripts/wider_runs.py``, or of ``truth``, ``third``, ``fourth`` or ``fifth_runs.py``.

    python scripts/truth_predict.py OUTPUT.json [--runs wider_runs] [--only CASE,...] [--events DIRECTORY]

Each runs in a process of its own. Writes figures; what each case asked for goes to the directory. Where the run was
recorded with the addresses of its segments, also what the figures are on these.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
import time
from functools import lru_cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))
from recorded_addresses import peaks_at_recorded_addresses

ROOT = Path(__file__).parents[1]
SETTINGS = {"gpt2_expandable": "expandable_segments:True"}
"""Allocator's settings of cases in ``wider_runs``; those of the other scripts are there."""


@lru_cache
def cases_of(runs: str) -> dict[str, str]:
    """Return the allocator's settings of each case, in order; they are there before torch is."""
    program = f"import json, {runs} as runs; print(json.dumps([[*runs.CASES], getattr(runs, 'SETTINGS', {{}})]))"
    result = subprocess.run(  # noqa: S603  # our own script
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT / "scripts",
        env=environment(""),
    )
    cases, settings = json.loads(result.stdout.splitlines()[-1])
    return {case: {**SETTINGS, **settings}.get(case, "") for case in cases}


def environment(settings: str) -> dict[str, str]:
    """Return the environment of a child."""
    inherited = {name: value for name, value in os.environ.items() if "ALLOC_CONF" not in name}
    return {**inherited, "PYTHONPATH": str(ROOT), "PYTORCH_CUDA_ALLOC_CONF": settings}


@lru_cache
def recordings(runs: str) -> dict[str, Any]:
    """Return what was recorded of the cases of a script."""
    path = ROOT / f"tests/simulate/data/{runs}_h200.json.gz"
    if not path.exists():
        return {}
    return {run["case"]: run for run in json.loads(gzip.decompress(path.read_bytes()))["runs"]}


def predict(runs: str, case: str, events: Path) -> dict[str, Any]:
    """Run one case on the simulated card; leave its events in a folder and return its figures."""
    started = time.perf_counter()
    recorded, status = events / f"{case}.json.gz", events / f"{case}.status.json"
    subprocess.run(  # noqa: S603  # our own script
        [
            *(sys.executable, "-m", "memprof.simulate", "--card", "h200", "--status", str(status)),
            *(str(ROOT / "scripts" / f"{runs}.py"), case, str(recorded)),
        ],
        capture_output=True,
        timeout=300,
        check=False,
        cwd=ROOT,
        env=environment(cases_of(runs)[case]),
    )
    seconds = round(time.perf_counter() - started, 1)
    found: dict[str, Any] = {"case": case, "seconds": seconds}
    ended = json.loads(status.read_text(encoding="utf-8"))
    if ended["status"] != "ok":
        return {**found, ended["status"]: ended["message"]}
    figures = json.loads(gzip.decompress(recorded.read_bytes()))
    found |= {name: figures[name] for name in ("allocated", "reserved", "failed_at")}
    found |= {name: ended[name] for name in ("allocated_range", "reserved_range")}
    truth = recordings(runs).get(case)
    settings = cases_of(runs)[case]
    if truth is not None and truth["addresses"] and "expandable" not in settings and figures["failed_at"] is None:
        found["at_recorded_addresses"] = peaks_at_recorded_addresses(figures, truth, settings)
    found["caveats"] = [
        [each["kind"], each["what"], each["count"], each["bytes"]] for each in ended["device"]["caveats"]
    ]
    return found


def main() -> None:
    """Predict the cases, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("--runs", default="truth_runs", help="the script whose cases they are")
    parser.add_argument("--only", default="", help="cases, with commas")
    parser.add_argument("--events", type=Path, help="folder for what each case asked for")
    options = parser.parse_args()
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],  # noqa: S607  # found on the path, as every git
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    versions = ", ".join(
        f"{name} {importlib.metadata.version(name)}"
        for name in ("torch", "transformers", "peft", "bitsandbytes", "lightning")
    )
    script = f"python scripts/truth_predict.py --runs {options.runs}"
    made_by = f"{script}, at commit {commit.stdout.strip()}, {versions}; card h200"
    chosen = options.only.split(",") if options.only else [*cases_of(options.runs)]
    with tempfile.TemporaryDirectory() as scratch:
        events = options.events or Path(scratch)
        events.mkdir(parents=True, exist_ok=True)
        predicted = []
        for case in chosen:
            predicted.append(predict(options.runs, case, events))
            sys.stdout.write(json.dumps({k: v for k, v in predicted[-1].items() if k != "caveats"}) + "\n")
            sys.stdout.flush()
    text = json.dumps({"made_by": made_by, "predicted": predicted}, indent=1)
    options.output.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
