"""Files that are damaged or made to do harm: each gives one clear line, soon, in little memory, and nothing runs."""

from __future__ import annotations

import ctypes
import gzip
import io
import json
import os
import pickle
import random
import struct
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from memprof.errors import InputError
from memprof.trace import load

ROOT = Path(__file__).parents[2]
SECONDS = 2.0
"""What a bad file may cost, of which the CPU limit is the larger part; a loaded machine gets more by the wall clock."""

HALF = 1 << 61
"""Twice this is more than a file's sizes may add up to."""

SEGMENT = {
    "device": 0,
    "address": 1 << 40,
    "total_size": 2 << 20,
    "stream": 0,
    "segment_type": "small",
    "blocks": [
        {"address": 1 << 40, "size": 2 << 20, "requested_size": 2 << 20, "state": "active_allocated", "frames": []}
    ],
}
EVENT = {"action": "alloc", "addr": 1 << 40, "size": 100, "stream": 0, "time_us": 1, "frames": []}


def snapshot(**changes):
    return {"segments": [SEGMENT], "device_traces": [[EVENT, dict(EVENT)]]} | changes


def without(key):
    return snapshot(device_traces=[[{name: value for name, value in EVENT.items() if name != key}]])


def event(**changes):
    return snapshot(device_traces=[[EVENT, EVENT | changes]])


def block(**changes):
    return snapshot(segments=[SEGMENT | {"blocks": [SEGMENT["blocks"][0] | changes]}])


def refused(path: Path) -> str:
    """Load `path`, which must give one InputError that names it, and return the message."""
    before = os.times()
    with pytest.raises(InputError) as caught:
        load(path)
    after = os.times()
    spent = sum(after[:4]) - sum(before[:4])
    assert spent < SECONDS, f"took {spent:.1f} s of CPU"
    message = str(caught.value)
    assert message.startswith(str(path))
    assert message.isprintable(), message
    assert len(message) < len(str(path)) + 400
    return message


def refused_pickle(tmp_path: Path, value) -> str:
    path = tmp_path / "bad.pickle"
    path.write_bytes(pickle.dumps(value, protocol=4))
    return refused(path)


def refused_bytes(tmp_path: Path, data: bytes) -> str:
    path = tmp_path / "bad.pickle"
    path.write_bytes(data)
    return refused(path)


class Call:
    """What a hostile pickle is made of: a function and its arguments."""

    def __init__(self, function, *arguments):
        self.function = function
        self.arguments = arguments

    def __reduce__(self):
        return self.function, self.arguments


def test_the_snapshot_that_the_bad_ones_are_made_from_is_good(tmp_path):
    path = tmp_path / "good.pickle"
    path.write_bytes(pickle.dumps(snapshot(), protocol=4))

    trace = load(path)

    assert [len(device.events) for device in trace.devices] == [2]


def test_empty_file(tmp_path):
    assert "is empty" in refused_bytes(tmp_path, b"")


def test_no_such_file(tmp_path):
    assert "no such file" in refused(tmp_path / "absent.pickle")


def test_directory(tmp_path):
    assert "is a directory" in refused(tmp_path)


@pytest.mark.skipif(os.name != "posix", reason="pipes with names are POSIX")
def test_named_pipe_does_not_wait(tmp_path):
    os.mkfifo(tmp_path / "pipe")

    assert "not a plain file" in refused(tmp_path / "pipe")


@pytest.mark.skipif(sys.platform != "linux", reason="root takes off its rights in the Linux way")
def test_no_permission(tmp_path):
    # given: a file that nobody may read, and a thread that is not root where files are concerned
    path = tmp_path / "secret.pickle"
    path.write_bytes(pickle.dumps(snapshot()))
    path.chmod(0)
    libc = ctypes.CDLL(None)
    before = libc.setfsuid(65534 if os.geteuid() == 0 else os.geteuid())

    # when
    try:
        message = refused(path)
    finally:
        libc.setfsuid(before)

    # then
    assert "no permission" in message


