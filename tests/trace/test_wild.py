"""Files recorded by other people, in other years: counts and totals that were computed without memprof."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from memprof.trace import load
from memprof.trace.model import Action, BlockState

WILD = Path(__file__).parents[2] / "../shared/wild"

pytestmark = [
    pytest.mark.wild,
    pytest.mark.skipif(not WILD.is_dir(), reason="other people's snapshots are not in the repository"),
]

GIB = 1 << 30

# Device, events, allocated and reserved GiB of the segments, and (where events exist) base, peak, its event and the end
# as sums of requested bytes.
KNOWN = [
    ("tiny_97_events", 0, 97, 0.030, 3.521, (0, 3.0260, 52, 0.0295)),
    ("late_start_inference", 0, 3840, 1.586, 1.643, (1.5845, 1.6177, 292, 1.5845)),
    ("late_start_training", 0, 19136, 6.349, 6.738, (4.7454, 6.5317, 9966, 6.3409)),
    ("oom_expandable_4devices", 0, 6445, 7.539, 7.955, (0, 7.8757, 6278, 7.5387)),
    ("oom_expandable_4devices", 1, 596, 0.376, 78.420, (0, 78.2901, 420, 0.3758)),
    ("oom_expandable_4devices", 2, 882, 18.841, 20.381, (0, 20.0836, 715, 18.8413)),
    ("legacy_history_blocks", 0, 1, 5.293, 7.086, None),
    ("toplevel_list", 1, 0, 3.123, 3.398, None),
    ("state_only_fragmented", 0, 0, 7.961, 15.121, None),
    ("state_only_small", 1, 0, 0.508, 5.178, None),
    ("truncated_negative_baseline", 0, 50, 0, 0.393, None),
]


@pytest.fixture(scope="module")
def traces():
    return {name: load(WILD / f"{name}.pickle") for name in {row[0] for row in KNOWN}}


@pytest.mark.parametrize(("name", "device", "events", "allocated", "reserved", "requested"), KNOWN)
def test_known_figures(traces, name, device, events, allocated, reserved, requested):  # noqa: PLR0917 - a row
    (found,) = [value for value in traces[name].devices if value.device == device]

    live = found.blocks.state == BlockState.ALLOCATED
    assert len(found.events) == events
    assert found.blocks.size[live].sum() / GIB == pytest.approx(allocated, abs=0.0006)
    assert found.segments.total_size.sum() / GIB == pytest.approx(reserved, abs=0.0006)
    assert found.blocks.size.sum() == found.segments.total_size.sum()
    if requested:
        base, peak, at, end = requested
        action, size = found.events.action, found.events.size
        change = np.cumsum(
            np.where(action == Action.ALLOC, size, 0) - np.where(action == Action.FREE_COMPLETED, size, 0)
        )
        at_end = found.blocks.requested[live].sum()
        start = at_end - change[-1]
        assert start / GIB == pytest.approx(base, abs=0.00006)
        assert (start + change.max()) / GIB == pytest.approx(peak, abs=0.00006)
        assert change.argmax() == at
        assert at_end / GIB == pytest.approx(end, abs=0.00006)


def test_no_other_devices(traces):
    expected: dict[str, list[int]] = {}
    for name, device, *_ in KNOWN:
        expected.setdefault(name, []).append(device)

    assert {name: [device.device for device in trace.devices] for name, trace in traces.items()} == expected


def test_oom_of_the_file_with_four_devices(traces):
    events = traces["oom_expandable_4devices"].devices[1].events

    assert np.flatnonzero(events.action == Action.OOM).tolist() == [421]
    assert events.size[421] / GIB == pytest.approx(4.944, abs=0.0006)
    assert events.address[421] / GIB == pytest.approx(0.089, abs=0.0006)
    assert traces["oom_expandable_4devices"].settings.expandable_segments


def test_stacks_of_old_history_are_kept(traces):
    trace = traces["legacy_history_blocks"]
    live = trace.devices[0].blocks.state == BlockState.ALLOCATED

    assert (trace.devices[0].blocks.stack[live] >= 0).all()


def test_every_file_in_the_folder_is_known_here():
    assert {path.stem for path in WILD.glob("*.pickle")} == {row[0] for row in KNOWN}
