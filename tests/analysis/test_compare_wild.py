"""Other people's snapshots, compared with each other and drawn: whatever they hold, the sums are right."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

import memprof
from memprof.analysis.compare import compare
from memprof.report.html import breakdown_page

WILD = Path(__file__).parents[2] / "../shared/wild"
FILES = sorted(WILD.glob("*.pickle"))
pytestmark = [
    pytest.mark.wild,
    pytest.mark.skipif(not FILES, reason="other people's snapshots are not in the repository"),
]


@pytest.fixture(scope="module")
def traces():
    return [memprof.load(path) for path in FILES]


def test_rows_of_every_pair_sum_to_the_difference(traces):
    for a, b in itertools.permutations(traces, 2):
        result = compare(a, b)

        assert sum(change.bytes_a for change in result.changes) == result.a.state.allocated
        assert sum(change.bytes_b for change in result.changes) == result.b.state.allocated


def test_every_file_becomes_a_page(traces):
    for trace in traces:
        assert Path(trace.path).name in breakdown_page(memprof.break_down(trace))
