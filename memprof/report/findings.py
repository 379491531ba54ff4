"""Findings for people and for machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Group as Lines
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from memprof.report.text import clean
from memprof.units import format_bytes, format_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memprof.analysis.findings import Evidence, Explained, Finding

__all__ = ["evidence_table", "finding_json", "finding_line", "findings_json", "findings_report"]

SHOWN = 6
"""Evidence rows shown of a finding; the JSON has all."""


def finding_line(finding: Finding) -> Text:
    """Render a finding as the end of another report."""
    text = Text("most important finding: ", style="bold")
    text.append(clean(finding.title, 300), style="default")
    text.append(f"\n{clean(finding.fix, 400)} All findings: memprof explain", style="dim")
    return text


def findings_report(explained: Sequence[Explained]) -> Lines:
    """Render everything that was found."""
    parts: list[RenderableType] = []
    for each in explained:
        parts.append(_header(each, several=len({other.device for other in explained}) > 1))
        if not each.findings:
            parts.append(Text("nothing found: none of the causes that memprof knows takes 0.5 % of the peak\n"))
        for number, finding in enumerate(each.findings, 1):
            parts += _finding(number, finding)
    return Lines(*parts)


def findings_json(explained: Sequence[Explained]) -> list[dict[str, Any]]:
    """Turn everything that was found into plain values."""
    return [
        {**finding_json(finding), "file": each.file, "device": each.device}
        for each in explained
        for finding in each.findings
    ]


def finding_json(finding: Finding) -> dict[str, Any]:
    """Turn one finding into plain values."""
    return {
        "id": finding.id,
        "title": finding.title,
        "category": finding.category,
        "bytes": finding.size,
        "bytes_per_sample": finding.per_sample,
        "gives_back_bytes": finding.gives_back,
        "certainty": finding.certainty.value,
        "evidence": [_evidence_json(row) for row in finding.evidence],
        "fix": finding.fix,
    }


def _evidence_json(row: Evidence) -> dict[str, Any]:
    return {
        "module": row.module,
        "op": row.op,
        "dtype": row.dtype,
        "bytes": row.size,
        "count": row.count,
        "where": row.where,
    }


def _header(each: Explained, *, several: bool) -> Text:
    text = Text(clean(each.file), style="bold")
    if several:
        text.append(f", device {each.device}")
    if each.config is not None:
        facts = [str(each.config[key]) for key in ("model", "precision", "quant") if each.config.get(key) is not None]
        batches = ", ".join(map(str, each.batches))
        facts += [f"mbs {batches}"] if batches else []
        text.append(f"\n{clean(', '.join(facts))}", style="default")
    text.append(f"\n{format_bytes(each.peak)} allocated at the peak\n", style="default")
    return text


def _finding(number: int, finding: Finding) -> list[RenderableType]:
    title = Text(f"{number}. {clean(finding.title, 300)}", style="bold")
    share = f"{finding.id}, {finding.category}, {finding.certainty.value}"
    if finding.per_sample is not None:
        share += f", {format_bytes(round(finding.per_sample))} per sample"
    if finding.gives_back is not None:
        lower = format_bytes(finding.gives_back) if finding.gives_back > 0 else "no"
        share += f"; without it the peak is {lower} lower"
    indent = (0, 0, 0, 3)
    return [
        title,
        Padding(Text(share, style="dim"), indent),
        Padding(evidence_table(finding), indent),
        Padding(Text(f"fix: {clean(finding.fix, 400)}"), (0, 0, 1, 3)),
    ]


def evidence_table(finding: Finding, shown: int = SHOWN) -> Table:
    """Render the rows that a finding rests on, largest first."""
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(justify="right")
    table.add_column(justify="right")
    for _ in range(3):
        table.add_column(overflow="fold")
    for row in finding.evidence[:shown]:
        table.add_row(
            format_bytes(row.size),
            f"{format_count(row.count)} x",
            clean("(the model itself)" if row.module == "" else row.module or row.where or "", 80),
            clean(row.op or "", 60),
            clean(row.dtype or "", 20),
        )
    rest = finding.evidence[shown:]
    if rest:
        table.add_row(
            format_bytes(sum(row.size for row in rest)),
            f"{format_count(sum(row.count for row in rest))} x",
            f"in {len(rest)} other groups",
            "",
            "",
        )
    return table
