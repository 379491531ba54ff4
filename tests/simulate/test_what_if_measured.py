"""A recording under other settings, against the same program measured under them: twins recorded on an H200."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import pytest

from memprof.allocator.conf import parse_alloc_conf
from memprof.allocator.whatif import what_if
from memprof.trace import load

sys.path.insert(0, str(Path(__file__).parent))
from recorded_runs import DATA, recorded_runs


@pytest.mark.parametrize("name", ["llama", "unet", "neox_lora"])
def test_expandable_segments_are_foretold(name: str, tmp_path: Path) -> None:
    # given a run recorded without expandable segments, and the same run measured with them
    path = tmp_path / "run.pickle"
    path.write_bytes(gzip.decompress((DATA / f"not_expandable_{name}.pickle.gz").read_bytes()))
    trace = load(path)
    without = recorded_runs("truth_runs")[f"{name}_not_expandable"]
    measured = recorded_runs("truth_runs")[f"{name}_expandable"]
    # when the recording is replayed under the setting
    recorded = parse_alloc_conf("")
    answer = what_if(trace.devices[0], recorded, parse_alloc_conf("expandable_segments:True"), trace.source)
    # then both peaks are those that were measured, to the byte
    assert answer.recorded_peak == without["reserved"]
    assert answer.reserved_peak == measured["reserved"]
    assert answer.allocated_peak == measured["allocated"]
    # and the setting made a difference
    assert measured["reserved"] < 0.9 * without["reserved"]
