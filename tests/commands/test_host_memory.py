"""A run that takes all memory of the machine is told from one that does not."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from memprof.commands import host_memory
from memprof.commands.host_memory import crowds_out

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux says how much memory is left")


@pytest.fixture
def hungry():
    """A process with 300 MB of resident memory."""
    process = subprocess.Popen(
        [sys.executable, "-c", "kept = bytearray(b'x') * 300_000_000; print(flush=True); input()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    process.stdout.readline()
    yield process
    process.communicate(b"\n")


def test_a_machine_with_memory_left_is_nobodys(hungry):
    assert crowds_out(hungry.pid) is None


def test_the_process_that_has_most_of_a_full_machine_is_named_with_its_size(hungry, monkeypatch):
    # given limits by which this machine is full, and 200 MB are most of it
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    monkeypatch.setattr(host_memory, "_LEAST_LEFT", 1.1)
    monkeypatch.setattr(host_memory, "_LARGEST", 200e6 / total)

    # then
    assert 300e6 < crowds_out(hungry.pid) < 400e6
    small = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert crowds_out(small.pid) is None
    small.communicate(b"\n")
    assert crowds_out(small.pid) is None  # it is gone
