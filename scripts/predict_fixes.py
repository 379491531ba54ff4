"""What fixes are predicted to come to on runs that the predictions were not made on, and what they came to.

    python scripts/predict_fixes.py predict DIRECTORY N    # captures without a fix: writes predictions, as round N
    python scripts/predict_fixes.py simulated DIRECTORY    # captures with the fixes: adds what they came to
    python scripts/predict_fixes.py measured DIRECTORY     # the same of a card: the JSON of memprof capture --json

Predictions that are in the file are never changed: only what has none yet is added. What a round missed may have taught
the rules something; the next round is of other runs. What today's rules say stands beside.
"""

# ruff: noqa: INP001, T201 - a script, and the path is set first
from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from memprof.analysis.account import open_account
from memprof.analysis.counterfactual import PREDICTIONS, predict
from memprof.analysis.findings.view import view_of
from memprof.trace import load

TARGET = Path(__file__).parents[1] / "docs" / "study" / "data" / "fixes-held-out.json"
NAME = re.compile(r"(.+)_(.+)_(.+)_seq(\d+)_mbs(\d+)(?:_fix-(.+))?")
SETTINGS = ("model", "precision", "quant", "seq", "mbs")


def main() -> None:
    """Read a directory and add to the file."""
    mode, folder = sys.argv[1], Path(sys.argv[2])
    document = json.loads(TARGET.read_text(encoding="utf-8")) if TARGET.exists() else {"rows": []}
    rows = {_key(row): row for row in document["rows"]}
    {"predict": _predict, "simulated": _simulated, "measured": _measured}[mode](folder, rows, document)
    document["rows"] = list(rows.values())
    TARGET.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    _print(document["rows"])


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return (*(row[name] for name in SETTINGS), row["fix"])


def _predict(folder: Path, rows: dict[Any, Any], document: dict[str, Any]) -> None:
    number = int(sys.argv[3])
    for path in sorted(folder.glob("*.pickle")):
        trace = load(path)
        config = trace.made_by["config"]
        if config.get("fix"):
            continue
        document["predicted_with"] = {"torch": (trace.environment or {}).get("torch"), "source": trace.source.value}
        run = view_of(open_account(trace, trace.devices[0]))
        for fix in PREDICTIONS:
            row = {name: config[name] for name in SETTINGS} | {"fix": fix, "before_bytes": run.peak, "round": number}
            if rows.get(_key(row), {}).get("predicted_bytes") is None:
                rows[_key(row)] = row | {"predicted_bytes": predict(fix, run)}
            rows[_key(row)]["by_todays_rules_bytes"] = predict(fix, run)


def _simulated(folder: Path, rows: dict[Any, Any], document: dict[str, Any]) -> None:  # noqa: ARG001 - called alike
    for path in sorted(folder.glob("*.pickle")):
        trace = load(path)
        config = trace.made_by["config"]
        if config.get("fix"):
            row = rows[_key(config)]
            row["simulated_bytes"] = int(open_account(trace, trace.devices[0]).replay.allocated.max())


def _measured(folder: Path, rows: dict[Any, Any], document: dict[str, Any]) -> None:  # noqa: ARG001 - called alike
    found: dict[Any, int] = {}
    for path in sorted(folder.glob("*.json")):
        named = NAME.fullmatch(path.stem)
        assert named, f"{path.name} is not named after its settings"
        model, precision, quant, seq, mbs, fix = named.groups()
        text = path.read_text(encoding="utf-8")
        if not text:  # it was stopped before it was done
            continue
        made = json.loads(text)
        assert made["source"] == "recorded"
        found[model, precision, quant, int(seq), int(mbs), fix] = made["peak_allocated_bytes"]
    for key, row in rows.items():
        if key in found:
            row["measured_bytes"] = found[key]
            # Of the sweep's own points the run without a fix is in the repository.
            base = found.get((*key[:-1], None))
            if base is not None:
                row["measured_before_bytes"] = base


def _print(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        before, predicted = row["before_bytes"], row["predicted_bytes"]
        line = f"{' '.join(map(str, _key(row))):65} saves, MB: "
        line += "not predicted" if predicted is None else f"predicted {(before - predicted) / 1e6:9.1f}"
        for name, base in (("simulated", before), ("measured", row.get("measured_before_bytes", before))):
            if f"{name}_bytes" in row:
                saved = base - row[f"{name}_bytes"]
                line += f"  {name} {saved / 1e6:9.1f}"
                if predicted is not None and abs(saved) > base / 1000:
                    line += f" ({(before - predicted) / saved - 1:+.2%})"
        print(line)


if __name__ == "__main__":
    main()
