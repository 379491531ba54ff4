"""Which category grows, where the columns cross, and the whole difference down to tensors."""

# ruff: noqa: ISC004, E501 - prose in lists of paragraphs
from __future__ import annotations

from itertools import pairwise
from typing import Any

from memprof.analysis.compare import Comparison, compare
from memprof.categories.category import CATEGORIES
from memprof.report.compare_json import compare_json
from memprof.trace import load
from study_pages_parts.data import (
    BATCHES,
    QUANTS,
    SWEEP,
    document,
    gb,
    markdown,
    mb,
    measured_growth,
    measured_points,
    row,
)
from study_pages_parts.layers import layers_together
from study_pages_parts.plot import bars, lines

SHOWN = 16
NAMES = {"none": "plain", "bnb.nf4": "nf4"}
COLOURS = {"none": "#1f77b4", "bnb.nf4": "#d62728"}


def comparison(mbs: int) -> Comparison:
    """Return nf4 against plain on the H200 at one micro-batch size."""
    plain, quantized = (load(SWEEP / f"pythia-70m_16-mixed_{quant}_seq1037_mbs{mbs}.pickle") for quant in QUANTS)
    return compare(plain, quantized)


def crossing(part: str) -> float | None:
    """Return where two simulated columns cross, on the lines between neighbouring points."""
    gap = {}
    for mbs in BATCHES:
        plain, quantized = (row(part, quant=quant, mbs=mbs) for quant in QUANTS)
        if plain and quantized and plain["status"] == quantized["status"] == "ok":
            gap[mbs] = quantized["allocated"] - plain["allocated"]
    known = sorted(gap)
    for low, high in pairwise(known):
        if gap[low] < 0 <= gap[high]:
            return low + (high - low) * -gap[low] / (gap[high] - gap[low])
    return None


def pages() -> dict[str, str]:
    """Return the page."""
    growth = measured_growth()
    groups = {str(group.config["quant"]): group for group in growth.groups}
    body = []
    for category in CATEGORIES:
        fits = [groups[quant].categories[category] for quant in QUANTS]
        plain, quantized = (float(fit.line.slope) for fit in fits)
        fixed = [float(fit.line.fixed) for fit in fits]
        if any(plain_or for plain_or in (plain, quantized, *fixed)):
            body.append(
                [category.value, mb(plain), mb(quantized), mb(quantized - plain), mb(fixed[0]), mb(fixed[1])],
            )
    totals = [groups[quant].total for quant in QUANTS]
    slopes = [float(fit.line.slope) for fit in totals]
    body.append(
        [
            "**allocated**",
            mb(slopes[0]),
            mb(slopes[1]),
            mb(slopes[1] - slopes[0]),
            mb(float(totals[0].line.fixed)),
            mb(float(totals[1].line.fixed)),
        ]
    )
    cross = growth.crossovers[0]
    sign = 1 if growth.groups[cross.b].config["quant"] == "bnb.nf4" else -1
    predicted = (float(totals[0].line.fixed) - float(totals[1].line.fixed)) / (slopes[1] - slopes[0])
    then = crossing("h200-2023")
    text = [
        "# What a sample costs, and the whole difference\n",
        "Measured on an H200 with today's packages (`traces/sweep-pythia-70m`), MB of 10^6 bytes: least squares over mbs "
        "1 to 32. `memprof growth traces/sweep-pythia-70m` prints the same with errors and breaks.\n",
        markdown(["category", "plain, a sample", "nf4, a sample", "nf4 - plain", "plain, fixed", "nf4, fixed"], body),
        "![bytes a sample, by category](cost.svg)\n",
        "## Crossover\n",
        f"Between the measured points: mbs {float(cross.at):.1f} (between {float(cross.low):.1f} and "
        f"{float(cross.high):.1f}). From slopes and fixed parts alone: {predicted:.1f}. "
        + (f"With the packages of 2023 (simulated H200): {then:.1f}." if then else "")
        + " Below it nf4 needs less memory, above it plain does.\n",
        "![allocated over mbs, measured](crossover.svg)\n",
        "What a sample costs more with nf4 (+) or plain (-): the causes of half a MB and more (measured, between mbs 16 and 32):\n",
        markdown(
            ["MB a sample", "category", "where", "op", "dtype"],
            [
                [
                    f"{sign * float(cause.per_sample) / 1e6:+.1f}",
                    " ".join(filter(None, (cause.category.value, cause.finer))),
                    f"`{cause.module}`" if cause.module else "not known",
                    f"`{_arrow(*(cause.op_a, cause.op_b)[::sign])}`",
                    _arrow(*(cause.dtype_a, cause.dtype_b)[::sign]),
                ]
                for cause in cross.causes
                if abs(cause.per_sample) >= 500_000
            ],
            left=0,
        ).replace("|---:|---:|---:|---:|---:|", "|---:|---|---|---|---|"),
    ]
    for mbs in (1, 16, 32):
        document_ = compare_json(comparison(mbs))
        rows = layers_together(document_["rows"])
        assert sum(each["difference_bytes"] for each in rows) == document_["difference_bytes"]
        rest = rows[SHOWN:]
        text.append(f"## The whole difference at mbs {mbs}, measured\n")
        text.append(
            f"nf4 - plain = {document_['difference_bytes']:+,} bytes. The rows sum to it to the byte "
            f"({len(rest)} smaller rows are one line here).\n"
        )
        text.append(_rows(rows[:SHOWN], len(rest), sum(each["difference_bytes"] for each in rest)))
    old = document("simulated").get("compared", {}).get("h200-2023")
    if old:
        text.append(f"## The same with the packages of 2023, simulated H200, mbs {old['mbs']}\n")
        text.append(f"nf4 - plain = {old['difference_bytes']:+,} bytes.\n")
        text.append(_rows(old["rows"], old["others"], old["others_bytes"]))
    text.append(
        "## Commands\n\n```\nmemprof growth traces/sweep-pythia-70m --by op\n"
        "memprof compare traces/sweep-pythia-70m/pythia-70m_16-mixed_none_seq1037_mbs16.pickle \\\n"
        "    traces/sweep-pythia-70m/pythia-70m_16-mixed_bnb.nf4_seq1037_mbs16.pickle\n```\n"
    )
    return {"cost.md": "\n".join(text), "cost.svg": _plot(groups), "crossover.svg": _crossing_plot()}


