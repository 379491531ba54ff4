"""torch's keys, all versions, into columns: what a recording says is what the trace has."""

from __future__ import annotations

import copy
import pickle
import random

import numpy as np
import pytest
from little_allocator import FRAMES, LittleAllocator, as_of_torch_2_0, training

from memprof.errors import InputError
from memprof.trace.model import Action, BlockState, Source
from memprof.trace.snapshot import read_snapshot


def state_of(device):
    """Return address -> (block size, requested) of what the columns have as allocated."""
    live = device.blocks.state == BlockState.ALLOCATED
    columns = (device.blocks.address[live], device.blocks.size[live], device.blocks.requested[live])
    return {address: (size, requested) for address, size, requested in zip(*(c.tolist() for c in columns), strict=True)}


def tiles(device):
    ends = device.blocks.address + device.blocks.size
    for row in range(len(device.segments)):
        own = device.blocks.segment == row
        assert device.blocks.address[own][0] == device.segments.address[row]
        assert (ends[own][:-1] == device.blocks.address[own][1:]).all()
        assert ends[own][-1] == device.segments.address[row] + device.segments.total_size[row]


def test_every_entry_is_a_row_with_its_values():
    # given
    allocator = training()
    snapshot = allocator.snapshot()

    # when
    trace = read_snapshot(snapshot, path="run.pickle")

    # then
    (device,) = trace.devices
    events = device.events
    assert (trace.path, trace.source, trace.notes, device.device) == ("run.pickle", Source.UNKNOWN, (), 0)
    assert len(events) == len(allocator.trace)
    for row, entry in enumerate(allocator.trace):
        assert Action(events.action[row]).name.lower() == entry["action"]
        assert events.address[row] == entry["addr"]
        assert events.size[row] == entry["size"]
        assert events.time_us[row] == entry["time_us"]
        expected = entry["frames"] if entry["action"] in ("alloc", "segment_alloc") else []
        assert [
            {"name": frame.name, "filename": frame.filename, "line": frame.line}
            for frame in trace.stacks.stack(events.stack[row])
        ] == expected
    assert (events.metadata == -1).all()
    assert state_of(device) == allocator.live()
    tiles(device)


def test_equal_stacks_are_one_row_also_when_their_frames_are_not_the_same_objects():
    snapshot = training().snapshot()
    apart = copy.deepcopy(snapshot)
    for entry in apart["device_traces"][0]:
        entry["frames"] = [dict(frame) for frame in entry["frames"]]

    together, separate = read_snapshot(snapshot), read_snapshot(apart)

    assert (
        len(together.stacks)
        == len(separate.stacks)
        == len(
            {str(e["frames"]) for e in snapshot["device_traces"][0] if e["action"].endswith("alloc") and e["frames"]}
        )
    )
    assert len(separate.stacks.frames) <= len(FRAMES)
    assert (together.devices[0].events.stack == separate.devices[0].events.stack).all()


@pytest.mark.parametrize("count", [0, 1, 4095, 4096, 4097, 9000])
def test_chunks_do_not_show(count):
    entries = [
        {
            "action": ("alloc", "free_completed")[i % 2],
            "addr": 1 << 30,
            "size": i,
            "stream": -i,
            "time_us": i,
            "frames": [],
        }
        for i in range(count)
    ]

    trace = read_snapshot({"segments": [], "device_traces": [entries]})

    assert sum(len(device.events) for device in trace.devices) == count
    if count:
        events = trace.devices[0].events
        assert (events.size == np.arange(count)).all()
        assert (events.stream == -np.arange(count)).all()
        assert (events.action == np.where(np.arange(count) % 2, Action.FREE_COMPLETED, Action.ALLOC)).all()


def test_late_start_has_the_weights_in_its_blocks_only():
    allocator = training(late=True)

    (device,) = read_snapshot(allocator.snapshot()).devices

    assert state_of(device) == allocator.live()
    allocated_in_trace = set(device.events.address[device.events.action == Action.ALLOC].tolist())
    assert set(state_of(device)) - allocated_in_trace


