"""What the fixes of a sweep save: runs with a fix beside the same runs without, and what was predicted of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memprof.analysis.account import open_account
from memprof.analysis.counterfactual import PREDICTIONS, predict
from memprof.analysis.findings.view import view_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memprof.trace.model import Trace

__all__ = ["Saving", "measure_savings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """One fix on one run: three allocated peaks, in bytes."""

    fix: str
    config: Mapping[str, Any]
    """Of the run without the fix; with its source and card."""
    before: int
    predicted: int | None
    """From the run without the fix; None where that does not tell."""
    after: int
    """Of the run with the fix."""


def measure_savings(traces: Sequence[Trace]) -> tuple[Saving, ...]:
    """Pair each run that has a fix with the same run without it, and predict from that what it came to.

    Runs without their counterpart, those of other recipes and those that ran out of memory are passed over.
    """
    runs = {}
    for trace in traces:
        made_by = trace.made_by or {}
        config = made_by.get("config")
        if isinstance(config, dict) and trace.devices and made_by.get("status") == "ok":
            where = {"source": trace.source.value, "card": (trace.environment or {}).get("card")}
            full = {**where, "recipe": made_by.get("recipe"), **config}
            runs[_key(full)] = (full, trace)
    found = []
    for config, trace in runs.values():
        fix = config.get("fix")
        base = {name: value for name, value in config.items() if name != "fix"}
        if fix not in PREDICTIONS or _key(base) not in runs:
            continue
        before = runs[_key(base)][1]
        own = view_of(open_account(before, before.devices[0]))
        after = view_of(open_account(trace, trace.devices[0])).peak
        found.append(Saving(fix=fix, config=base, before=own.peak, predicted=predict(fix, own), after=after))
    order = list(PREDICTIONS)
    return tuple(sorted(found, key=lambda each: (order.index(each.fix), str(each.config["quant"]), each.config["mbs"])))


def _key(config: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, repr(value)) for name, value in config.items()))
