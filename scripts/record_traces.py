"""Record the example traces on a CUDA device, with labels and without, and compare the two.

    python scripts/record_traces.py traces > traces.json

Each recording runs in a process of its own. The files with labels go into the folder; the plain ones are only compared
with them: the labels must change neither the sequence of events nor the allocator's own peak.
"""

# ruff: noqa: INP001 - a folder of scripts is no package
from __future__ import annotations

import argparse
import json
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

MODEL, PRECISION = "pythia-70m", "16-mixed"
MOST_BYTES = 2_000_000
"""No committed trace may be larger."""


def main() -> int:
    """Record what was asked for; exit with 1 if a pair differs or a file is too large."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--precision", default=PRECISION)
    parser.add_argument("--quant", default="none,bnb.nf4")
    parser.add_argument("--mbs", default="1,16")
    parser.add_argument("--seq", type=int, default=1037)
    parser.add_argument("--cycles", type=int, default=1)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(record(json.loads(arguments.one))))  # noqa: T201 - a script's output
        return 0
    arguments.folder.mkdir(parents=True, exist_ok=True)
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for quant in arguments.quant.split(","):
            for mbs in map(int, arguments.mbs.split(",")):
                name = f"{arguments.model}_{arguments.precision}_{quant}_mbs{mbs}.pickle"
                job = {
                    "config": {
                        "model": arguments.model,
                        "precision": arguments.precision,
                        "quant": quant,
                        "mbs": mbs,
                        "seq": arguments.seq,
                        "cycles": arguments.cycles,
                    },
                    "device": arguments.device,
                }
                labelled = run({**job, "labels": True, "output": str(arguments.folder / name)})
                plain = run({**job, "labels": False, "output": str(Path(scratch) / name)})
                rows.append(compare(name, labelled, plain))
    print(json.dumps(rows, indent=1))  # noqa: T201 - a script's output
    return int(not all(row["same"] and row["small_enough"] for row in rows))


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Record `job` in a fresh process."""
    command = [sys.executable, __file__, "-", "--one", json.dumps(job)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)  # noqa: S603 - this very file
    if done.returncode:
        raise SystemExit(f"recording failed: {job}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def record(job: dict[str, Any]) -> dict[str, Any]:
    """Record `job` in this process and return its figures."""
    from memprof.capture import capture
    from memprof.recipes.lit_gpt_2023 import LitGpt2023

    result = capture(LitGpt2023(**job["config"]), output=job["output"], device=job["device"], labels=job["labels"])
    return {
        "output": job["output"],
        "status": result.status,
        "entries": result.entries,
        "labelled": result.labelled,
        "unmatched": result.unmatched,
        "max_allocated_bytes": result.peak_allocated_bytes,
        "max_reserved_bytes": result.max_reserved_bytes,
        "device_used_bytes": result.device_used_bytes,
        "seconds": round(result.seconds, 3),
        "file_bytes": Path(job["output"]).stat().st_size,
    }


def compare(name: str, labelled: dict[str, Any], plain: dict[str, Any]) -> dict[str, Any]:
    """Compare two recordings of the same configuration."""
    with_labels, without = events(labelled["output"]), events(plain["output"])
    difference = next(
        (number for number, (a, b) in enumerate(zip(with_labels, without, strict=False)) if a != b),
        None if len(with_labels) == len(without) else min(len(with_labels), len(without)),
    )
    row: dict[str, Any] = {
        "file": name,
        "labelled": {key: value for key, value in labelled.items() if key != "output"},
        "plain": {key: value for key, value in plain.items() if key != "output"},
        "same": difference is None and labelled["max_allocated_bytes"] == plain["max_allocated_bytes"],
        "small_enough": labelled["file_bytes"] < MOST_BYTES,
    }
    if difference is not None:
        row["first_difference"] = {
            "event": difference,
            "labelled": with_labels[difference : difference + 4],
            "plain": without[difference : difference + 4],
        }
    row["peak_requested_bytes"] = requested_at_peak(labelled["output"])
    return row


def events(path: str) -> list[tuple[str, int]]:
    """Return action and size of every entry of the first device."""
    return [(entry["action"], entry["size"]) for entry in load(path)["device_traces"][0]]


def requested_at_peak(path: str) -> dict[str, int]:
    """Return the requested bytes per category and finer category at the highest sum of requested bytes."""
    snapshot = load(path)
    labels, strings = snapshot["memprof"]["labels"], snapshot["memprof"]["strings"]
    names = {}
    for entry, category, finer in zip(labels["entry"], labels["category"], labels["finer"], strict=True):
        names[entry] = strings[category] + (f"/{strings[finer]}" if finer >= 0 else "")
    live: dict[int, tuple[str, int]] = {}
    total = peak = 0
    best: dict[int, tuple[str, int]] = {}
    for number, entry in enumerate(snapshot["device_traces"][0]):
        if entry["action"] == "alloc":
            live[entry["addr"]] = names.get(number, "no label"), entry["size"]
            total += entry["size"]
            if total > peak:
                peak, best = total, dict(live)
        elif entry["action"] == "free_requested":
            total -= live.pop(entry["addr"], ("", 0))[1]
    sums: dict[str, int] = {"total": peak}
    for name, size in best.values():
        sums[name] = sums.get(name, 0) + size
    return dict(sorted(sums.items()))


def load(path: str) -> dict[str, Any]:
    """Read a file that this script has just written."""
    snapshot: dict[str, Any] = pickle.loads(Path(path).read_bytes())
    return snapshot


if __name__ == "__main__":
    sys.exit(main())