def test_oom_has_its_free_bytes_as_address():
    allocator = training()
    allocator.out_of_memory(5 << 30, 77 << 20)

    (device,) = read_snapshot(allocator.snapshot()).devices

    (row,) = np.flatnonzero(device.events.action == Action.OOM)
    assert (device.events.size[row], device.events.address[row]) == (5 << 30, 77 << 20)
    assert device.events.stack[row] >= 0


def test_several_devices_and_empty_ones():
    first, third = training(0), training(2)

    trace = read_snapshot(first.snapshot(third))

    assert [device.device for device in trace.devices] == [0, 2]
    assert [state_of(device) for device in trace.devices] == [first.live(), third.live()]


def test_device_with_segments_and_no_events_stays():
    first, second = training(0), training(1)
    snapshot = first.snapshot(second)
    snapshot["device_traces"][1] = []

    assert [(d.device, len(d.events) > 0) for d in read_snapshot(snapshot).devices] == [(0, True), (1, False)]


def test_entries_that_name_another_device_are_moved_there_in_order_of_time():
    # given: the first half of device 1's events at the end of the list of device 0
    first, second = training(0), training(1)
    snapshot = first.snapshot(second)
    named = [[entry | {"device": device} for entry in trace] for device, trace in enumerate(snapshot["device_traces"])]
    half = len(named[1]) // 2
    snapshot["device_traces"] = [named[0] + named[1][:half], named[1][half:]]

    # when
    trace = read_snapshot(snapshot)

    # then
    assert [len(device.events) for device in trace.devices] == [len(first.trace), len(second.trace)]
    assert [device.events.time_us.tolist() for device in trace.devices] == [
        [entry["time_us"] for entry in allocator.trace] for allocator in (first, second)
    ]
    assert any("moved" in note for note in trace.notes)


def test_torch_2_0_blocks_without_address_and_with_history():
    allocator = training()
    new = allocator.snapshot()

    (device,) = read_snapshot(as_of_torch_2_0(new)).devices

    assert state_of(device) == allocator.live()
    assert not device.events.time_us.any()
    tiles(device)
    trace = read_snapshot(as_of_torch_2_0(new))
    frames = [trace.stacks.stack(row) for row in trace.devices[0].blocks.stack]
    assert any(frames)


def test_history_gives_the_requested_size_where_nothing_else_does():
    old = as_of_torch_2_0(training().snapshot())
    expected = {}
    for segment in old["segments"]:
        address = segment["address"]
        for block in segment["blocks"]:
            asked = block.pop("requested_size")
            if block["state"] == "active_allocated":
                expected[address] = (block["size"], asked)
            address += block["size"]

    (device,) = read_snapshot(old).devices

    assert state_of(device) == expected


def test_bare_list_of_segments():
    allocator = training()

    trace = read_snapshot(allocator.snapshot()["segments"])

    assert state_of(trace.devices[0]) == allocator.live()
    assert len(trace.devices[0].events) == 0
    assert "bare list" in trace.notes[0]


def test_only_what_every_version_has():
    allocator = training()
    segments = [
        {key: segment[key] for key in ("address", "total_size")}
        | {"blocks": [{key: block[key] for key in ("size", "state")} for block in segment["blocks"]]}
        for segment in allocator.snapshot()["segments"]
    ]
    entries = [{key: entry[key] for key in ("action", "addr", "size")} for entry in allocator.trace]

    (device,) = read_snapshot({"segments": segments, "device_traces": [entries]}).devices

    assert len(device.events) == len(allocator.trace)
    assert {address: size for address, (size, _) in state_of(device).items()} == {
        address: size for address, (size, _) in allocator.live().items()
    }
    # Segments of 2 MiB are those of the small pool where a file does not say.
    assert not device.segments.large.any()


