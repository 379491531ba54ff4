"""One snapshot in every wrapping that is met: the trace is the same, and comes out of another process."""

from __future__ import annotations

import dataclasses
import gzip
import io
import json
import os
import pickle
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest
from little_allocator import training

from memprof.errors import InputError, UnsupportedError
from memprof.trace import load, reader, start
from memprof.trace.snapshot import read_snapshot

ROOT = Path(__file__).parents[2]


def same(a, b):
    """Tell whether two values are equal down to their columns and dtypes."""
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and np.array_equal(a, b)
    if dataclasses.is_dataclass(a):
        return type(a) is type(b) and all(same(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(a))
    if isinstance(a, tuple):
        return isinstance(b, tuple) and len(a) == len(b) and all(map(same, a, b))
    return a == b


def snapshot():
    value = training(0).snapshot(training(2))
    value["device_traces"][0][1]["user_metadata"] = "grüße \N{SNOWMAN}"
    value["external_annotations"] = [{"stage": "START", "name": "x", "device": 0, "time_us": 5}]
    first = next(i for i, entry in enumerate(value["device_traces"][2]) if entry["action"] == "alloc")
    value["memprof"] = {
        "version": 1,
        "source": "recorded",
        "made_by": {"recipe": "x", "list": [1, 2.5, None, True]},
        "strings": ["weights"],
        "labels": {"device": [2], "entry": [first], "category": [0]},
        "marks": [{"device": 2, "entry": 0, "name": "init"}],
        "stats": [{"device": 2, "step": 0, "max_allocated_bytes": 7}],
    }
    return value


def zipped(data, method=zipfile.ZIP_STORED):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        archive.writestr("run/data.pkl", data)
        archive.writestr("run/version", "3\n")
    return buffer.getvalue()


def old_torch_save(value):
    """Return what torch.save wrote before 1.6: headers and the value, one pickle behind the other."""
    parts = (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}, value, [])
    return b"".join(pickle.dumps(part, protocol=2) for part in parts)


WRAPPINGS = {
    "protocol 0": lambda value: pickle.dumps(value, protocol=0),
    "protocol 1": lambda value: pickle.dumps(value, protocol=1),
    "protocol 2": lambda value: pickle.dumps(value, protocol=2),
    "protocol 3": lambda value: pickle.dumps(value, protocol=3),
    "protocol 4": lambda value: pickle.dumps(value, protocol=4),
    "protocol 5": lambda value: pickle.dumps(value, protocol=5),
    "gzip": lambda value: gzip.compress(pickle.dumps(value)),
    "gzip in members": lambda value: b"".join(
        gzip.compress(pickle.dumps(value)[i : i + 5000]) for i in range(0, len(pickle.dumps(value)), 5000)
    ),
    "gzip with padding": lambda value: gzip.compress(pickle.dumps(value)) + bytes(512),
    "json": lambda value: json.dumps(value).encode(),
    "json with a mark": lambda value: b"\xef\xbb\xbf" + json.dumps(value, indent=1).encode(),
    "json, gzipped": lambda value: gzip.compress(json.dumps(value).encode()),
    "torch.save": lambda value: zipped(pickle.dumps(value, protocol=2)),
    "zip, compressed": lambda value: zipped(pickle.dumps(value, protocol=2), zipfile.ZIP_DEFLATED),
    "torch.save of before 1.6": old_torch_save,
}


@pytest.mark.parametrize("wrapping", WRAPPINGS)
def test_every_wrapping(tmp_path, wrapping):
    value = snapshot()
    path = tmp_path / "run.pickle"
    path.write_bytes(WRAPPINGS[wrapping](value))

    trace = load(path)

    assert same(trace, read_snapshot(value, path=str(path)))


def test_bare_list_of_segments(tmp_path):
    for name, data in (("a", pickle.dumps(snapshot()["segments"])), ("b", json.dumps(snapshot()["segments"]).encode())):
        (tmp_path / name).write_bytes(data)
        assert [device.device for device in load(tmp_path / name).devices] == [0, 2]


@pytest.mark.torch
@pytest.mark.parametrize("new", [True, False])
def test_what_torch_saves(tmp_path, new):
    torch = pytest.importorskip("torch")
    value = snapshot()
    torch.save(value, tmp_path / "run.pt", _use_new_zipfile_serialization=new)

    assert same(load(tmp_path / "run.pt"), read_snapshot(value, path=str(tmp_path / "run.pt")))


