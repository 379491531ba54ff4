"""Write docs/wider.md: what was predicted for runs that nobody had measured, beside what an H200 then said.

    python scripts/wider_table.py

Reads docs/wider-predictions.json, written before, and docs/wider-measured.json, written after.
"""

# ruff: noqa: INP001 - a folder of scripts is no package
from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"


def main() -> None:
    """Put both files side by side."""
    predicted = json.loads((DOCS / "wider-predictions.json").read_text(encoding="utf-8"))
    measured = json.loads((DOCS / "wider-measured.json").read_text(encoding="utf-8"))
    guesses = {each["case"]: each for each in predicted["predicted"]}
    lines, errors = [], {"allocated": [], "reserved": []}
    for case, truth in sorted(measured["measured"].items()):
        if case in measured["not_comparable"]:
            continue
        guess = guesses[case]
        cells = [case.replace("_", " ")]
        for name in ("allocated", "reserved"):
            error = guess[name] / truth[name] - 1
            errors[name].append(abs(error))
            cells += [f"{truth[name]:,}", f"{guess[name]:,}", "0" if guess[name] == truth[name] else f"{error:+.3%}"]
        cells.append(fails(truth, guess))
        lines.append("| " + " | ".join(cells) + " |")
    exact = {name: sum(error == 0 for error in values) for name, values in errors.items()}
    middle = {name: statistics.median(values) for name, values in errors.items()}
    worst = {name: max(values) for name, values in errors.items()}
    columns = ["run"]
    for name in ("allocated", "reserved"):
        columns += [f"{name}, measured", "predicted", "error"]
    columns.append("first batch that does not fit, measured / predicted")
    head = [
        "# Predicted before it was measured",
        "",
        "Runs that the simulation had never been compared with (`scripts/wider_runs.py`). Predicted:",
        f"{predicted['made_by']}. Measured: {measured['made_by']}.",
        "",
        f"Of {len(lines)} runs, {exact['allocated']} meet allocated to the byte and {exact['reserved']} reserved;",
        f"the median error is {middle['allocated']:.1%} and {middle['reserved']:.1%},",
        f"the worst {worst['allocated']:.1%} and {worst['reserved']:.1%}. Written by `scripts/wider_table.py`.",
        *(f"Left out: {case}, {why}." for case, why in measured["not_comparable"].items()),
        "",
        "| " + " | ".join(columns) + " |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    (DOCS / "wider.md").write_text("\n".join([*head, *lines]) + "\n", encoding="utf-8")


def fails(truth: dict[str, Any], guess: dict[str, Any]) -> str:
    """Say where a capped run fails, measured and predicted."""
    return "" if truth["failed_at"] is None else f"{truth['failed_at']} / {guess['failed_at']}"


if __name__ == "__main__":
    main()
