"""Boil the captures of the study down to docs/study/data: python scripts/study_collect.py DIRECTORY NAME.

DIRECTORY has one folder of captures for each part (`scripts/study_simulate.sh`, `scripts/study_gpu.sh`); what is
kept of each capture are its settings, where it ran, and its account at the peak. NAME is ``simulated`` or ``measured``.
"""

# ruff: noqa: INP001, T201, E402 - a script, and the path is set first
from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]

from study_pages_parts.layers import layers_together

from memprof.analysis.compare import compare
from memprof.analysis.savings import measure_savings
from memprof.analysis.sweep import point_of
from memprof.report.compare_json import compare_json
from memprof.report.fixes import fixes_json
from memprof.trace import load

DATA = Path(__file__).parents[1] / "docs" / "study" / "data"
SETTINGS = ("recipe", "model", "precision", "quant", "seq", "mbs", "fix", "matmul_4bit", "fabric_output", "optimizer")
SWITCHES = ("prepare_kbit", "gradient_checkpointing")
PAIR = "h200-2023"
SHOWN = 16
BASE = Path(__file__).parents[1] / "traces" / "sweep-pythia-70m"


def main() -> None:
    """Read every folder of a directory and write one file of JSON."""
    source, name = Path(sys.argv[1]), sys.argv[2]
    parts: dict[str, list[dict[str, Any]]] = {}
    fixed = []
    environment: dict[str, Any] = {}
    for folder in sorted(path for path in source.iterdir() if path.is_dir()):
        for path in sorted(folder.glob("*.pickle")):
            trace = load(path)
            parts.setdefault(folder.name, []).append(_row(trace, path.name))
            environment = dict(trace.environment or {})
            if folder.name == "fixes":
                fixed.append(trace)
    # A card is measured with the fixes only: the runs without them are in the repository.
    if name == "measured":
        fixed += [load(path) for path in sorted(BASE.glob("*.pickle"))]
    pairs = {}
    if (source / PAIR).is_dir():
        pairs = {PAIR: _difference(source / PAIR)}
    kept = ("torch", "cuda", "python", "packages", "driver")
    document = {
        "source": name,
        "environment": {key: environment[key] for key in kept if environment.get(key)},
        "parts": parts,
        "compared": pairs,
        "fixes": [_saving(row) for row in fixes_json(measure_savings(fixed))["fixes"]],
    }
    DATA.mkdir(parents=True, exist_ok=True)
    target = DATA / f"{name}.json"
    target.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    print(f"wrote {target.name}: {sum(map(len, parts.values()))} captures")


def _difference(folder: Path) -> dict[str, Any]:
    """Return what nf4 has more than plain at mbs 16, and the largest rows of it; the rest is one number."""
    plain, quantized = (load(next(folder.glob(f"*_{quant}_*mbs16.pickle"))) for quant in ("none", "bnb.nf4"))
    document = compare_json(compare(plain, quantized))
    rows = layers_together(document["rows"])
    assert sum(row["difference_bytes"] for row in rows) == document["difference_bytes"]
    kept = (
        "category",
        "finer",
        "module",
        "parameter",
        "caller",
        "op",
        "op_a",
        "dtype_a",
        "dtype_b",
        "difference_bytes",
    )
    return {
        "mbs": 16,
        "difference_bytes": document["difference_bytes"],
        "rows": [{key: row[key] for key in kept if row[key] is not None} for row in rows[:SHOWN]],
        "others": len(rows[SHOWN:]),
        "others_bytes": sum(row["difference_bytes"] for row in rows[SHOWN:]),
    }


def _row(trace: Any, name: str) -> dict[str, Any]:
    point = point_of(trace, name)
    figures = point.figures
    assert figures is not None
    settings = {key: point.config[key] for key in (*SETTINGS, *SWITCHES) if point.config.get(key)}
    row = {
        **settings,
        "source": point.source,
        "card": point.config.get("card"),
        "status": point.status,
        "reason": point.reason,
        "allocated": figures.peak.size,
        "reserved": figures.reserved,
        "device_used": figures.device_used,
        "peak": f"{figures.place.op} of {figures.place.phase}" if point.labelled else None,
        "categories": {
            c.value: amount.size for c, amount in figures.categories.items() if amount.size and point.labelled
        },
    }
    if point.labelled:
        causes = sorted(figures.causes.items(), key=lambda item: -item[1].size)[:8]
        row["causes"] = [
            [cause.category.value, cause.finer, cause.module, cause.op, cause.dtype, amount.size]
            for cause, amount in causes
        ]
    return {key: value for key, value in row.items() if value not in (None, {}, [])}


def _saving(row: dict[str, Any]) -> dict[str, Any]:
    config = {key: row["config"][key] for key in ("model", "precision", "quant", "seq", "mbs", "source", "card")}
    return {**row, "config": config}


if __name__ == "__main__":
    main()