@pytest.mark.torch
def test_a_checkpoint_is_no_snapshot(tmp_path):
    torch = pytest.importorskip("torch")
    torch.save({"weight": torch.ones(3)}, tmp_path / "model.pt")

    with pytest.raises(InputError, match="refused"):
        load(tmp_path / "model.pt")


def test_one_reader_after_the_other_and_at_once(tmp_path):
    path = tmp_path / "run.pickle"
    path.write_bytes(pickle.dumps(snapshot()))

    pending = [start(path) for _ in range(3)]
    traces = [one.result() for one in pending]

    assert same(traces[0], traces[1])
    assert same(traces[1], traces[2])


def test_progress_ends_at_the_size_of_the_file(tmp_path):
    # given: a file that takes longer than the tenth of a second between two reports
    value = snapshot()
    value["device_traces"][0] = [dict(entry, time_us=i) for i, entry in enumerate(value["device_traces"][0] * 600)]
    del value["memprof"]
    path = tmp_path / "run.pickle"
    path.write_bytes(pickle.dumps(value))
    seen = []

    # when
    load(path, progress=lambda done, total: seen.append((done, total)))

    # then
    assert seen
    assert {total for _, total in seen} == {path.stat().st_size}
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1][0] <= path.stat().st_size


def settle():
    """Wait for the threads that wait for reading processes."""
    for thread in threading.enumerate():
        if thread.name == reader.WATCH:
            thread.join(timeout=10)
            assert not thread.is_alive()


def test_no_descriptor_and_no_process_stays(tmp_path):
    path = tmp_path / "run.pickle"
    path.write_bytes(pickle.dumps(snapshot()))
    settle()
    descriptors = Path("/proc/self/fd")
    if not descriptors.exists():
        pytest.skip("counting descriptors needs /proc")
    before = len(list(descriptors.iterdir()))

    for _ in range(3):
        load(path)
    path.write_bytes(b"x")
    for _ in range(3):
        with pytest.raises(InputError):
            load(path)

    settle()
    assert len(list(descriptors.iterdir())) == before
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


@pytest.mark.parametrize(("executable", "fact"), [("", r"sys\.executable"), ("/no/such/python", "cannot be started")])
def test_without_an_interpreter_to_start(tmp_path, monkeypatch, executable, fact):
    path = tmp_path / "run.pickle"
    path.write_bytes(pickle.dumps(snapshot()))
    monkeypatch.setattr(sys, "executable", executable)

    with pytest.raises(UnsupportedError, match=fact):
        load(path)


def test_the_environment_and_folder_of_the_user_have_no_say(tmp_path, monkeypatch):
    # given: modules that would be found first by an interpreter that listens to either
    path = tmp_path / "run.pickle"
    path.write_bytes(pickle.dumps(snapshot()))
    for name in ("json", "pickle", "numpy", "sitecustomize", "usercustomize"):
        (tmp_path / f"{name}.py").write_text("import os\nopen('witness', 'w')\nos._exit(3)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PYTHONSTARTUP", str(tmp_path / "json.py"))

    # when
    trace = load(path)

    # then
    assert len(trace.devices) == 2
    assert not (tmp_path / "witness").exists()


def test_loading_imports_neither_torch_nor_pickle_into_the_parent(tmp_path):
    path = tmp_path / "run.pickle"
    path.write_bytes(pickle.dumps(snapshot()))
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import memprof.trace\nassert 'numpy' not in sys.modules\n"
        "memprof.trace.load(sys.argv[2])\n"
        "print([name for name in ('torch', 'memprof.trace.unpickle', 'plotly', 'rich') if name in sys.modules])"
    )

    done = subprocess.run(
        [sys.executable, "-c", code, str(ROOT), str(path)], capture_output=True, text=True, check=True
    )

    assert done.stdout.strip() == "[]"


def test_child_that_cannot_start_is_one_line(tmp_path, monkeypatch):
    path = tmp_path / "run.pickle"
    path.write_bytes(pickle.dumps(snapshot()))
    monkeypatch.setattr(reader, "_import_folders", lambda: [str(tmp_path)])

    with pytest.raises(InputError, match="ended with status 1"):
        load(path)