@pytest.mark.parametrize("name", ["active_pending_free", "active_awaiting_free"])
def test_pending_free_by_both_names(name):
    snapshot = training().snapshot()
    snapshot["segments"][0]["blocks"][0]["state"] = name

    (device,) = read_snapshot(snapshot).devices

    assert device.blocks.state[0] == BlockState.PENDING_FREE


def test_actions_of_other_writers():
    base = {"addr": 1 << 30, "size": 512, "stream": 0}
    entries = [
        {"action": "alloc", **base},
        {"action": "free", **base},
        {"action": "annotate", "name": "x"},
        {"action": "workspace_snapshot", "addr": 0, "size": 0},
        {"action": "snapshot"},
        {"action": "tomorrow"},
    ]

    (device,) = read_snapshot({"segments": [], "device_traces": [entries]}).devices

    other = Action.OTHER
    assert device.events.action.tolist() == [
        Action.ALLOC, Action.FREE_COMPLETED, other, other, Action.SNAPSHOT, other
    ]  # fmt: skip


def test_metadata_as_text_and_as_dict():
    allocator = training()
    allocator.trace[1]["user_metadata"] = "layer 1"
    allocator.trace[2]["user_metadata"] = {"b": "2", "a": "1"}
    allocator.trace[3]["user_metadata"] = None
    assert {entry["action"] for entry in allocator.trace[1:4]} == {"alloc"}

    trace = read_snapshot(allocator.snapshot())

    rows = trace.devices[0].events.metadata
    assert [trace.texts[row] for row in rows[1:3]] == ["layer 1", '{"a": "1", "b": "2"}']
    assert rows[3] == -1


def test_frames_of_cpp_and_lines_that_torch_does_not_know():
    allocator = training()
    allocator.trace[1]["frames"] = [
        {"name": "c10::cuda", "filename": "??", "line": 0},
        {"name": "init", "filename": "fake_tensor.py", "line": 18446744073709551615},
        {"fx_node_op": "call_function"},
    ]

    trace = read_snapshot(allocator.snapshot())

    frames = trace.stacks.stack(trace.devices[0].events.stack[1])
    assert [(f.name, f.filename, f.line) for f in frames] == [
        ("c10::cuda", "??", 0), ("init", "fake_tensor.py", 0), ("", "", 0)
    ]  # fmt: skip


def test_blocks_out_of_order_are_sorted():
    allocator = training()
    snapshot = allocator.snapshot()
    expected = read_snapshot(snapshot).devices[0].blocks
    for segment in snapshot["segments"]:
        segment["blocks"] = segment["blocks"][::-1]
    snapshot["segments"] = snapshot["segments"][::-1]

    trace = read_snapshot(snapshot)

    for column in ("segment", "address", "size", "requested", "state"):
        assert (getattr(trace.devices[0].blocks, column) == getattr(expected, column)).all()
    assert trace.notes == ()


def test_gaps_between_blocks_are_free_and_noted():
    # given: a writer that leaves out what is not allocated
    allocator = training()
    snapshot = allocator.snapshot()
    for segment in snapshot["segments"]:
        segment["blocks"] = [block for block in segment["blocks"] if block["state"] != "inactive"]

    # when
    trace = read_snapshot(snapshot)

    # then
    tiles(trace.devices[0])
    assert state_of(trace.devices[0]) == allocator.live()
    free = sum(s["total_size"] for s in allocator.segments) - sum(size for size, _ in allocator.live().values())
    assert f"{free} bytes" in trace.notes[0]


def test_disagreeing_totals_are_noted():
    snapshot = training().snapshot()
    snapshot["segments"][0]["allocated_size"] += 512

    assert "1 of" in read_snapshot(snapshot).notes[0]


