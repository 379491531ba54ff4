# ruff: noqa: INP001  # a script, not a package
"""Compare recorded runs with simulated ones, allocation by allocation, and write docs/events.md.

    python scripts/event_table.py [--only TEXT] [--events DIRECTORY]

The directory holds what ``scripts/truth_predict.py --events`` left there: those cases are not run again.

For every recorded run (captures in ``traces/sweep-pythia-70m``, runs in ``tests/simulate/data/*_runs_h200.json.gz``)
the same program runs on the simulated card. Sizes of allocations are compared in order. The share is that of a common
subsequence (the places that are equal where both are of one length and most are; else what ``difflib.SequenceMatcher``
finds; it need not be the longest, so the true share is that or more), of the longer of the two.

Captures have labels: their categories at the peak are compared as well.
"""

from __future__ import annotations

import argparse
import difflib
import gzip
import json
import os
import pickle
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent))
from recorded_events import read_events, sizes_of

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
DATA = ROOT / "tests/simulate/data"
ROUNDS = {
    "prediction": "prediction_runs.py",
    **{each: f"{each}_runs.py" for each in ("wider", "truth", "third", "fourth", "fifth")},
}
"""Files of recorded runs, and the script whose cases they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A run that was recorded on a card."""

    name: str
    program: tuple[str, ...]
    """Arguments of the interpreter; the file with the events comes last."""
    settings: str
    sizes: list[int]
    capture: Path | None = None
    """The recorded file, where it has categories."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """The same run on the simulated card."""

    sizes: list[int]
    categories: dict[str, int]
    """Bytes at the peak; empty where nothing was labelled."""


def recorded_runs() -> Iterator[Recorded]:
    """Yield what was recorded."""
    for path in sorted((ROOT / "traces/sweep-pythia-70m").glob("*.pickle")):
        model, precision, quant, length, mbs = path.stem.split("_")
        length, mbs = length.removeprefix("seq"), mbs.removeprefix("mbs")
        options = ("--model", model, "--precision", precision, "--quant", quant, "--seq", length, "--mbs", mbs)
        yield Recorded(
            name=f"{model} {precision} {quant} seq {length} mbs {mbs}",
            program=("-m", "memprof", "capture", "--simulate", "h200", *options, "--output"),
            settings="",
            sizes=allocations(path),
            capture=path,
        )
    for prefix, script in ROUNDS.items():
        path = DATA / f"{prefix}_runs_h200.json.gz"
        if path.exists():
            for run in json.loads(gzip.decompress(path.read_bytes()))["runs"]:
                yield Recorded(
                    name=run["case"],
                    program=("-m", "memprof.simulate", "--card", "h200", str(ROOT / "scripts" / script), run["case"]),
                    settings=run.get("alloc_conf", ""),
                    sizes=sizes_of(run),
                )


def allocations(path: Path) -> list[int]:
    """Return the sizes in a snapshot of ours."""
    trace = pickle.loads(path.read_bytes())["device_traces"][0]
    return [entry["size"] for entry in trace if entry["action"] == "alloc"]


def categories(path: Path) -> dict[str, int]:
    """Return the bytes of each category at the peak."""
    command = [sys.executable, "-m", "memprof", "breakdown", str(path), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)  # noqa: S603  # our own
    found: dict[str, int] = json.loads(done.stdout)["devices"][0]["peak"]["categories"]
    return found


def simulate(run: Recorded, events: Path | None) -> Simulated | None:
    """Run the same program on the simulated card, unless it has been; None if it is refused."""
    done_before = events / f"{run.name}.json.gz" if events is not None else None
    if done_before is not None and done_before.exists():
        return Simulated(sizes=sizes_of(read_events(done_before)), categories={})
    inherited = {name: value for name, value in os.environ.items() if "ALLOC_CONF" not in name}
    environment = {**inherited, "PYTHONPATH": str(ROOT), "PYTORCH_CUDA_ALLOC_CONF": run.settings}
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / ("run.pickle" if run.program[-1] == "--output" else "run.json.gz")
        done = subprocess.run(  # noqa: S603  # our own script
            [sys.executable, *run.program, str(output)],
            capture_output=True,
            text=True,
            cwd=ROOT,
            env=environment,
            check=False,
        )
        if not output.exists() and "memprof: " in done.stderr:
            return None
        if not output.exists():
            raise SystemExit(f"{run.name}: the simulated run failed\n{done.stderr[-2000:]}")
        if run.capture is None:
            return Simulated(sizes=sizes_of(read_events(output)), categories={})
        return Simulated(sizes=allocations(output), categories=categories(output))


def equal_in_order(one: list[int], other: list[int]) -> int:
    """Return the length of a common subsequence."""
    in_place = sum(size == another for size, another in zip(one, other, strict=False))
    if len(one) == len(other) and in_place >= 0.9 * len(one):
        return in_place
    blocks = difflib.SequenceMatcher(None, one, other, autojunk=False).get_matching_blocks()
    return sum(block.size for block in blocks)


def compare_categories(run: Recorded, found: Simulated) -> str:
    """Return a row: the categories that differ, recorded and simulated."""
    assert run.capture is not None
    truth = categories(run.capture)
    differing = [
        f"{name}: {truth[name]:,} / {found.categories[name]:,}"
        for name in truth
        if truth[name] != found.categories[name]
    ]
    worst = max(abs(found.categories[name] - truth[name]) / max(truth[name], 1) for name in truth)
    return f"| {run.name} | {sum(truth.values()):,} | {'; '.join(differing) or 'none'} | {worst:.3%} |"


def main() -> None:
    """Compare all runs and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="a regular expression for names")
    parser.add_argument("--events", type=Path, help="folder with what cases asked for")
    options = parser.parse_args()
    lines, shares, by_category = [], [], []
    for run in recorded_runs():
        if not re.search(options.only, run.name):
            continue
        found = simulate(run, options.events)
        if found is None:
            lines.append(f"| {run.name.replace('_', ' ')} | {len(run.sizes):,} | refused | | |")
            continue
        equal = equal_in_order(run.sizes, found.sizes)
        shares.append(equal / max(len(run.sizes), len(found.sizes)))
        whole = "all, each in its place" if run.sizes == found.sizes else f"{shares[-1]:.3%}"
        name = run.name.replace("_", " ")
        lines.append(f"| {name} | {len(run.sizes):,} | {len(found.sizes):,} | {equal:,} | {whole} |")
        sys.stdout.write(lines[-1] + "\n")
        if run.capture is not None:
            by_category.append(compare_categories(run, found))
            sys.stdout.write(by_category[-1] + "\n")
        sys.stdout.flush()
    if not options.only:
        (ROOT / "docs/events.md").write_text("\n".join(page(lines, shares, by_category)) + "\n", encoding="utf-8")


def page(lines: list[str], shares: list[float], by_category: list[str]) -> list[str]:
    """Return the lines of docs/events.md."""
    exact, good = sum(share == 1 for share in shares), sum(share >= 0.99 for share in shares)
    return [
        "# Event by event",
        "",
        "What was recorded on an H200 (torch 2.11+cu130) against the same program on the simulated H200",
        "(torch 2.13+cpu), allocation by allocation: by `python scripts/event_table.py`, which says how it compares.",
        "",
        f"Of {len(shares)} runs, {exact} ask for the same sizes in the same order from first to last,",
        f"{good} in 99 % or more of their allocations.",
        "",
        "| run | allocations recorded | simulated | equal in order | share |",
        "|---|---:|---:|---:|---:|",
        *lines,
        "",
        "## By category",
        "",
        "The captures have labels. Bytes at the peak, recorded / simulated, of the categories that differ; and the",
        "largest difference as a part of its category.",
        "",
        "| capture | allocated at the peak | categories that differ | largest difference |",
        "|---|---:|---|---:|",
        *by_category,
    ]


if __name__ == "__main__":
    main()
