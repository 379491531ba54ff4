"""The peaks of the phases on the console: all of a few, the highest of many."""

from __future__ import annotations

import re
from io import StringIO

import pytest
from rich.console import Console

from memprof.analysis.breakdown import Breakdown, break_down
from memprof.report.console import breakdown_report
from memprof.report.html import breakdown_page
from memprof.report.phases import MOST_PHASES
from memprof.trace.snapshot import read_snapshot


def run_of(steps: int) -> Breakdown:
    """Break down a run in which each step allocates more, but for the last, and one mark precedes each."""
    sizes = [512 * (step + 1) for step in range(steps - 1)] + [1]
    trace, marks, at = [], [], 0
    for step, size in enumerate(sizes):
        marks.append({"device": 0, "entry": len(trace), "name": f"step {step} forward"})
        event = {"addr": at, "size": size, "stream": 0}
        trace += [event | {"action": action} for action in ("alloc", "free_requested", "free_completed")]
        at += 1 << 24
    snapshot = {
        "segments": [],
        "device_traces": [trace],
        "memprof": {"version": 1, "source": "recorded", "marks": marks},
    }
    return break_down(read_snapshot(snapshot))


def printed(steps: int) -> list[str]:
    console = Console(file=StringIO(), width=120)
    console.print(breakdown_report(run_of(steps)))
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


@pytest.mark.parametrize("steps", [3, MOST_PHASES])
def test_few_phases_are_all_listed(steps):
    lines = printed(steps)

    assert sum("forward" in line for line in lines) == steps
    assert not any("more phases" in line for line in lines)


def test_of_many_phases_the_highest_are_listed_in_their_order():
    # when
    lines = printed(MOST_PHASES + 41)

    # then: neither the first forty steps nor the last, which allocates next to nothing
    rows = [int(line.split()[0]) for line in lines if "forward" in line]
    assert rows == list(range(40, 40 + MOST_PHASES))
    assert "... 41 more phases, none with a higher peak: --json has them all" in lines


def test_the_page_lists_the_same_phases_as_the_console():
    # given
    steps = MOST_PHASES + 41

    # when
    page = breakdown_page(run_of(steps))

    # then
    rows = re.findall(r"<td[^>]*>(\d+)</td><td[^>]*>forward</td>", page)
    assert [int(row) for row in rows] == list(range(40, 40 + MOST_PHASES))
    assert "... 41 more phases, none with a higher peak: --json has them all" in page