@pytest.mark.parametrize("where", range(20))
def test_truncated(tmp_path, where):
    data = pickle.dumps(
        snapshot(device_traces=[[dict(EVENT, time_us=i, frames=[{"name": str(i)}]) for i in range(50)]])
    )
    cut = random.Random(where).randrange(1, len(data) - 1)

    assert "truncated" in refused_bytes(tmp_path, data[:cut])


def test_truncated_gzip(tmp_path):
    data = gzip.compress(pickle.dumps(event(frames=[{"name": os.urandom(2000).hex()}])))

    assert "truncated" in refused_bytes(tmp_path, data[: len(data) // 2])


@pytest.mark.parametrize("seed", range(10))
def test_random_bytes(tmp_path, seed):
    refused_bytes(tmp_path, random.Random(seed).randbytes(1000))


@pytest.mark.parametrize("seed", range(10))
def test_random_bytes_after_a_pickle_mark(tmp_path, seed):
    refused_bytes(tmp_path, b"\x80\x04" + random.Random(seed).randbytes(1000))


@pytest.mark.parametrize("protocol", range(6))
def test_nothing_is_called(tmp_path, protocol):
    # given: a pickle that would leave a file behind if any of it ran
    witness = tmp_path / "witness"
    path = tmp_path / "bad.pickle"
    path.write_bytes(pickle.dumps(snapshot(extra=Call(os.system, f"touch {witness}")), protocol=protocol))

    # when
    message = refused(path)

    # then
    assert "refused" in message
    assert not witness.exists()


@pytest.mark.parametrize(
    "opcodes",
    [
        pytest.param(b"cos\nsystem\n(S'true'\ntR.", id="global"),
        pytest.param(b"\x80\x04\x8c\x02os\x8c\x06system\x93.", id="stack-global"),
        pytest.param(b"\x80\x04\x8c\x08builtins\x8c\x04eval\x93\x8c\x011\x85R.", id="reduce"),
        pytest.param(b"\x80\x02(S'true'\nios\nsystem\n.", id="inst"),
        pytest.param(b"\x80\x02\x82\x01.", id="ext1"),
        pytest.param(b"\x80\x02\x83\x01\x00.", id="ext2"),
        pytest.param(b"\x80\x02\x84\x01\x00\x00\x00.", id="ext4"),
        pytest.param(b"\x80\x02Pid\n.", id="persistent-id"),
        pytest.param(b"\x80\x02K\x01Q.", id="binary-persistent-id"),
        pytest.param(b"\x80\x02})R.", id="reduce-of-a-dict"),
        pytest.param(b"\x80\x02})\x81.", id="newobj-of-a-dict"),
        pytest.param(b"\x80\x04})}\x92.", id="newobj-ex-of-a-dict"),
        pytest.param(b"\x80\x02(}o.", id="obj-of-a-dict"),
        pytest.param(b"\x80\x02}}\x8c\x01aK\x01sb.", id="build-of-a-dict"),
        pytest.param(b"\x80\x02]}\x8c\x08__init__K\x01sb.", id="build-of-a-list"),
        pytest.param(b"\x80\x05\x97.", id="out-of-band-buffer"),
        pytest.param(b"\x80\x05\x96" + struct.pack("<Q", 1 << 60), id="huge-bytearray"),
        pytest.param(b"\x80\x05\x96" + struct.pack("<Q", 1 << 33), id="8-gb-bytearray"),
        pytest.param(b"\x80\x04\x8e" + struct.pack("<Q", 1 << 33), id="8-gb-bytes"),
        pytest.param(b"\x80\x04\x8d" + struct.pack("<Q", 1 << 33), id="8-gb-text"),
        pytest.param(b"\x80\x04\x95" + struct.pack("<Q", 1 << 33), id="8-gb-frame"),
        pytest.param(b"\x80\x04\x8b" + struct.pack("<i", (1 << 31) - 1), id="2-gb-integer"),
        pytest.param(b"\x80\x04\x8b" + struct.pack("<i", -1), id="negative-length"),
        pytest.param(b"\x80\x02]r" + struct.pack("<I", 1 << 29) + b".", id="memo-index-2-29"),
        pytest.param(b"\x80\x02]r" + struct.pack("<I", (1 << 32) - 1) + b".", id="memo-index-2-32"),
        pytest.param(b"\x80\x02h\x05.", id="memo-without-an-entry"),
        pytest.param(b"\x80\x02.", id="nothing-on-the-stack"),
        pytest.param(b"\x80\x020000.", id="pop-of-nothing"),
        pytest.param(b"\x80\x02]e.", id="no-mark"),
        pytest.param(b"\x80\xff].", id="protocol-255"),
        pytest.param(b"\x80\x04C\x03abc.", id="bytes"),
        pytest.param(b"\x80\x04\x8f.", id="set"),
        pytest.param(b"\x80\x04(\x91.", id="frozenset"),
        pytest.param(b"\x80\x02" + b"}" * 20_000_000 + b".", id="20-million-dicts"),
        pytest.param(b"\x80\x04" + b"\x8f" * 20_000_000 + b".", id="20-million-sets"),
        pytest.param(b"\x80\x02L" + b"9" * 1_000_000 + b"L\n.", id="million-digits"),
    ],
)
def test_opcodes(tmp_path, opcodes):
    refused_bytes(tmp_path, opcodes)


def test_cyclic_list(tmp_path):
    cycle: list = []
    cycle.append(cycle)

    refused_pickle(tmp_path, cycle)
    refused_pickle(tmp_path, snapshot(segments=cycle))
    refused_pickle(tmp_path, snapshot(device_traces=cycle))
    refused_pickle(tmp_path, event(frames=cycle))
    refused_pickle(tmp_path, snapshot(memprof={"version": 1, "source": "recorded", "made_by": {"x": cycle}}))


def test_cyclic_dict(tmp_path):
    cycle: dict = {}
    cycle.update(segments=[], device_traces=[], memprof=cycle, allocator_settings=cycle)

    refused_pickle(tmp_path, cycle)
    refused_pickle(tmp_path, event(user_metadata={"x": cycle}))


DEEP = 1_000_000


@pytest.mark.parametrize(
    "opcodes",
    [
        pytest.param(b"]" * DEEP + b"a" * (DEEP - 1), id="lists"),
        pytest.param(b")" + b"\x85" * DEEP, id="tuples"),
        pytest.param(b"}" + b")" + b"\x85" * DEEP + b"K\x01s", id="tuple-as-key"),
        pytest.param(b"]}" + b")" + b"\x85" * DEEP + b"K\x01s" + b"a", id="tuple-as-key-of-a-segment"),
        pytest.param(b"}\x8c\x0ddevice_traces]]}\x8c\x06action)" + b"\x85" * DEEP + b"saas", id="tuple-as-action"),
        pytest.param(
            b"}\x8c\x0ddevice_traces]]}\x8c\x06action" + b"]" * DEEP + b"a" * (DEEP - 1) + b"saas", id="list-as-action"
        ),
        pytest.param(b"}\x8c\x08segments" + b"}\x8c\x01a" * DEEP + b"K\x01" + b"s" * DEEP + b"s", id="dicts"),
    ],
)
def test_nested_beyond_reason(tmp_path, opcodes):
    refused_bytes(tmp_path, b"\x80\x04" + opcodes + b".")


def test_hash_bomb(tmp_path):
    # given: a tuple of itself twice, thirty times over, so that its hash takes 2**30 steps
    doubled = b")" + b"".join(b"q\x00h\x00\x86" for _ in range(30))

    assert "more time" in refused_bytes(tmp_path, b"\x80\x02}" + doubled + b"K\x01s.")


def test_shared_lists_that_would_unfold_without_end(tmp_path):
    shared: list = ["x"]
    for _ in range(60):
        shared = [shared, shared]

    refused_pickle(tmp_path, snapshot(memprof={"version": 1, "source": "recorded", "environment": {"x": shared}}))
    refused_pickle(tmp_path, event(user_metadata={"x": shared}))


def test_gzip_bombs(tmp_path):
    zeros = gzip.compress(bytes(60_000_000), 9)
    text = gzip.compress(b"\x80\x04X" + struct.pack("<I", 60_000_000) + b"a" * 60_000_000, 9)

    assert "bomb" in refused_bytes(tmp_path, text)
    refused_bytes(tmp_path, zeros)
    refused_bytes(tmp_path, gzip.compress(zeros, 9))
    refused_bytes(tmp_path, gzip.compress(b"", 9) * 100_000)


def zipped(tmp_path: Path, *names: str, data: bytes = b"", method=zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name in names:
            archive.writestr(name, data)
    return buffer.getvalue()


def test_lying_zips(tmp_path):
    good = zipped(tmp_path, "archive/data.pkl", data=pickle.dumps(snapshot()))
    end = good.rindex(b"PK\x01\x02")

    assert "no" in refused_bytes(tmp_path, zipped(tmp_path, "other"))
    refused_bytes(tmp_path, zipped(tmp_path, "a/data.pkl", "b/data.pkl"))
    refused_bytes(tmp_path, zipped(tmp_path, "a/data.pkl", data=bytes(60_000_000), method=zipfile.ZIP_DEFLATED))
    refused_bytes(tmp_path, zipped(tmp_path, "a/data.pkl", data=pickle.dumps(snapshot()), method=zipfile.ZIP_BZIP2))
    refused_bytes(tmp_path, good[: len(good) // 2])
    refused_bytes(tmp_path, good[:4])
    # A directory that claims more bytes than there are, a place beyond the file, and one inside of something else.
    for offset, value in ((20, 0), (20, 10), (42, 1 << 31), (42, 3)):
        changed = bytearray(good)
        changed[end + offset : end + offset + 4] = struct.pack("<I", value)
        refused_bytes(tmp_path, bytes(changed))


def test_zip_with_a_call_inside(tmp_path):
    data = pickle.dumps(snapshot(extra=Call(os.system, "true")))

    assert "refused" in refused_bytes(tmp_path, zipped(tmp_path, "archive/data.pkl", data=data))


@pytest.mark.parametrize(
    "value",
    [
        1 << 70,
        -1,
        1 << 62,
        (1 << 63) - 1,
        1.0,
        float("nan"),
        float("inf"),
        True,
        None,
        "1",
        b"1",
        [1],
        {1: 1},
        (1,),
        {1},
    ],
    ids=repr,
)
@pytest.mark.parametrize("key", ["size", "addr"])
def test_numbers_that_are_none(tmp_path, key, value):
    assert f"device_traces[0][1].{key}" in refused_pickle(tmp_path, event(**{key: value}))


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (event(action=1), "device_traces[0][1].action"),
        (event(action=None), "device_traces[0][1].action"),
        (event(frames=1), "device_traces[0][1].frames"),
        (event(frames={}), "device_traces[0][1].frames"),
        (event(frames="main.py"), "device_traces[0][1].frames"),
        (event(frames=[1]), "device_traces[0][1].frames[0]"),
        (event(frames=[{"name": 1}]), "device_traces[0][1].frames[0]"),
        (event(frames=[{}, {"filename": b"x"}]), "device_traces[0][1].frames[1]"),
        (event(frames=[{"line": "7"}]), "device_traces[0][1].frames[0]"),
        (event(time_us=1.5), "device_traces[0][1].time_us"),
        (event(stream="0"), "device_traces[0][1].stream"),
        (event(stream=1 << 64), "device_traces[0][1].stream"),
        (event(user_metadata=1), "device_traces[0][1].user_metadata"),
        (event(device=-1), "device_traces[0][1].device"),
        (snapshot(device_traces=[[EVENT, 1]]), "device_traces[0][1]"),
        (snapshot(device_traces=[[EVENT, None]]), "device_traces[0][1]"),
        (snapshot(device_traces=[1]), "device_traces[0]"),
        (snapshot(device_traces={}), "device_traces"),
        (snapshot(device_traces=[[]] * 5000), "device_traces"),
        (without("action"), "device_traces[0][0] has no 'action'"),
        (without("size"), "device_traces[0][0] has no 'size'"),
        (without("addr"), "device_traces[0][0] has no 'addr'"),
        (snapshot(device_traces=[[EVENT | {"size": (1 << 62) - 1}] * 2]), "device_traces[0]"),
        (snapshot(segments=1), "segments"),
        (snapshot(segments=None), "segments"),
        (snapshot(segments=[1]), "segments[0]"),
        (snapshot(segments=[{}]), "segments[0]"),
        (snapshot(segments=[SEGMENT | {"device": "0"}]), "segments[0].device"),
        (snapshot(segments=[SEGMENT | {"total_size": -1}]), "segments[0].total_size"),
        (snapshot(segments=[SEGMENT | {"total_size": 1.0}]), "segments[0].total_size"),
        (snapshot(segments=[SEGMENT | {"address": None}]), "segments[0].address"),
        (snapshot(segments=[SEGMENT | {"segment_type": "huge"}]), "segments[0].segment_type"),
        (snapshot(segments=[SEGMENT | {"segment_pool_id": 1}]), "segments[0].segment_pool_id"),
        (snapshot(segments=[SEGMENT | {"segment_pool_id": (1, 2, 3)}]), "segments[0].segment_pool_id"),
        (snapshot(segments=[SEGMENT | {"is_expandable": 1}]), "segments[0].is_expandable"),
        (snapshot(segments=[SEGMENT | {"blocks": 1}]), "segments[0].blocks"),
        (snapshot(segments=[SEGMENT | {"blocks": [1]}]), "segments[0].blocks[0]"),
        (snapshot(segments=[SEGMENT, SEGMENT]), "segments[0] overlaps segments[1]"),
        (snapshot(segments=[SEGMENT | {"address": i, "total_size": HALF, "blocks": []} for i in (0, HALF)]), "segm"),
        (block(size=-1), "segments[0].blocks[0].size"),
        (block(size=4 << 20), "segments[0].blocks[0]"),
        (block(address=(1 << 40) - 512), "segments[0].blocks[0]"),
        (block(requested_size=3 << 20), "segments[0].blocks[0].requested_size"),
        (block(state="busy"), "segments[0].blocks[0].state"),
        (block(state=[]), "segments[0].blocks[0].state"),
        (block(frames=7), "segments[0].blocks[0].frames"),
        (block(frames=[7]), "segments[0].blocks[0].frames[0]"),
        (block(history=7), "segments[0].blocks[0].history"),
        (block(history=[7]), "segments[0].blocks[0].history[0]"),
        (snapshot(segments=[SEGMENT | {"blocks": SEGMENT["blocks"] * 2}]), "segments[0].blocks[1]"),
        (snapshot(external_annotations=7), "external_annotations"),
        (snapshot(external_annotations=[7]), "external_annotations[0]"),
        (snapshot(external_annotations=[{"stage": "MIDDLE"}]), "external_annotations[0].stage"),
        (snapshot(external_annotations=[{"stage": "START", "name": 7}]), "external_annotations[0].name"),
        (snapshot(external_annotations=[{"stage": "END", "time_us": "7"}]), "external_annotations[0].time_us"),
        (snapshot(allocator_settings=7), "allocator_settings"),
        (snapshot(allocator_settings={"max_split_size": "7"}), "allocator_settings.max_split_size"),
        (snapshot(allocator_settings={"expandable_segments": "True"}), "allocator_settings.expandable_segments"),
        (snapshot(allocator_settings={"garbage_collection_threshold": float("nan")}), "allocator_settings.garbage"),
        (snapshot(allocator_settings={"roundup_power2_divisions": {"x": 1}}), "allocator_settings.roundup"),
        (snapshot(allocator_settings={"roundup_power2_divisions": {"1": -1}}), "allocator_settings.roundup"),
        (snapshot(allocator_settings={"PYTORCH_CUDA_ALLOC_CONF": 7}), "allocator_settings.PYTORCH_CUDA_ALLOC_CONF"),
        (7, "the pickle"),
        ("text", "the pickle"),
        ({}, "neither"),
        ({"a": 1, "\x1b[31m": 2}, "neither"),
        ({1: 1, (2,): 2}, "neither"),
    ],
)  # fmt: skip
def test_wrong_types_and_missing_keys_name_their_place(tmp_path, value, place):
    message = refused_pickle(tmp_path, value)

    assert place in message or (place == "the pickle" and "not a torch memory snapshot" in message)


def test_text_of_the_file_in_a_message_is_short_and_printable(tmp_path):
    message = refused_pickle(tmp_path, block(state="\x1b[2J\x07\n\u202e" + "x" * 10_000))

    assert "\\x1b" in message


def test_lone_surrogates_do_not_get_out(tmp_path):
    path = tmp_path / "odd.pickle"
    path.write_bytes(pickle.dumps(event(frames=[{"name": "\ud800", "filename": "a\udcff", "line": 1}])))

    frames = load(path).stacks.frames

    assert [(frame.name, frame.filename) for frame in frames] == [("?", "a?")]


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[" * 1_000_000,
        '{"segments": [NaN]}',
        '{"segments": [], "device_traces": [[{"action": "alloc", "addr": 1, "size": NaN}]]}',
        '{"segments": [], "device_traces": [[{"action": "alloc", "addr": 1, "size": 1e3}]]}',
        '{"segments": ' + "9" * 100_000 + "}",
        "{}",
        '{"traceEvents": []}',
        "[1, 2]",
        '{"a": "\ud800"}'.encode("utf-8", "surrogatepass").decode("latin-1"),
    ],
    ids=lambda text: text[:20],
)
def test_json(tmp_path, text):
    refused_bytes(tmp_path, text.encode("latin-1"))


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "PNG"),
        (b"<!DOCTYPE html><html></html>", "HTML"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        (b"\x28\xb5\x2f\xfd" + bytes(100), "zstandard"),
        (b"Step 1 of 5: loss 2.3\n", "neither a pickle nor JSON"),
        (b"\x00\x01\x02", "00 01 02"),
    ],
)
def test_other_files_are_named(tmp_path, data, name):
    message = refused_bytes(tmp_path, data)

    assert name in message
    assert "_dump_snapshot" in message


