"""The reader of torch.profiler's traces: real ones of this torch, older and partial ones, and harmful files."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import random
import sys

import numpy as np
import pytest

from memprof.errors import InputError
from memprof.trace.kineto import read_profile
from memprof.trace.kineto_file import load_profile
from memprof.trace.kineto_model import DeviceKind, RangeKind

SECONDS = 2.0
"""What a bad file may cost of CPU time."""
EVENT = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 10.5, "dur": 2.25, "args": {}}
MEMORY = {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1, "ts": 11.0}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A trace of a tiny training step, as torch writes it."""
    torch = pytest.importorskip("torch")
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    model = torch.nn.Linear(8, 4)
    path = tmp_path_factory.mktemp("profile") / "trace.json"
    with (
        torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU],
            profile_memory=True,
            record_shapes=True,
            with_stack=True,
            with_modules=True,
        ) as profiler,
        torch.profiler.record_function("ProfilerStep#3"),
    ):
        model(torch.ones(2, 8)).sum().backward()
    profiler.export_chrome_trace(str(path))
    return path


@pytest.fixture(scope="module")
def values(exported):
    return json.loads(exported.read_text(encoding="utf-8"), strict=False)


def written(tmp_path, values, name="trace.json"):
    path = tmp_path / name
    path.write_text(json.dumps(values), encoding="utf-8")
    return path


@pytest.mark.torch
def test_columns_hold_what_the_file_says(exported, values):
    profile = load_profile(exported)

    base = values["baseTimeNanoseconds"]
    events = sorted((e for e in values["traceEvents"] if e["name"] == "[memory]"), key=lambda e: e["ts"])
    assert len(profile.memory) == len(events) > 5
    assert profile.memory.address.tolist() == [e["args"]["Addr"] for e in events]
    assert profile.memory.size.tolist() == [e["args"]["Bytes"] for e in events]
    assert profile.memory.allocated.tolist() == [e["args"]["Total Allocated"] for e in events]
    assert set(profile.memory.device_kind.tolist()) == {DeviceKind.CPU}
    assert profile.memory.time.tolist() == [base + round(e["ts"] * 1000) for e in events]
    ops = [e for e in values["traceEvents"] if e.get("cat") == "cpu_op"]
    is_op = profile.ranges.kind == RangeKind.OP
    assert [profile.texts[name] for name in profile.ranges.name[is_op]] == [e["name"] for e in ops]
    assert (profile.ranges.end - profile.ranges.start)[is_op].tolist() == [round(e["dur"] * 1000) for e in ops]
    assert profile.ranges.external[is_op].tolist() == [e["args"]["External id"] for e in ops]
    assert profile.ranges.sequence[is_op].tolist() == [e["args"].get("Sequence number", -1) for e in ops]
    names = [profile.texts[name] for name in profile.ranges.name]
    assert "ProfilerStep#3" in names
    modules = [name for name, kind in zip(names, profile.ranges.kind, strict=True) if kind == RangeKind.MODULE]
    assert modules == ["nn.Module: Linear_0"]
    assert profile.python_calls == sum(e.get("cat") == "python_function" for e in values["traceEvents"])
    assert profile.epoch
    assert not profile.notes


@pytest.mark.torch
def test_gzip_and_a_bare_list_are_the_same(exported, values, tmp_path):
    packed = tmp_path / "trace.json.gz"
    packed.write_bytes(gzip.compress(exported.read_bytes()))
    bare = written(tmp_path, values["traceEvents"])

    whole, unpacked, listed = load_profile(exported), load_profile(packed), load_profile(bare)

    for profile in (unpacked, listed):
        assert profile.memory.address.tolist() == whole.memory.address.tolist()
        assert profile.ranges.sequence.tolist() == whole.ranges.sequence.tolist()
    assert np.array_equal(unpacked.memory.time, whole.memory.time)
    assert not listed.epoch  # nothing in a bare list says when its clock began


@pytest.mark.torch
def test_memory_events_of_an_old_torch_say_that_they_cannot_be_compared(values, tmp_path):
    old = json.loads(json.dumps(values))
    for event in old["traceEvents"]:
        if event["name"] == "[memory]":
            event["args"] = {"Bytes": event["args"]["Bytes"], "Device": 0}

    profile = load_profile(written(tmp_path, old))

    assert profile.memory.size.sum() == sum(
        e["args"]["Bytes"] for e in values["traceEvents"] if e["name"] == "[memory]"
    )
    assert profile.memory.allocated.max() == profile.memory.address.max() == -1
    (note,) = profile.notes
    assert "have no Addr, Total Allocated or Total Reserved" in note


@pytest.mark.torch
def test_a_trace_without_memory_events_says_what_to_do(values, tmp_path):
    bare = {**values, "traceEvents": [e for e in values["traceEvents"] if e["name"] != "[memory]"]}

    profile = load_profile(written(tmp_path, bare))

    assert len(profile.memory) == 0
    (note,) = profile.notes
    assert "profile_memory=True" in note


def test_times_are_exact_to_the_nanosecond():
    stamps = [5210814799580.645, 5210814799580.646, 123.001, 7]

    profile = read_profile([("traceEvents", {**EVENT, "ts": ts}) for ts in stamps], "trace")

    assert profile.ranges.start.tolist() == [5210814799580645, 5210814799580646, 123001, 7000]


