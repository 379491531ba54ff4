"""`capture` and `sweep` where no GPU is there: an H200 is simulated, and that is said before anything else."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from memprof.errors import UnsupportedError
from memprof.simulate.support import check_build

torch = pytest.importorskip("torch")
if torch.cuda.is_available():
    pytest.skip("a GPU is here", allow_module_level=True)
try:
    check_build(torch.__version__, torch.version.cuda, torch.version.hip)
except UnsupportedError as error:
    pytest.skip(str(error), allow_module_level=True)
pytest.importorskip("litgpt", reason="the recipe needs litgpt")

pytestmark = pytest.mark.torch
ROOT = Path(__file__).parents[2]
SMALL = ("--model", "pythia-14m", "--seq", "64", "--steps", "1")
POINT = "pythia-14m_16-mixed_{quant}_seq64_mbs{mbs}.pickle"
SAID = "no CUDA device is here: simulating an NVIDIA H200 (--simulate CARD for another card, --device cpu for "


def memprof(*words, path=ROOT, **options):
    return subprocess.run(
        [sys.executable, "-m", "memprof", *map(str, words)],
        env={**os.environ, "PYTHONPATH": str(path), "COLUMNS": "200"}, capture_output=True, text=True, check=False,
        **options,
    )  # fmt: skip


def read(file):
    with file.open("rb") as opened:
        return pickle.load(opened)


def what_happened(snapshot):
    return [(entry["action"], entry["addr"], entry["size"], entry.get("category"))
            for entry in snapshot["device_traces"][0]]  # fmt: skip


@pytest.fixture(scope="module")
def captured(tmp_path_factory):
    """A capture for which no device was named, and what it printed."""
    file = tmp_path_factory.mktemp("capture") / "run.pickle"
    done = memprof("capture", *SMALL, "--mbs", 2, "--quant", "bnb.nf4", "-o", file)
    assert done.returncode == 0, done.stderr
    return read(file), done.stdout


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """A sweep for which no device was named, and what it printed."""
    folder = tmp_path_factory.mktemp("sweep")
    done = memprof("sweep", *SMALL, "--mbs", "1,2", "--quant", "none,bnb.nf4", "-o", folder)
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


def test_capture_simulates_and_says_so_first(captured):
    snapshot, printed = captured
    first, second = printed.splitlines()[:2]

    assert first.startswith(SAID)
    assert second == "simulated NVIDIA H200: real PyTorch over a CUDA device that is not there"
    assert snapshot["memprof"]["source"] == "simulated"
    assert snapshot["memprof"]["environment"]["card"] == "NVIDIA H200"


def test_points_of_a_sweep_are_what_captures_are(captured, swept):
    # given a sweep, whose points are forks of one process, and a capture in a process of its own
    folder, printed = swept
    alone = captured[0]

    together = read(folder / POINT.format(quant="bnb.nf4", mbs=2))

    assert printed.startswith(SAID)
    assert "4 points (4 ok), 4 of them new" in printed
    assert what_happened(together) == what_happened(alone)
    assert together["memprof"]["stats"] == alone["memprof"]["stats"]


def test_points_of_another_card_are_not_taken_for_this_one(swept):
    folder, _ = swept

    done = memprof("sweep", *SMALL, "--mbs", "1,2", "--simulate", "t4", "-o", folder)

    assert done.returncode == 1
    assert "was made with card NVIDIA H200 instead of Tesla T4: give another directory" in done.stderr


def test_stdout_is_json_alone_where_it_is_asked_for(swept):
    folder, _ = swept

    done = memprof("sweep", *SMALL, "--mbs", "1,2", "--quant", "none,bnb.nf4", "--json", "-o", folder)

    assert {group["config"]["quant"] for group in json.loads(done.stdout)["groups"]} == {"none", "bnb.nf4"}
    assert done.stderr.startswith(SAID)


def test_a_real_device_that_was_asked_for_is_not_simulated(tmp_path):
    done = memprof("capture", *SMALL, "--device", "cuda", "-o", tmp_path / "run.pickle")

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("memprof: --device cuda: torch finds no CUDA device here")
    assert not (tmp_path / "run.pickle").exists()


@pytest.mark.parametrize("command", ["capture", "sweep"])
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--simulate", "t5"), "memprof: --simulate: card 't5' is not known; choose one of t4,"),
        (("--simulate", "t4", "--device", "cpu"), "memprof: --simulate t4 and --device cpu: choose one of them\n"),
    ],
)
def test_a_wrong_card_is_one_line_before_torch_is_loaded(tmp_path, command, words, said):
    done = memprof(command, *SMALL, *words, "-o", tmp_path / "new")

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(said)
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("command", ["capture", "sweep"])
def test_a_torch_that_cannot_be_simulated_on_says_what_to_install(tmp_path, command):
    # given that the installed torch calls itself another version
    (tmp_path / "memprof").symlink_to(ROOT / "memprof")
    (tmp_path / "torch-2.9.1+cpu.dist-info").mkdir()
    (tmp_path / "torch-2.9.1+cpu.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: torch\nVersion: 2.9.1+cpu\n"
    )

    done = memprof(command, *SMALL, "-o", tmp_path / "new", path=tmp_path)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("memprof: no CUDA device is here, and the simulated device does not know torch 2.9.1")
    assert done.stderr.endswith(", or --device cpu to measure this machine's CPU\n")
    assert "pip install torch==2.13.0" in done.stderr


def test_an_interrupted_sweep_leaves_whole_files_and_no_process(tmp_path):
    folder = tmp_path / "sweep"
    process = subprocess.Popen(
        [sys.executable, "-m", "memprof", "sweep", *SMALL, "--mbs", "1,2,3,4,5,6,7,8", "-o", str(folder)],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 200
    while not (folder / "sweep.json").exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="ascii").split()
    others = [
        word for task in Path(f"/proc/{process.pid}/task").iterdir() for word in (task / "children").read_text().split()
    ]
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)

    assert process.returncode == 1
    assert said.splitlines()[-1].startswith("memprof: interrupted after ")
    assert others or children
    assert not [child for child in {*children, *others} if Path(f"/proc/{child}").exists()]
    names = sorted(path.name for path in folder.iterdir())
    assert "sweep.json" in names
    for name in names:
        assert not name.startswith(".")
        if name.endswith(".pickle"):
            read(folder / name)