def test_private_pools_count_from_one():
    allocator = training()
    snapshot = allocator.snapshot()
    assert len(snapshot["segments"]) >= 2
    for segment, owner in zip(snapshot["segments"], [(0, 3), [0, 3]], strict=False):
        segment["segment_pool_id"] = owner

    pools = read_snapshot(snapshot).devices[0].segments.pool.tolist()

    assert pools[:2] == [1, 1]
    assert set(pools[2:]) <= {0}


def test_settings():
    snapshot = training().snapshot()
    assert read_snapshot(snapshot).settings.max_split_size is None
    snapshot["allocator_settings"] |= {
        "PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:128, max_non_split_rounding_mb:64,large_segment_size_mb:40",
        "max_split_size": 128 << 20,
        "expandable_segments": True,
        "garbage_collection_threshold": 0.5,
        "roundup_power2_divisions": {"1": 0, "256": 4, "2": 8},
        "tomorrow": [1, 2],
    }

    settings = read_snapshot(snapshot).settings

    assert settings.max_split_size == 128 << 20
    assert settings.max_non_split_rounding_size == 64 << 20
    assert settings.large_segment_size == 40 << 20
    assert settings.expandable_segments
    assert settings.garbage_collection_threshold == 0.5
    assert settings.roundup_power2_divisions == ((2, 8), (256, 4))


def test_annotations_belong_to_their_device():
    snapshot = training(0).snapshot(training(1))
    snapshot["external_annotations"] = [
        {"stage": "START", "name": "Optimizer.step#AdamW.step", "device": 1, "time_us": 5},
        {"stage": "END", "name": "Optimizer.step#AdamW.step", "device": 1, "time_us": 9},
    ]

    first, second = read_snapshot(snapshot).devices

    assert first.annotations == ()
    assert [(a.name, a.start, a.time_us) for a in second.annotations] == [
        ("Optimizer.step#AdamW.step", True, 5), ("Optimizer.step#AdamW.step", False, 9)
    ]  # fmt: skip


def test_without_segments_the_end_is_said_to_be_unknown():
    trace = read_snapshot({"device_traces": [training().trace]})

    assert "no segments" in trace.notes[0]


def labelled():
    allocator = LittleAllocator(record=False)
    before = allocator.alloc(4096)
    allocator.record = True
    allocator.alloc(1000)
    allocator.alloc(2000)
    snapshot = allocator.snapshot()
    entries = [i for i, entry in enumerate(allocator.trace) if entry["action"] == "alloc"]
    snapshot["memprof"] = {
        "version": 1,
        "source": "simulated",
        "made_by": {"command": "memprof capture", "mbs": 16, "lora": {"r": 8}},
        "environment": {"torch": "2.13.0", "card": None},
        "strings": ["", "weights", "base", "activations", "float16", "16,1037,512"],
        "labels": {
            "device": [0, 0],
            "entry": entries,
            "category": [3, 1],
            "finer": [-1, 2],
            "dtype": [4, -1],
            "shape": [5, 0],
            "step": [0, -1],
            "saved": [True, False],
        },
        "base_labels": {"device": [0], "address": [before], "category": [1]},
        "marks": [{"device": 0, "entry": 1, "name": "step 0 forward"}, {"device": 0, "entry": 0, "name": "init"}],
        "stats": [{"device": 0, "step": 0, "max_allocated_bytes": 7, "max_reserved_bytes": None, "managed_bytes": 0}],
    }
    return snapshot, entries, before