def test_kernels_and_launches_of_a_gpu():
    kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 20.0, "dur": 3.5}
    launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 11.0, "dur": 1.0}
    items = [
        ("deviceProperties", [{"id": 0, "name": "NVIDIA H200"}]),
        ("distributedInfo", {"rank": 3}),
        ("traceEvents", {**launch, "args": {"correlation": 5}}),
        ("traceEvents", {**kernel, "args": {"device": 0, "stream": 7, "correlation": 5, "External id": 9}}),
        ("traceEvents", {**kernel, "cat": "gpu_memcpy", "args": {"device": 0, "stream": 7, "correlation": 6}}),
    ]

    profile = read_profile(items, "trace")

    assert profile.devices == ("NVIDIA H200",)
    assert profile.rank == 3
    assert profile.kernels.work.tolist() == [0, 1]
    assert profile.kernels.correlation.tolist() == [5, 6]
    assert profile.kernels.external.tolist() == [9, -1]
    assert (profile.kernels.end - profile.kernels.start).tolist() == [3500, 3500]
    assert profile.launches.correlation.tolist() == [5]


def refused(path) -> str:
    """Load `path`, which must give one InputError that names it, soon, and return the message."""
    before = os.times()
    with pytest.raises(InputError) as caught:
        load_profile(path)
    spent = sum(os.times()[:4]) - sum(before[:4])
    assert spent < SECONDS, f"took {spent:.1f} s of CPU"
    message = str(caught.value)
    assert message.startswith(str(path))
    assert message.isprintable(), message
    assert len(message) < len(str(path)) + 400
    return message


@pytest.mark.parametrize(
    ("content", "fact"),
    [
        (b"", "is empty"),
        (gzip.compress(b""), "is empty"),
        (b"\x00\x01\x02\x03", "is not JSON"),
        (pickle.dumps({"segments": []}), "memprof breakdown reads it"),
        (b"\x89PNG\r\n", "a PNG image"),
        (b"{}", "has no traceEvents"),
        (b'{"nodes": []}', "has no traceEvents"),
        (b'{"traceEvents": []}', "has no traceEvents"),
        (b'{"traceEvents": {}}', "has no ops, kernels or memory events"),
        (b'{"traceEvents": [7]}', "traceEvents[0] is 7"),
        (b'{"traceEvents": [{"ph": "M"}]}', "has no ops, kernels or memory events"),
        (b"[" * 100_000, "nested beyond reason"),
        (b'{"a":' * 100_000, "nested beyond reason"),
        (b'{"traceEvents": [' + b'{"a":' * 100_000, "nested beyond reason"),
        (gzip.compress(b"{" + b" " * 50_000_000), "gzip bomb"),
        (gzip.compress(b'{"traceEvents": [' + b"{}," * 20_000_000), "made to do harm"),
    ],
    ids=lambda value: value if type(value) is str else "bytes",  # compressed bytes hold the time
)
def test_what_is_no_trace_is_refused_in_one_line(tmp_path, content, fact):
    path = tmp_path / "trace.json.gz"
    path.write_bytes(content)

    assert fact in refused(path)


@pytest.mark.parametrize(
    "change",
    [
        {"ts": None},
        {"ts": "7"},
        {"ts": float("nan")},
        {"ts": float("inf")},
        {"ts": 1e300},
        {"ts": -1.0},
        {"ts": 10**40},
        {"dur": "long"},
        {"dur": 1e200},
        {"args": [1]},
        {"args": "x"},
    ],
)
def test_an_odd_value_in_an_event_is_refused_in_one_line(tmp_path, change):
    assert "torch.profiler" in refused(written(tmp_path, [EVENT, {**EVENT, **change}]))


@pytest.mark.parametrize("size", [None, "1", 1.5, True, 1 << 70, -(1 << 70), []])
def test_bytes_that_are_no_size_are_refused(tmp_path, size):
    assert "whose Bytes are" in refused(written(tmp_path, [{**MEMORY, "args": {"Bytes": size}}]))


@pytest.mark.parametrize("value", [None, "x", 1 << 64, 2.5, [], {}])
@pytest.mark.parametrize("key", ["Addr", "Device Id", "Device Type", "Total Allocated", "Total Reserved"])
def test_other_odd_values_of_a_memory_event_are_not_known(tmp_path, key, value):
    profile = load_profile(written(tmp_path, [{**MEMORY, "args": {"Bytes": 512, key: value}}]))

    assert profile.memory.size.tolist() == [512]
    assert profile.memory.address.tolist() == [-1]


@pytest.mark.torch
def test_a_trace_cut_anywhere_is_refused_in_one_line(exported, tmp_path):
    packed = gzip.compress(exported.read_bytes())
    plain = exported.read_bytes()
    random.seed(7)
    for data in (packed, plain):
        for _ in range(4):
            path = tmp_path / "cut.json.gz"
            path.write_bytes(data[: random.randrange(2, len(data) - 2)])
            refused(path)


def test_texts_with_lone_surrogates_can_be_written(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps([{**EVENT, "name": "\ud800", "tid": "\udfff"}]), encoding="ascii")

    profile = load_profile(path)

    assert "".join((*profile.texts, *profile.threads)).encode()


def test_missing_files_and_directories(tmp_path):
    assert "no such file" in refused(tmp_path / "none.json.gz")
    assert "is a directory" in refused(tmp_path)


def test_reading_does_not_import_torch(tmp_path):
    import subprocess

    path = written(tmp_path, [EVENT])
    code = (
        "import sys\nfrom memprof.trace.kineto_file import load_profile\n"
        f"from memprof.analysis.profile import summarize\nsummarize(load_profile({str(path)!r}))\n"
        "print({'torch', 'pandas', 'plotly', 'hta', 'rich'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "set()"
