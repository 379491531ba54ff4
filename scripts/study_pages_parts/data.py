"""What the pages are made of: the committed files, read."""

from __future__ import annotations

import csv
import json
from functools import cache
from pathlib import Path
from typing import Any

from memprof.analysis.growth import measure_growth
from memprof.analysis.sweep_folder import read_folder

ROOT = Path(__file__).parents[2]
DATA = ROOT / "docs" / "study" / "data"
SWEEP = ROOT / "traces" / "sweep-pythia-70m"
BATCHES = (1, 2, 4, 8, 16, 32)
QUANTS = ("none", "bnb.nf4")


@cache
def reported() -> dict[tuple[str, int], tuple[float, float, str]]:
    """Return what the report states: (quantization, mbs) to allocated and nvidia-smi in GB, and the card."""
    lines = [line for line in (DATA / "reported.csv").read_text(encoding="utf-8").splitlines() if line[:1] != "#"]
    found = {}
    for row in csv.DictReader(lines):
        found["none", int(row["mbs"])] = (float(row["allocated_GB"]), float(row["nvidia_smi_GB"]), row["card"])
        found["bnb.nf4", int(row["mbs"])] = (
            float(row["allocated_nf4_GB"]),
            float(row["nvidia_smi_nf4_GB"]),
            row["card"],
        )
    return found


@cache
def stated(report: str) -> dict[str, float]:
    """Return the GB that a public report states, by quantization."""
    lines = [line for line in (DATA / "issues.csv").read_text(encoding="utf-8").splitlines() if line[:1] != "#"]
    return {row["quant"]: float(row["stated_GB"]) for row in csv.DictReader(lines) if row["report"] == report}


@cache
def document(name: str) -> dict[str, Any]:
    """Return ``simulated`` or ``measured``; an empty one where it is not there."""
    path = DATA / f"{name}.json"
    if not path.exists():
        return {"parts": {}, "fixes": [], "environment": {}}
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def rows(part: str, name: str = "simulated", **wanted: Any) -> list[dict[str, Any]]:
    """Return the captures of one part that have the wanted settings."""
    found = document(name)["parts"].get(part, [])
    return [row for row in found if all(row.get(key) == value for key, value in wanted.items())]


def row(part: str, name: str = "simulated", **wanted: Any) -> dict[str, Any] | None:
    """Return the one capture; None if there is none."""
    found = rows(part, name, **wanted)
    return found[0] if found else None


@cache
def measured_points() -> dict[tuple[str, int], Any]:
    """Return the points of the committed H200 sweep by quantization and mbs."""
    points = read_folder(SWEEP).points
    return {(str(point.config["quant"]), int(point.config["mbs"])): point for point in points}


@cache
def measured_growth() -> Any:
    """Return the growth of the committed H200 sweep."""
    return measure_growth(read_folder(SWEEP).points)


def gb(size: float | None, digits: int = 2) -> str:
    """Write bytes in GB of 10^9, as the report does."""
    return "-" if size is None else f"{size / 1e9:.{digits}f}"


def mb(size: float) -> str:
    """Write bytes in MB of 10^6."""
    return f"{size / 1e6:,.1f}"


def percent(ours: float, theirs: float) -> str:
    """Write how far `ours` is from `theirs`."""
    return f"{(ours / theirs - 1) * 100:+.1f} %"


def slope(values: dict[int, float]) -> float:
    """Return the least-squares slope over mbs."""
    n = len(values)
    mean_x, mean_y = sum(values) / n, sum(values.values()) / n
    top = sum((x - mean_x) * (y - mean_y) for x, y in values.items())
    return top / sum((x - mean_x) ** 2 for x in values)


def markdown(head: list[str], body: list[list[str]], *, left: int = 1) -> str:
    """Write a table; the first `left` columns are text."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * left + "---:|" * (len(head) - left)]
    return "\n".join(lines + ["| " + " | ".join(line) + " |" for line in body]) + "\n"