def test_what_memprof_wrote_comes_back():
    snapshot, entries, before = labelled()

    trace = read_snapshot(snapshot)

    (device,) = trace.devices
    labels = device.labels
    assert trace.source is Source.SIMULATED
    assert trace.made_by == snapshot["memprof"]["made_by"]
    assert trace.environment == snapshot["memprof"]["environment"]
    assert labels.entry.tolist() == [*entries, -1]
    assert labels.address.tolist() == [-1, -1, before]

    def texts(column):
        return [trace.texts[row] if row >= 0 else None for row in column]

    assert texts(labels.category) == ["activations", "weights", "weights"]
    assert texts(labels.finer) == [None, "base", None]
    assert texts(labels.dtype) == ["float16", None, None]
    assert texts(labels.shape) == ["16,1037,512", "", None]
    assert texts(labels.module) == [None, None, None]
    assert labels.step.tolist() == [0, -1, -1]
    assert labels.saved.tolist() == [True, False, False]
    assert [(mark.entry, mark.name) for mark in device.marks] == [(0, "init"), (1, "step 0 forward")]
    (stats,) = device.stats
    assert (stats.step, stats.max_allocated_bytes, stats.max_reserved_bytes, stats.managed_bytes) == (0, 7, None, 0)
    assert stats.device_used_bytes is None


def test_labels_of_another_device_list_are_refused_when_events_were_moved():
    snapshot, _, _ = labelled()
    for entry in snapshot["device_traces"][0]:
        entry["device"] = 1

    with pytest.raises(InputError, match="device 0, which has 0"):
        read_snapshot(snapshot)


def test_wrong_value_deep_in_a_large_trace_is_named_exactly():
    entries = pickle.loads(pickle.dumps(training().trace * 200))
    entries = [dict(entry) for entry in entries]
    assert len(entries) > 3 * 4096
    entries[9876]["size"] = "12"

    with pytest.raises(InputError, match=r"device_traces\[0\]\[9876\]\.size is the text '12'"):
        read_snapshot({"segments": [], "device_traces": [entries]})


ODD_VALUES = [
    None, True, 0, -1, 1 << 40, (1 << 62) - 1, 1 << 62, 1 << 70, 1.5, float("nan"), "", "\ud800", "alloc", "oom", b"x",
    [], {}, (), [1], [[]], [{}], {1: 2}, {1}, "active_allocated",
]  # fmt: skip


def places(value, way=()):
    """Return the ways to everything inside of a snapshot, of long lists to their first few."""
    inner = value.items() if isinstance(value, dict) else enumerate(value[:6]) if isinstance(value, list) else ()
    return [found for key, item in inner for found in ((*way, key), *places(item, (*way, key)))]


@pytest.mark.parametrize("seed", range(4))
def test_any_odd_value_anywhere_is_one_error_or_a_sound_trace(seed):
    # given: a snapshot with everything in it, and a place in it for every case
    base, _, _ = labelled()
    everything = training(1).snapshot() | {"memprof": base["memprof"]}
    everything["segments"] += base["segments"]
    everything["device_traces"][0] = base["device_traces"][0]
    everything["external_annotations"] = [{"stage": "START", "name": "x", "device": 0, "time_us": 5}]
    everything = pickle.loads(pickle.dumps(everything))
    ways = places(everything)
    random_ = random.Random(seed)
    outcomes = {"error": 0, "trace": 0}
    messages = []

    for _ in range(150):
        # when
        snapshot = copy.deepcopy(everything)
        *way, last = random_.choice(ways)
        owner = snapshot
        for key in way:
            owner = owner[key]
        if random_.random() < 0.2:
            del owner[last]
        else:
            owner[last] = random_.choice(ODD_VALUES)

        # then
        try:
            trace = read_snapshot(snapshot)
        except InputError as error:
            outcomes["error"] += 1
            messages.append(str(error))
            continue
        outcomes["trace"] += 1
        for device in trace.devices:
            assert (device.events.size >= 0).all()
            assert (device.blocks.requested >= 0).all()
            assert (device.blocks.requested <= device.blocks.size).all()
            assert device.blocks.size.sum() == device.segments.total_size.sum()
            assert device.events.stack.max(initial=-1) < len(trace.stacks)
            assert device.blocks.stack.max(initial=-1) < len(trace.stacks)
    assert min(outcomes.values()) > 10
    assert all(message.isprintable() and len(message) < 400 for message in messages)
