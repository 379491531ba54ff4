"""What cannot be simulated is refused in words that name it and the line, one after the other in one process."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parent))
from children import simulate

pytestmark = pytest.mark.torch

PROGRAMS = {
    "compiled model": ("torch.compile(layer)(x)", "torch.compile cannot be simulated"),
    "decorated function": ("@torch.compile\ndef f(x):\n    return x * 2\n\nf(x)", "torch.compile cannot be simulated"),
    "module compiled in place": ("layer.compile()\nlayer(x)", "torch.compile cannot be simulated"),
    "worker of a loader": (
        "from torch.utils.data import DataLoader\nlist(DataLoader([0], num_workers=1, collate_fn=torch.compile(abs)))",
        "torch.compile cannot be simulated",
    ),
    "graph": ("torch.cuda.CUDAGraph()", "a CUDA graph (torch.cuda.CUDAGraph) cannot"),
    "graphed callable": ("torch.cuda.make_graphed_callables(fresh(), (x,))", "a CUDA graph (torch.cuda.CUDAGraph)"),
    "pool": ("torch.cuda.MemPool()", "torch.cuda.MemPool cannot be simulated: only PyTorch's own allocator is"),
    "allocator": (
        "torch.cuda.memory.CUDAPluggableAllocator('a.so', 'take', 'give')",
        "torch.cuda.CUDAPluggableAllocator cannot",
    ),
    "kernel in a string": ("torch.cuda._compile_kernel('', 'f')", "torch.cuda._compile_kernel cannot be simulated"),
    "jiterator": (
        "torch.cuda.jiterator._create_jit_fn('template <typename T> T f(T x) { return x; }')(x)",
        "torch.cuda.jiterator cannot be simulated",
    ),
    "inline extension": (
        "import torch.utils.cpp_extension as cpp\ncpp.load_inline('scale', 'int f();', cuda_sources='int f();')",
        "the CUDA extension scale (torch.utils.cpp_extension) cannot be simulated",
    ),
    "extension from files": (
        "from torch.utils import cpp_extension\ncpp_extension.load('fused', sources=['fused.cpp', 'fused_kernel.cu'])",
        "the CUDA extension fused (torch.utils.cpp_extension) cannot be simulated",
    ),
    "setup of an extension": (
        "from torch.utils.cpp_extension import CUDAExtension\nCUDAExtension('fused', ['fused.cpp'])",
        "a CUDA extension (torch.utils.cpp_extension.CUDAExtension) cannot be simulated",
    ),
    "triton": ("import triton.language as tl", "Triton cannot be simulated, and is not installed here"),
    "library of CUDA": ("import ctypes\nctypes.CDLL('libcublas.so.99')", "what loads libcublas.so.99"),
    "sums of cuDNN over labels": (
        (
            "torch.nn.functional.ctc_loss(\n"
            "    torch.zeros(9, 1, 4, device='cuda'), torch.ones(3, dtype=torch.int32), (9,), (3,)\n"
            ")"
        ),
        "ctc_loss with cuDNN cannot be simulated",
    ),
    "default process group": ("group()", "NCCL (torch.distributed) cannot be simulated"),
    "process group of both": ("group('cpu:gloo,cuda:nccl')", "NCCL (torch.distributed) cannot be simulated"),
    "device mesh": (
        "rendezvous()\ntorch.distributed.device_mesh.init_device_mesh('cuda', (1,))",
        "NCCL (torch.distributed) cannot be simulated",
    ),
    "collective": (
        "group('gloo')\ntorch.distributed.all_reduce(x)",
        "allreduce (torch.distributed) on the GPU cannot be simulated",
    ),
    "data parallel over gloo": (
        "torch.nn.parallel.DistributedDataParallel(fresh())",
        "DistributedDataParallel on the GPU cannot be simulated",
    ),
}
_RUN = """
import os, traceback
from memprof.simulate.unsimulated import as_refusal, with_place

def rendezvous():
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29572", RANK="0", WORLD_SIZE="1")

def group(backend=None):
    rendezvous()
    torch.distributed.init_process_group(backend)

def fresh():
    return torch.nn.Linear(8, 8).cuda()

said = {{}}
for name, code in {programs!r}.items():
    known = dict(torch=torch, group=group, rendezvous=rendezvous, fresh=fresh)
    known |= dict(layer=fresh(), x=torch.ones(2, 8, device="cuda"))
    try:
        exec(compile(code, "/program/train.py", "exec"), known)
        said[name] = "nothing was refused"
    except BaseException as error:
        refusal = as_refusal(error)
        said[name] = traceback.format_exc() if refusal is None else str(with_place(refusal, error))
torch.distributed.destroy_process_group()
report(said=said, caveats=[[caveat.kind, caveat.what, caveat.where] for caveat in device.caveats])
"""


@pytest.fixture(scope="module")
def refused() -> dict:
    """What each program was told, and what the device notes of it."""
    return simulate(_RUN.format(programs={name: code for name, (code, _) in PROGRAMS.items()}))


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_is_named(refused: dict, name: str) -> None:
    code, wanted = PROGRAMS[name]
    said = refused["said"]
    if name == "triton" and said[name] == "nothing was refused":
        pytest.skip("Triton is installed here")
    # helpers of this test stand in another file, so the line is that of the program's own
    lines = len(code.splitlines())
    assert said[name].startswith(tuple(f"train.py:{line}: {wanted}" for line in range(1, lines + 1)))
    assert "\n" not in said[name]


def test_that_the_process_went_on_is_noted(refused: dict) -> None:
    noted = {what: where for kind, what, where in refused["caveats"] if kind == "refused"}
    assert len(noted) > 10
    what = "a CUDA graph (torch.cuda.CUDAGraph) was refused, and the program went on without it"
    assert noted[what].endswith("train.py:1")


def test_a_launch_of_a_triton_kernel_is_refused_by_the_kernels_name() -> None:
    pytest.importorskip("triton")
    said = simulate(
        """
        import triton, triton.language as tl
        source = "import triton, triton.language as tl\\n@triton.jit\\ndef add(x, n: tl.constexpr):\\n    pass\\n"
        import importlib.util, pathlib, tempfile
        path = pathlib.Path(tempfile.mkdtemp(), "kernels.py")
        path.write_text(source)
        spec = importlib.util.spec_from_file_location("kernels", path)
        kernels = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(kernels)
        try:
            kernels.add[(1,)](torch.ones(4, device="cuda"), 4)
        except Exception as error:
            report(said=str(error))
        """
    )["said"]
    assert said.startswith("the Triton kernel add cannot be simulated")
