"""An interrupt that only the command itself gets ends the simulated run that it began, once and in good order."""

from __future__ import annotations

import os
import pickle
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
if torch.version.cuda or torch.__version__.partition("+")[0] != "2.13.0":
    pytest.skip("only the CPU build of torch 2.13.0 is simulated on", allow_module_level=True)

pytestmark = pytest.mark.torch
ROOT = Path(__file__).parents[2]
SCRIPT = """
import time, torch
kept = torch.zeros(1000, device="cuda")
try:
    print("begun", flush=True)
    time.sleep(120)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    time.sleep(1)  # a second interrupt would come here
    print("in order", flush=True)
    raise
"""


@pytest.fixture
def command(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    return [sys.executable, "-m", "memprof", "run", "--simulate", "t4", "-o", "run.pickle", "train.py"]


def environment():
    return {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}


def status_of(folder):
    return pickle.loads((folder / "run.pickle").read_bytes())["memprof"]["made_by"]["status"]


@pytest.mark.parametrize("to_group", [False, True], ids=["to the command alone", "to its whole group"])
def test_without_a_terminal(tmp_path, command, to_group):
    # given a run without a terminal
    process = subprocess.Popen(
        command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    assert process.stdout.readline() == "begun\n"

    # when
    (os.killpg if to_group else os.kill)(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)

    # then the script got it once, its recording is whole, and the command ends by the signal
    assert out == "interrupted\nin order\n"
    assert process.returncode == -signal.SIGINT, err
    assert "interrupted: the file has what happened until then" in err
    assert status_of(tmp_path) == "interrupted"


def test_at_a_terminal(tmp_path, command):
    # given a run that has a terminal to itself
    child, terminal = pty.fork()
    if not child:
        os.chdir(tmp_path)
        os.execve(command[0], command, environment())
    told = read_until(terminal, b"begun")

    # when Ctrl-C is pressed
    os.write(terminal, b"\x03")
    told += read_until(terminal, b"next: memprof breakdown")
    _, status = os.waitpid(child, 0)

    # then
    assert told.count(b"interrupted\r\n") == 1
    assert b"in order" in told
    assert os.waitstatus_to_exitcode(status) == -signal.SIGINT
    assert status_of(tmp_path) == "interrupted"


def read_until(terminal, words):
    text, end = b"", time.monotonic() + 60
    while words not in text and time.monotonic() < end:
        try:
            text += os.read(terminal, 1 << 12)
        except OSError:  # noqa: PERF203 - how Linux says that nobody has the other end any more
            break
    return text


def test_a_capture_ends_with_its_command_and_leaves_no_file(tmp_path):
    words = ["capture", "--simulate", "t4", "--model", "pythia-14m", "--steps", "100000", "--seq", "16"]
    process = subprocess.Popen(
        [sys.executable, "-m", "memprof", *words], cwd=tmp_path, env=environment(), stderr=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    time.sleep(8)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode > 0
    assert list(tmp_path.iterdir()) == []
