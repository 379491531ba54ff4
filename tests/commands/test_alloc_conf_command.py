"""`breakdown --alloc-conf` from outside: recordings of this repository under other allocator settings."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from memprof.allocator.counters import OutOfMemory
from memprof.allocator.driver import Driver
from memprof.allocator.simulation import CachingAllocator
from memprof.allocator.snapshot import torch_segments
from memprof.trace.model import Settings

ROOT = Path(__file__).parents[2]
NF4 = ROOT / "traces/h200-pythia-70m-16-mixed-bnb.nf4-mbs16.pickle"
CPU = ROOT / "traces/cpu-pythia-14m-bf16-mixed-none-mbs2.pickle"
MIB = 1 << 20


def breakdown(file, conf, *more):
    command = [sys.executable, "-m", "memprof", "breakdown", str(file), "--alloc-conf", conf, *more]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


def answer(file, conf):
    done = breakdown(file, conf, "--json")
    assert done.returncode == 0, done.stderr
    (device,) = json.loads(done.stdout)["devices"]
    return device["alloc_conf"], device


def written(allocator, path):
    """What `torch.cuda.memory._dump_snapshot` would have written of a run on `allocator`."""
    trace = [{"time_us": 0, "frames": [], **entry} for entry in allocator.trace.entries()]
    path.write_bytes(pickle.dumps({"segments": torch_segments(allocator), "device_traces": [trace]}, protocol=4))
    return path


@pytest.fixture(scope="module")
def fragmented(tmp_path_factory):
    """A run on 200 MiB that failed for 100 MiB though 190 MiB were free, 38 MiB in each of five segments."""
    allocator = CachingAllocator(Settings(), Driver(200 * MIB))
    large = []
    for address in [allocator.malloc(40 * MIB) for _ in range(5)]:
        allocator.free(address)
        allocator.malloc(2 * MIB)
        large.append(allocator.malloc(38 * MIB))
    for address in large:
        allocator.free(address)
    with pytest.raises(OutOfMemory):
        allocator.malloc(100 * MIB)
    return written(allocator, tmp_path_factory.mktemp("fragmented") / "oom.pickle")


def test_the_recorded_settings_give_the_recorded_peak():
    value, device = answer(NF4, "backend:native")

    assert value["recorded_reserved_bytes"] == value["control_reserved_bytes"] == value["reserved_bytes"]
    assert value["reserved_bytes"] == device["max_reserved_bytes"] == 10_001_317_888
    assert value["allocated_bytes"] == value["recorded_allocated_bytes"] == 9_369_105_920
    assert (value["failed"], value["would_fail"], value["capacity_bytes"]) == ([], [], None)


def test_expandable_segments_reserve_less_and_never_less_than_is_allocated():
    value, _ = answer(NF4, "expandable_segments:True")

    assert value["allocated_bytes"] <= value["reserved_low_bytes"] <= value["reserved_bytes"]
    assert value["reserved_bytes"] <= value["reserved_high_bytes"] < value["recorded_reserved_bytes"]
    assert value["conf"] == "expandable_segments:True"


def test_table_says_what_it_was_and_what_it_would_be():
    done = breakdown(NF4, "expandable_segments:True", "--top", "0")

    value, _ = answer(NF4, "expandable_segments:True")
    assert done.returncode == 0, done.stderr
    assert "under expandable_segments:True: this recording (made with torch's defaults) replayed" in done.stdout
    (row,) = (line for line in done.stdout.splitlines() if line.startswith("reserved peak"))
    assert row.split()[2:6] == ["10.00", "GB", f"{value['reserved_bytes'] / 1e9:.3f}", "GB"]
    assert "gives the recorded reserved peak, to the byte" in done.stdout


@pytest.mark.parametrize(
    ("conf", "fits", "said"),
    [
        ("expandable_segments:True", True, "would have fitted, with"),
        ("max_split_size_mb:512", False, "would not have fitted"),
    ],
)
def test_a_request_that_failed_is_tried_again(fragmented, conf, fits, said):
    value, device = answer(fragmented, conf)

    (failed,) = value["failed"]
    assert failed["event"] == device["oom"][0]["event"]
    assert failed["requested_bytes"] == 100 * MIB
    assert (failed["fits"], failed["fits_in_every_order"]) == (fits, fits)
    assert value["capacity_bytes"] == 200 * MIB
    assert said in breakdown(fragmented, conf).stdout


@pytest.mark.parametrize(
    ("file", "conf", "code", "said"),
    [
        (NF4, "expandable:True", 2, "allocator setting 'expandable' is not known"),
        (NF4, "backend:cudaMallocAsync", 1, "native allocator only"),
        (CPU, "expandable_segments:True", 1, "the CPU has none"),
    ],
)
def test_what_cannot_be_answered_is_one_line(file, conf, code, said):
    done = breakdown(file, conf)

    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_without_the_option_nothing_is_replayed():
    done = subprocess.run(
        [sys.executable, "-m", "memprof", "breakdown", str(NF4), "--json"], capture_output=True, text=True, check=True
    )

    assert "alloc_conf" not in json.loads(done.stdout)["devices"][0]
