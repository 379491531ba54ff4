"""Findings: causes of memory, each with its bytes, its evidence and what to change."""

from __future__ import annotations

from memprof.analysis.findings.finding import Certainty, Evidence, Finding
from memprof.analysis.findings.registry import FINDINGS, find_all, top_finding
from memprof.analysis.findings.sweep import Explained, explain_trace, merge_sweep

__all__ = [
    "FINDINGS",
    "Certainty",
    "Evidence",
    "Explained",
    "Finding",
    "explain_trace",
    "find_all",
    "merge_sweep",
    "top_finding",
]
