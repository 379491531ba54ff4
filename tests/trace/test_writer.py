"""Writing a snapshot: whole or not at all, and so that memory_viz opens it."""

from __future__ import annotations

import enum
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from little_allocator import training

from memprof.errors import OutputError
from memprof.trace import load
from memprof.trace.opcodes import check_memory_viz
from memprof.trace.writer import write_snapshot


def test_what_is_written_is_read_and_opens_in_memory_viz(tmp_path):
    value = training().snapshot()
    value["memprof"] = {
        "version": 1,
        "source": "recorded",
        "made_by": {"a": [1, 2.5, None, True, (), (1,), (1, 2, 3, 4)]},
    }

    write_snapshot(value, tmp_path / "run.pickle")

    assert check_memory_viz(tmp_path / "run.pickle") == []
    assert pickle.loads((tmp_path / "run.pickle").read_bytes()) == value
    assert len(load(tmp_path / "run.pickle").devices[0].events) == len(value["device_traces"][0])
    assert [path.name for path in tmp_path.iterdir()] == ["run.pickle"]


def test_every_plain_value_keeps_to_the_opcodes(tmp_path):
    integers = [sign * (1 << bits) + step for bits in range(63) for sign in (1, -1) for step in (-1, 0, 1)]
    value = {
        "integers": [*integers, (1 << 63) - 1, -(1 << 63)],
        "texts": ["", "a", "x" * 255, "x" * 256, "\N{SNOWMAN}" * 100, "y" * 70_000],
        "floats": [0.0, -1.5, float("inf")],
        "long list": list(range(3000)),
        "dict": {i: str(i) for i in range(3000)} | {None: 1, True: 2, 1.5: 3},
        "tuples": [(), (1,), (1, 2), (1, 2, 3), tuple(range(2000))],
        "shared": [[1]] * 3,
    }

    write_snapshot(value, tmp_path / "run.pickle")

    assert check_memory_viz(tmp_path / "run.pickle") == []
    assert pickle.loads((tmp_path / "run.pickle").read_bytes()) == value


def test_unsigned_line_numbers_become_signed(tmp_path):
    value = {"frames": [{"line": 2**64 - 1, "name": "init"}], "list": [2**63, 1]}

    write_snapshot(value, tmp_path / "run.pickle")

    assert check_memory_viz(tmp_path / "run.pickle") == []
    assert pickle.loads((tmp_path / "run.pickle").read_bytes()) == {
        "frames": [{"line": -1, "name": "init"}],
        "list": [-(2**63), 1],
    }


class Number(enum.IntEnum):
    ONE = 1


@pytest.mark.parametrize(
    "value",
    [
        b"x",
        bytearray(b"x"),
        {1},
        frozenset({1}),
        1 << 64,
        -(1 << 63) - 1,
        np.int64(1),
        np.float64(1),
        Number.ONE,
        1j,
        object(),
    ],
    ids=lambda value: type(value).__name__ if type(value) is object else repr(value),
)
def test_what_memory_viz_cannot_read_is_refused_by_place(tmp_path, value):
    for place, holder in (("'a'", {"a": {"b": value}}), (r"\[1\]", [[], [value]])):
        with pytest.raises(TypeError, match=rf"snapshot\[{place.strip('[]')}\]|snapshot\[1\]"):
            write_snapshot(holder, tmp_path / "run.pickle")
    with pytest.raises(TypeError):
        write_snapshot({"a": (value,)}, tmp_path / "run.pickle")
    assert list(tmp_path.iterdir()) == []


def test_keys_are_checked_too(tmp_path):
    with pytest.raises(TypeError, match=r"snapshot\['a'\] has a key"):
        write_snapshot({"a": {(1, 2): 1}}, tmp_path / "run.pickle")


def test_a_failed_write_leaves_what_was_there(tmp_path):
    path = tmp_path / "run.pickle"
    write_snapshot({"segments": []}, path)
    before = path.read_bytes()

    with pytest.raises(TypeError):
        write_snapshot({"segments": [b""]}, path)

    assert path.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["run.pickle"]


def test_no_such_folder_and_no_plain_file(tmp_path):
    with pytest.raises(OutputError, match="No such file"):
        write_snapshot({}, tmp_path / "absent" / "run.pickle")
    with pytest.raises(OutputError, match="is a directory"):
        write_snapshot({}, tmp_path)


def test_a_link_stays_one(tmp_path):
    (tmp_path / "real").mkdir()
    target = tmp_path / "real" / "run.pickle"
    target.write_bytes(b"old")
    (tmp_path / "link.pickle").symlink_to(target)

    write_snapshot({"segments": []}, tmp_path / "link.pickle")

    assert (tmp_path / "link.pickle").is_symlink()
    assert pickle.loads(target.read_bytes()) == {"segments": []}


@pytest.mark.skipif(sys.platform != "linux", reason="the limit of a file's size stands in for a full disk")
def test_full_disk_is_one_line_and_leaves_nothing(tmp_path):
    # given: a process that may write 64 KiB into a file
    code = (
        "import resource, signal, sys; sys.path.insert(0, sys.argv[1])\n"
        "from memprof.errors import OutputError\nfrom memprof.trace.writer import write_snapshot\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))\n"
        "try: write_snapshot({'segments': list(range(10**6))}, sys.argv[2])\n"
        "except OutputError as error: print(error)"
    )
    root = __file__.rpartition("tests")[0]

    # when
    done = subprocess.run(
        [sys.executable, "-c", code, root, str(tmp_path / "run.pickle")], capture_output=True, text=True, check=True
    )

    # then
    assert done.stdout.count("\n") == 1
    assert "run.pickle cannot be written" in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (pickle.dumps([1], protocol=5), "protocol 5"),
        (pickle.dumps([1], protocol=1), "no protocol mark"),
        (pickle.dumps(b"x", protocol=4), "SHORT_BINBYTES"),
        (pickle.dumps({1}, protocol=4), "EMPTY_SET"),
        (pickle.dumps(os.getcwd, protocol=4), "STACK_GLOBAL"),
        (pickle.dumps(1 << 64, protocol=4), "more than 8 bytes"),
        (pickle.dumps(1 << 5000, protocol=4), "LONG4"),
        (pickle.dumps([1], protocol=4)[:-1], "no complete pickle"),
        (b"", "no complete pickle"),
    ],
)
def test_what_stops_memory_viz_is_found(data, problem):
    assert any(problem in found for found in check_memory_viz(data))
