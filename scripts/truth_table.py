# ruff: noqa: INP001  # a script, not a package
"""Write docs/wider.md, truth.md, third.md, fourth.md and fifth.md: runs that were predicted before they were measured.

    python scripts/truth_table.py

Reads ``docs/ROUND-predictions.json`` (committed before any of the round was measured), what an H200 recorded
(``tests/simulate/data/ROUND_runs_h200.json.gz``), and ``docs/ROUND-now.json``: predictions by the simulator as it is,
after what was off had been looked into; where there is none, nothing has changed since. A round that is not measured
yet has a page of predictions alone, one that is not predicted yet has none.
"""

from __future__ import annotations

import gzip
import json
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FIGURES = ("allocated", "reserved")


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Runs that were predicted, and then measured."""

    name: str
    title: str
    text: str
    causes: dict[str, str]
    """Why a run was off, by case."""


def main() -> None:
    """Write a page for each round."""
    for each in json.loads((ROOT / "docs/rounds.json").read_text(encoding="utf-8")):
        write(Round(**each))


def write(page: Round) -> None:
    """Put the files of a round side by side."""
    if not (ROOT / f"docs/{page.name}-predictions.json").exists():
        return
    predicted = _read(ROOT / f"docs/{page.name}-predictions.json")
    recording = ROOT / f"tests/simulate/data/{page.name}_runs_h200.json.gz"
    if not recording.exists():
        write_unmeasured(page, predicted)
        return
    again = ROOT / f"docs/{page.name}-now.json"
    now = _read(again) if again.exists() else predicted
    measured = json.loads(gzip.decompress(recording.read_bytes()))
    truths = {run["case"]: run for run in measured["runs"]}
    before = {each["case"]: each for each in predicted["predicted"]}
    after = {each["case"]: each for each in now["predicted"]}
    lines = [line(truths[case], before[case], after[case]) for case in sorted(truths)]
    told = [case for case in sorted(truths) if "allocated" in before[case]]
    refused = [case for case in sorted(before) if "allocated" not in before[case]]
    columns = ["run"]
    for figure in FIGURES:
        columns += [f"{figure}, measured", "predicted before", "error", "error now"]
    text = [
        f"# {page.title}",
        "",
        *page.text.splitlines(),
        "",
        f"Predicted before: {predicted['made_by']}. Measured: {measured['made_by']}.",
        f"Now: {now['made_by']}.",
        "",
        *(f"- {summary(name, told, truths, found)}" for name, found in (("before", before), ("now", after))),
        *(f"- Refused, and so not predicted: {case}, {before[case].get('refused', '')}." for case in refused),
        "",
        "| " + " | ".join([*columns, "first batch that does not fit, measured / predicted"]) + " |",
        "|---|" + "---:|" * 9,
        *lines,
        *causes(page),
        *addresses(truths, after),
    ]
    (ROOT / f"docs/{page.name}.md").write_text("\n".join(text) + "\n", encoding="utf-8")


def causes(page: Round) -> list[str]:
    """Say why runs were off."""
    if not page.causes:
        return []
    reasons = (f"- **{case.replace('_', ' ')}**: {cause}" for case, cause in page.causes.items())
    return ["", "## What was off, and why", "", *reasons]


def write_unmeasured(page: Round, predicted: dict[str, Any]) -> None:
    """Say what was predicted of a round that nobody has measured yet."""
    rows = []
    for each in predicted["predicted"]:
        cells = [each["case"].replace("_", " ")]
        for figure in FIGURES:
            if figure in each:
                low, high = each[f"{figure}_range"]
                cells += [f"{each[figure]:,}", f"{low:,} to {high:,}"]
            else:
                cells += ["refused", ""]
        cells.append(str(each.get("failed_at") or ""))
        rows.append("| " + " | ".join(cells) + " |")
    columns = ["run"]
    for figure in FIGURES:
        columns += [f"{figure}, predicted", "by address"]
    refused = [each for each in predicted["predicted"] if "refused" in each]
    text = [
        f"# {page.title}",
        "",
        *page.text.splitlines(),
        "",
        f"Predicted: {predicted['made_by']}. **Not measured yet**: nothing here says how good these predictions are.",
        "",
        *(f"- Refused, and so not predicted: {each['case']}, {each['refused']}." for each in refused),
        "",
        "| " + " | ".join([*columns, "first batch that does not fit, predicted"]) + " |",
        "|---|" + "---:|" * 5,
        *rows,
    ]
    (ROOT / f"docs/{page.name}.md").write_text("\n".join(text) + "\n", encoding="utf-8")


def line(truth: dict[str, Any], before: dict[str, Any], after: dict[str, Any]) -> str:
    """Write one row."""
    cells = [truth["case"].replace("_", " ")]
    for figure in FIGURES:
        guess = f"{before[figure]:,}" if figure in before else "refused"
        cells += [f"{truth[figure]:,}", guess, error(truth, before, figure), error(truth, after, figure)]
    cells.append("" if truth["failed_at"] is None else f"{truth['failed_at']} / {before.get('failed_at', 'refused')}")
    return "| " + " | ".join(cells) + " |"


def error(truth: dict[str, Any], guess: dict[str, Any], figure: str) -> str:
    """Return the relative error in words."""
    if figure not in guess:
        return ""
    return "0" if guess[figure] == truth[figure] else f"{guess[figure] / truth[figure] - 1:+.3%}"


def summary(name: str, cases: list[str], truths: dict[str, Any], found: dict[str, Any]) -> str:
    """Say how good the predictions of a round are."""
    parts = []
    for figure in FIGURES:
        errors = [abs(found[case][figure] / truths[case][figure] - 1) for case in cases]
        exact = sum(each == 0 for each in errors)
        middle, worst = statistics.median(errors), max(errors)
        parts.append(f"{figure} to the byte in {exact}, median error {middle:.3%}, worst {worst:.3%}")
    inside = sum(_inside(found[case].get("reserved_range"), truths[case]["reserved"]) for case in cases)
    ranges = f"; the range of reserved by address holds the measured figure in {inside}" if inside else ""
    return f"{name.capitalize()}: of {len(cases)} runs, {'; '.join(parts)}{ranges}."


def addresses(truths: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """Say which differences are gone where segments are placed as the recorded run's driver placed them."""
    rows = []
    for case, guess in sorted(found.items()):
        replayed, truth = guess.get("at_recorded_addresses"), truths.get(case)
        if truth is None or not replayed or all(guess[figure] == truth[figure] for figure in FIGURES):
            continue
        if any(value != truth[figure] for figure, value in zip(FIGURES, replayed, strict=True)):
            continue  # something else is off as well
        cells = [case.replace("_", " ")]
        for figure, value in zip(FIGURES, replayed, strict=True):
            low, high = guess[f"{figure}_range"]
            cells += [f"{truth[figure]:,}", f"{guess[figure]:,}", f"{low:,} to {high:,}", f"{value:,}"]
        rows.append("| " + " | ".join(cells) + " |")
    if not rows:
        return []
    columns = ["run"]
    for figure in FIGURES:
        columns += [f"{figure}, measured", "predicted now", "by address", "at the recorded addresses"]
    return [
        "",
        "## What addresses decide",
        "",
        "A free block is chosen by size, then by address, and a block that is up to 1 MiB too large is handed out",
        "whole: where the driver puts segments decides both peaks a little. It is modelled, not known. Here the",
        "simulated run is replayed with its segments where the measured run's were.",
        "",
        "| " + " | ".join(columns) + " |",
        "|---|" + "---:|" * 8,
        *rows,
    ]


def _inside(limits: list[int] | None, value: int) -> bool:
    return limits is not None and limits[0] <= value <= limits[1]


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


if __name__ == "__main__":
    main()