LABELS = {"device": [0], "entry": [1], "category": [1]}


def written(**changes):
    return snapshot(
        memprof={"version": 1, "source": "recorded", "strings": ["", "weights"], "labels": LABELS} | changes
    )


@pytest.mark.parametrize(
    ("value", "fact"),
    [
        (snapshot(memprof=7), "memprof is 7"),
        (snapshot(memprof={}), "memprof.version"),
        (written(version=2), "newer memprof"),
        (written(version="1"), "memprof.version"),
        (written(source="guessed"), "memprof.source"),
        (written(source=[]), "memprof.source"),
        (written(strings=[1]), "memprof.strings[0]"),
        (written(labels=LABELS | {"entry": [2]}), "entry 2 of device 0, which has 2"),
        (written(labels=LABELS | {"entry": [-1]}), "memprof.labels.entry[0]"),
        (written(labels=LABELS | {"entry": [1 << 70]}), "memprof.labels.entry[0]"),
        (written(labels=LABELS | {"device": [1]}), "of device 1"),
        (written(labels=LABELS | {"category": [2]}), "memprof.labels.category[0]"),
        (written(labels=LABELS | {"category": [True]}), "memprof.labels.category[0]"),
        (written(labels=LABELS | {"category": [1, 1]}), "has 2 rows where 'device' has 1"),
        (written(labels={"device": [0]}), "has no 'entry'"),
        (written(labels={"device": [0, 0], "entry": [1, 1]}), "two labels"),
        (written(labels=LABELS | {"saved": ["yes"]}), "memprof.labels.saved[0]"),
        (written(base_labels={"device": [0, 0], "address": [7, 7]}), "two labels"),
        (written(marks=[{"device": 0, "entry": 3, "name": "x"}]), "memprof.marks[0].entry"),
        (written(marks=[{"device": 0, "entry": 0, "name": 7}]), "memprof.marks[0].name"),
        (written(stats=[{"device": 0, "step": 0, "max_allocated_bytes": -1}]), "memprof.stats[0].max_allocated_bytes"),
        (written(stats=[{"device": 0}]), "memprof.stats[0].step"),
        (written(made_by=[1]), "memprof.made_by"),
        (written(made_by={"x": b"1"}), "memprof.made_by"),
        (written(made_by={"x": float("nan")}), "memprof.made_by"),
        (written(environment={1: 1}), "memprof.environment"),
    ],
)  # fmt: skip
def test_lying_memprof_dict(tmp_path, value, fact):
    assert fact in refused_pickle(tmp_path, value)


