"""Files whose size is the harm: sparse ones, JSON without end, a machine that is too small, a file that goes away."""

from __future__ import annotations

import gzip
import os
import pickle
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from memprof.errors import InputError
from memprof.trace import limits, load, start
from memprof.trace.formats import JSON_END, ZEROS_END

ROOT = Path(__file__).parents[2]
SPARSE = (
    (b'{"segments": ', "JSON of over 1 GiB"),
    (b"[", "JSON of over 1 GiB"),
    (b"\x80\x04", "damaged pickle"),
    (b"", "neither a pickle nor JSON"),
    (b"\x80\x04B" + struct.pack("<I", 0xFFFFFFFF), ""),
    (b"\x80\x04\x8e" + struct.pack("<Q", 18 << 30), ""),
)


@pytest.mark.skipif(sys.platform != "linux", reason="sparse files and the limit of address space are Linux's")
def test_sparse_files_cost_neither_memory_nor_time(tmp_path):
    # given: files of 20 GiB that take no room
    paths = [tmp_path / str(index) for index in range(len(SPARSE))]
    for path, (head, _) in zip(paths, SPARSE, strict=True):
        path.write_bytes(head)
        os.truncate(path, 20 << 30)

    # when: a process of its own loads them all, so that its children are these alone
    code = (
        "import resource, sys; sys.path.insert(0, sys.argv[1])\n"
        "from memprof.errors import InputError\nfrom memprof.trace import load\n"
        "for path in sys.argv[2:]:\n"
        "    try: load(path)\n"
        "    except InputError as error: print(error)\n"
        "used = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
        "print(used.ru_maxrss << 10, used.ru_utime + used.ru_stime)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(ROOT), *map(str, paths)], capture_output=True, text=True, check=True
    )

    # then
    *messages, used = done.stdout.splitlines()
    assert len(messages) == len(SPARSE)
    for message, (_, fact) in zip(messages, SPARSE, strict=True):
        assert fact in message
    memory, seconds = map(float, used.split())
    assert memory < 300 << 20
    assert seconds < 2 * len(SPARSE)


def test_zeros_in_json_end_its_reading(tmp_path):
    (tmp_path / "a.json").write_bytes(b'{"segments": ' + bytes(100_000))

    with pytest.raises(InputError, match="has a zero byte after 13;"):
        load(tmp_path / "a.json")


def test_json_that_is_small_only_while_it_is_compressed(tmp_path, monkeypatch):
    # given: JSON of more than may be, in a file that is not
    from memprof.trace import formats

    monkeypatch.setattr(formats, "JSON_END", 1 << 20)
    path = tmp_path / "a.json.gz"
    path.write_bytes(gzip.compress(b'{"segments": [' + os.urandom(600_000).hex().encode()))

    # when, then
    with path.open("rb", buffering=0) as file, pytest.raises(InputError, match="JSON of over"):
        formats.load_file(file, _NoBudget())
    assert JSON_END == 1 << 30


@pytest.mark.parametrize("shift", [0, 1, 1 << 18])
def test_a_hole_in_a_pickle_is_found(tmp_path, shift):
    # given: a text whose bytes the disk had no room for
    text = b"a" * shift + bytes(ZEROS_END + (2 << 20)) + b"a" * (2 << 20)
    path = tmp_path / "a.pickle"
    path.write_bytes(b"\x80\x04B" + struct.pack("<I", len(text)) + text + b".")

    # when, then
    with pytest.raises(InputError, match="16 MiB of zeros in a row"):
        load(path)


def test_zeros_that_are_fewer_are_data():
    from memprof.trace import formats

    text = (bytes(ZEROS_END - (1 << 20)) + b"a" * (1 << 20)) * 2
    data = pickle.dumps({"segments": [], "device_traces": [], "x": text.decode()})

    with _unbuffered(data) as file:
        assert formats.load_file(file, _NoBudget())["x"] == text.decode()


@pytest.mark.skipif(sys.platform != "linux", reason="a file of Linux")
def test_a_file_that_cannot_be_read_is_no_fault_of_memprof():
    with pytest.raises(InputError, match=r"^/proc/self/mem cannot be read to its end \(Input/output error\)"):
        load("/proc/self/mem")


@pytest.mark.parametrize("name", ["", "."])
def test_an_empty_name(name):
    with pytest.raises(InputError, match="the name of the file is empty"):
        load(name)


def test_a_file_that_goes_away_while_it_is_read(tmp_path):
    # given
    data = pickle.dumps({"segments": [], "device_traces": []})
    path = tmp_path / "a.pickle"
    path.write_bytes(data)

    # when
    pending = start(path)
    path.unlink()

    # then
    assert pending.size == len(data)
    assert pending.result().devices == ()


@pytest.mark.skipif(sys.platform != "linux", reason="the limit of address space is Linux's")
def test_a_machine_s_memory_is_an_absolute_limit():
    # given: a file of 50 GB, of which 14 times the size would be granted on a machine that is large enough
    code = (
        "import resource, sys; sys.path.insert(0, sys.argv[1])\n"
        "from memprof.trace.limits import Budget\n"
        "budget = Budget(); budget.grant(1); print(budget.shortage())\n"
        "budget.grant(50 << 30); print(resource.getrlimit(resource.RLIMIT_AS)[0] - budget._base)\n"
        "print(budget.shortage())"
    )

    # when
    done = subprocess.run([sys.executable, "-c", code, str(ROOT)], capture_output=True, text=True, check=True)

    # then
    before, granted, after = done.stdout.splitlines()
    half = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // limits.MEMORY_SHARE
    assert "made to do harm" in before
    assert int(granted) == min(half, limits.MEMORY + limits.MEMORY_PER_BYTE * (50 << 30))
    assert ("half of what this machine has" in after) == (int(granted) == half)


class _NoBudget:
    """Grants everything: what is tested is not the memory."""

    def grant(self, total):
        pass


def _unbuffered(data: bytes):
    import tempfile

    file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - whoever asks closes it
    file.write(data)
    file.seek(0)
    return file
