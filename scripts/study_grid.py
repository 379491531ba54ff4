"""Keep the peaks of the grid of models, precisions and quantizations.

    python scripts/study_grid.py LINES|DIRECTORY NAME

LINES is what ``study_simulate.py`` printed (one JSON a run), DIRECTORY has what ``study_cell.py --json`` printed, a
file a run whose name is the point's. NAME is ``simulated`` or ``measured``. Writes ``docs/study/data/grid-NAME.json``.
"""

# ruff: noqa: INP001, T201 - a script
from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[1] / "docs" / "study" / "data"
POINT = re.compile(r"(?P<model>.+)_(?P<precision>[^_]+)_(?P<quant>[^_]+)_seq(?P<seq>\d+)_mbs(?P<mbs>\d+)$")


def main() -> None:
    """Read the runs and write them, sorted."""
    source, name = Path(sys.argv[1]), sys.argv[2]
    rows = [found for file, run in _runs(source) if (found := _row(file, run))]
    rows.sort(key=lambda row: (row["model"], row["precision"], row["quant"], row["mbs"]))
    lines = ",\n".join(json.dumps(row, sort_keys=True) for row in rows)
    target = DATA / f"grid-{name}.json"
    target.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    print(f"wrote {target.name}: {len(rows)} runs")


def _runs(source: Path) -> list[tuple[str, dict[str, Any]]]:
    if source.is_dir():
        found = []
        for path in sorted(source.glob("*.json")):
            text = path.read_text(encoding="utf-8")
            if "{" in text:
                found.append((path.stem, json.loads(text[text.index("{") :])))
        return found
    lines = [json.loads(line) for line in source.read_text(encoding="utf-8").splitlines() if line.startswith("{")]
    return [(line["file"].removesuffix(".pickle"), line) for line in lines]


def _row(file: str, run: dict[str, Any]) -> dict[str, Any] | None:
    point = POINT.match(file)
    if point is None:
        return None
    values: dict[str, Any] = point.groupdict()
    values.update(seq=int(values["seq"]), mbs=int(values["mbs"]), status=run["status"])
    values["allocated"] = run.get("allocated", run.get("peak_allocated_bytes"))
    values["reserved"] = run.get("reserved", run.get("max_reserved_bytes"))
    return values


if __name__ == "__main__":
    main()