def test_label_on_an_event_that_allocates_nothing(tmp_path):
    value = event(action="free_requested") | {"memprof": written()["memprof"]}

    assert "which is no alloc" in refused_pickle(tmp_path, value)


GREEDY = (
    *(bytes([0x80, 5, opcode]) + struct.pack("<Q", 1 << 33) for opcode in (0x8D, 0x8E, 0x95, 0x96)),
    b"\x80\x02]r" + struct.pack("<I", 1 << 29) + b".",
    b"\x80\x02" + b"}" * 20_000_000 + b".",
    b"\x80\x04" + b"\x8f" * 20_000_000 + b".",
    b"[" + b"{}," * 7_000_000,
    gzip.compress(b"\x80\x04X" + struct.pack("<I", 1 << 29) + b"a" * (1 << 29), 9),
    gzip.compress(b"\x80\x04" + b"]" * 100_000_000, 9),
)


@pytest.mark.skipif(sys.platform != "linux", reason="the limit of address space is Linux's")
def test_no_process_takes_a_gigabyte(tmp_path):
    # given: files that ask for more
    for index, data in enumerate(GREEDY):
        (tmp_path / f"{index}.pickle").write_bytes(data)

    # when: a process of its own loads them all, so that its children are these alone
    code = (
        "import resource, sys; sys.path.insert(0, sys.argv[1])\n"
        "from memprof.errors import InputError\nfrom memprof.trace import load\n"
        "for path in sys.argv[2:]:\n"
        "    try: load(path)\n"
        "    except InputError: print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    paths = [str(tmp_path / f"{index}.pickle") for index in range(len(GREEDY))]
    done = subprocess.run([sys.executable, "-c", code, str(ROOT), *paths], capture_output=True, text=True, check=True)

    # then
    largest = [int(line) << 10 for line in done.stdout.split()]
    assert len(largest) == len(GREEDY)
    assert largest[-1] < 1 << 30, largest


def test_a_good_file_after_a_bad_one(tmp_path):
    # A reader that stays usable: nothing of the bad file is left in the parent.
    refused_pickle(tmp_path, event(size=-1))
    path = tmp_path / "good.json"
    path.write_text(json.dumps(snapshot()))

    start = time.monotonic()
    assert len(load(path).devices) == 1
    assert time.monotonic() - start < 5