def _plot(groups: dict[str, Any]) -> str:
    """Draw what a sample costs in each category that grows."""
    found = []
    for category in CATEGORIES:
        each = {NAMES[quant]: float(groups[quant].categories[category].line.slope) / 1e6 for quant in QUANTS}
        if any(abs(value) >= 0.5 for value in each.values()):
            found.append((category.value, each))
    found.append(("allocated", {NAMES[quant]: float(groups[quant].total.line.slope) / 1e6 for quant in QUANTS}))
    return bars(
        found, {NAMES[quant]: COLOURS[quant] for quant in QUANTS}, x="MB a sample, measured (H200), mbs 1 to 32"
    )


def _crossing_plot() -> str:
    """Draw the two measured columns."""
    series = [
        (
            f"{NAMES[quant]}, H200",
            COLOURS[quant],
            {mbs: measured_points()[quant, mbs].figures.peak.size / 1e9 for mbs in BATCHES},
            True,
        )
        for quant in QUANTS
    ]
    return lines(series, x="micro batch size", y="allocated, GB")


def _rows(rows: list[dict[str, Any]], others: int, others_bytes: int) -> str:
    body = [
        [
            f"{each['difference_bytes'] / 1e6:+,.1f}",
            " ".join(filter(None, (each["category"], each.get("finer")))),
            f"`{each.get('module') or each.get('parameter') or each.get('caller') or 'not known'}`",
            f"`{_arrow(each.get('op_a'), each.get('op'))}`",
            _arrow(each.get("dtype_a"), each.get("dtype_b")),
        ]
        for each in rows
    ]
    body.append([f"{others_bytes / 1e6:+,.1f}", f"{others} others", "", "", ""])
    table = markdown(["MB", "category", "where", "op", "dtype"], body)
    return table.replace("|---|---:|---:|---:|---:|", "|---:|---|---|---|---|")


def _arrow(a: str | None, b: str | None) -> str:
    if a == b or a is None or b is None:
        return b or a or ""
    return f"{a} → {b}"


def total(part: str, quant: str, mbs: int) -> str:
    """Return allocated GB of a simulated capture."""
    found = row(part, quant=quant, mbs=mbs)
    return gb(found["allocated"], 3) if found else "-"
