"""`memprof run --simulate` on scripts as people write them, and on scripts that cannot be simulated."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import memprof
from memprof.errors import UnsupportedError
from memprof.simulate.support import check_build

torch = pytest.importorskip("torch")
try:
    check_build(torch.__version__, torch.version.cuda, torch.version.hip)
except UnsupportedError as error:
    pytest.skip(str(error), allow_module_level=True)

pytestmark = pytest.mark.torch
ROOT = Path(__file__).parents[2]
SCRIPTS = Path(__file__).parent / "scripts"
LOADING = 163
"""Allocations until the last weight is quantized; only those after have one order."""


def run(folder, *words, card="t4", **environment):
    return subprocess.run(
        [sys.executable, "-m", "memprof", "run", "--simulate", card, "-o", "run.pickle", *map(str, words)],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200", **environment},
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip


def peak_of(folder):
    """The peak of the file, its categories, and the environment that it names."""
    trace = memprof.load(folder / "run.pickle")
    peak = memprof.break_down(trace).devices[0].peak
    return peak.allocated, {category.value for category, size in peak.categories.items() if size}, trace.environment


@pytest.fixture(scope="module")
def measured():
    """What the two scripts did on an H200 with torch 2.11."""
    text = gzip.decompress((Path(__file__).parent / "data/scripts_h200.json.gz").read_bytes())
    return json.loads(text)["runs"]


def figures_of(folder):
    """The peaks that the allocator told, and the sizes that it was asked for, in order."""
    snapshot = pickle.loads((folder / "run.pickle").read_bytes())
    last = snapshot["memprof"]["stats"][-1]
    sizes = [entry["size"] for entry in snapshot["device_traces"][0] if entry["action"] == "alloc"]
    return last["max_allocated_bytes"], last["max_reserved_bytes"], sizes


def test_plain_loop_with_workers_amp_evaluation_and_checkpoint(tmp_path, measured):
    done = run(tmp_path, SCRIPTS / "plain_loop.py", "--save", "model.pt", card="h200")

    assert done.returncode == 0, done.stderr
    printed = done.stdout.splitlines()
    assert printed[0] == "training on cuda NVIDIA H200"
    peak, categories, environment = peak_of(tmp_path)
    # what the script was told by torch is what the file says
    assert printed[-1] == f"peak {peak}"
    assert {"weights", "activations", "optimizer_state"} <= categories
    assert (environment["card"], environment["capability"]) == ("NVIDIA H200", "9.0")
    assert "simulated NVIDIA H200" in done.stderr
    # and the checkpoint is one, of a CUDA device, though nothing was computed
    saved = torch.load(tmp_path / "model.pt", map_location="cpu")
    assert saved["model"]["0.weight"].shape == (32, 3, 3, 3)
    # and every allocation is that of the same script on the card
    allocated, reserved, sizes = figures_of(tmp_path)
    truth = measured["plain_loop.py"]
    assert (allocated, reserved) == (truth["max_allocated_bytes"], truth["max_reserved_bytes"])
    assert sizes == truth["allocations"]


def test_hugging_face_script_with_trainer_peft_and_bitsandbytes(tmp_path, measured):
    for name in ("transformers", "peft", "accelerate"):
        pytest.importorskip(name)
    if not any((Path(each) / "bitsandbytes").is_dir() for each in sys.path):
        pytest.skip("bitsandbytes is not installed")
    subprocess.run([sys.executable, SCRIPTS / "make_checkpoint.py", tmp_path / "model"], check=True)

    done = run(tmp_path, SCRIPTS / "hugging_face_lora.py", "--model", "model", card="h200", HF_HUB_OFFLINE="1")

    assert done.returncode == 0, done.stderr
    peak, categories, environment = peak_of(tmp_path)
    assert done.stdout.splitlines()[-1] == f"peak {peak}"
    assert {"weights", "activations"} <= categories
    assert "trainable params: 7,168" in done.stdout
    # and where the libraries are those of the measured run, every allocation is that of the same script on the card
    truth = measured["hugging_face_lora.py"]
    if any(environment["packages"].get(name) != truth["packages"][name] for name in ("transformers", "peft")):
        pytest.skip("measured with other versions of transformers and peft")
    allocated, reserved, sizes = figures_of(tmp_path)
    assert (allocated, reserved) == (truth["max_allocated_bytes"], truth["max_reserved_bytes"])
    # transformers has four threads that load weights while it quantizes those that are there: any order is right
    assert sorted(sizes[:LOADING]) == sorted(truth["allocations"][:LOADING])
    assert sizes[LOADING:] == truth["allocations"][LOADING:]


def test_the_report_names_the_largest_caveat(tmp_path):
    (tmp_path / "train.py").write_text("import torch; torch.ones(3, device='cuda')")

    done = run(tmp_path, "train.py")

    (line,) = (line for line in done.stderr.splitlines() if "caveat" in line)
    assert line.startswith("1 caveat: Tesla T4 was never measured")
    assert line.endswith(", 804.0 MB; memprof breakdown lists it")


def refused(folder, code):
    """The one line that a script is refused with."""
    (folder / "train.py").write_text(textwrap.dedent(code))
    done = run(folder, "train.py")
    assert (done.returncode, done.stdout) == (1, "")
    assert not (folder / "run.pickle").exists()
    (line,) = done.stderr.splitlines()
    return line


def test_a_script_for_nccl_is_refused_by_name(tmp_path):
    line = refused(
        tmp_path,
        """
        import os, torch
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29571", RANK="0", WORLD_SIZE="1")
        if torch.distributed.is_nccl_available():
            torch.distributed.init_process_group("nccl")
        torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8).cuda())
        """,
    )
    assert line.startswith("memprof: train.py:5: NCCL (torch.distributed) cannot be simulated: ")


def test_a_compiled_cuda_extension_is_refused_by_name(tmp_path):
    # given an extension that was linked against the CUDA part of torch, and a torch that does not have that part
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler is here")
    (tmp_path / "empty.c").write_text("int c10_cuda;")
    (tmp_path / "fast.c").write_text("extern int c10_cuda; int *PyInit_fast_attention(void) { return &c10_cuda; }")
    made = ["-shared", "-fPIC", "-o"]
    subprocess.run([compiler, *made, "libc10_cuda.so", "empty.c"], cwd=tmp_path, check=True)
    subprocess.run([compiler, *made, "fast_attention.so", "fast.c", "-L.", "-lc10_cuda"], cwd=tmp_path, check=True)
    (tmp_path / "libc10_cuda.so").unlink()

    line = refused(tmp_path, "import torch\nimport fast_attention\n")

    assert line.startswith("memprof: train.py:2: fast_attention cannot be simulated: it is compiled for CUDA (libc10_")


def test_a_script_that_reads_the_devices_memory_ends_in_one_line(tmp_path):
    line = refused(
        tmp_path, "import ctypes, torch\nx = torch.ones(4, device='cuda')\nctypes.string_at(x.data_ptr(), 16)\n"
    )
    assert line.startswith("memprof: train.py:3: ended by SIGSEGV: something in it reads memory of the device")


def test_an_error_of_the_script_is_its_own(tmp_path):
    (tmp_path / "train.py").write_text("import torch\ntorch.ones(2, device='cuda') @ torch.ones(3, device='cuda')\n")
    done = run(tmp_path, "train.py")
    assert done.returncode == 1
    assert done.stderr.startswith('Traceback (most recent call last):\n  File "train.py", line 2, in <module>\n')
    assert done.stderr.splitlines()[-1].startswith("RuntimeError: ")


def test_a_launcher_whose_child_trains_is_told_to_be_left_out(tmp_path):
    (tmp_path / "launch.py").write_text(
        "import subprocess, sys\n"
        "subprocess.run([sys.executable, '-c', 'import torch; print(torch.cuda.is_available())'], check=True)\n"
    )
    done = run(tmp_path, "launch.py")
    assert (done.returncode, done.stdout) == (0, "False\n")
    assert done.stderr.splitlines()[-1].startswith(
        "memprof: nothing was allocated on the simulated Tesla T4; processes"
    )


def test_a_script_for_cuda_is_told_of_the_simulation(tmp_path):
    if torch.cuda.is_available():
        pytest.skip("a GPU is here")
    (tmp_path / "train.py").write_text("import torch\ntorch.ones(2, device='cuda')\n")
    done = subprocess.run(
        [sys.executable, "-m", "memprof", "run", "train.py"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    *_, torch_said, hint = done.stderr.splitlines()
    assert torch_said == "AssertionError: Torch not compiled with CUDA enabled"
    assert hint == "memprof: no CUDA device is here; --simulate h200, or another card, gives the script one"
