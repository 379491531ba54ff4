"""Findings of files, and of a sweep: those of one configuration together, with what they grow by a sample."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from memprof.analysis.account import open_account
from memprof.analysis.findings.registry import WORTH, find_all

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memprof.analysis.findings.finding import Finding
    from memprof.trace.model import Trace

__all__ = ["Explained", "explain_trace", "merge_sweep"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """What was found on one device of a file, or of the files of one configuration."""

    file: str
    """Of a sweep: the file with the largest micro-batch."""
    device: int
    config: Mapping[str, Any] | None
    """None for a file that memprof did not make."""
    peak: int
    """Bytes allocated at the peak."""
    batches: tuple[int, ...]
    """Micro-batch sizes of the files, in rising order; empty where not known."""
    findings: tuple[Finding, ...]


def explain_trace(trace: Trace, *, worth: float = WORTH) -> tuple[Explained, ...]:
    """Return what is found on every device of a file and takes at least a share `worth` of its peak."""
    config = (trace.made_by or {}).get("config")
    config = config if isinstance(config, dict) else None
    mbs = (config or {}).get("mbs")
    found = []
    for device in trace.devices:
        account = open_account(trace, device)
        found.append(
            Explained(
                file=trace.path,
                device=device.device,
                config=config,
                peak=int(account.replay.allocated.max()),
                batches=(mbs,) if type(mbs) is int else (),
                findings=find_all(account, worth=worth),
            )
        )
    return tuple(found)


def merge_sweep(files: Sequence[Explained]) -> tuple[Explained, ...]:
    """Put the files of each configuration together, however many micro-batch sizes it was run with.

    To be given findings of any size (`worth` 0); one is kept where it is worth a line at some micro-batch. It has its
    bytes at the largest micro-batch that has it, and, where it grows and two sizes have it, the bytes per sample
    between the smallest and the largest of them.
    """
    groups: dict[object, list[Explained]] = {}
    for number, each in enumerate(files):
        key: object = number
        if each.config is not None and each.batches:
            same = sorted((str(name), repr(value)) for name, value in each.config.items() if name != "mbs")
            key = (each.device, tuple(same))
        groups.setdefault(key, []).append(each)
    return tuple(_merge(sorted(members, key=lambda each: each.batches)) for members in groups.values())


def _merge(members: list[Explained]) -> Explained:
    seen: dict[str, list[tuple[int, Finding]]] = {}
    worth: set[str] = set()
    for member in members:
        for finding in member.findings:
            if finding.size >= WORTH * member.peak:
                worth.add(finding.id)
            seen.setdefault(finding.id, []).append((member.batches[0] if member.batches else 0, finding))
    merged = []
    for found in (seen[kind] for kind in seen if kind in worth):
        (low, first), (high, last) = found[0], found[-1]
        grows = last.per_sample is not None and high > low
        merged.append(replace(last, per_sample=(last.size - first.size) / (high - low)) if grows else last)
    return replace(
        members[-1],
        batches=tuple(sorted({batch for member in members for batch in member.batches})),
        findings=tuple(sorted(merged, key=lambda finding: -finding.size)),
    )
