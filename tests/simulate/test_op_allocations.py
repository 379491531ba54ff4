"""What every op allocates, against recordings of the same ops on an H200; and the list of ops that need a kernel."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from children import ROOT

pytestmark = pytest.mark.torch

_DATA = Path(__file__).parent / "data"
_PROGRAM = """
import runpy, sys, warnings
warnings.filterwarnings("ignore")
from memprof.simulate import install
install("h200", "")
sys.argv = [{probes!r}, {output!r}]
runpy.run_path({probes!r}, run_name="__main__")
"""


@pytest.mark.parametrize(
    ("probes", "recorded"),
    [("probes.py", "op_allocations_h200.json.gz"), ("more_probes.py", "more_op_allocations_h200.json.gz")],
)
def test_ops_allocate_what_they_allocate_on_the_card(tmp_path: Path, probes: str, recorded: str) -> None:
    # given the sizes that an H200's allocator was asked for, op by op
    truth = json.loads(gzip.decompress((_DATA / recorded).read_bytes()))["probes"]
    # when the same ops run on the simulated card
    output = tmp_path / "found.json"
    program = _PROGRAM.format(output=str(output), probes=str(Path(__file__).parent / probes))
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=240, cwd=ROOT, check=False
    )
    assert result.returncode == 0, result.stderr[-2000:]
    found = json.loads(output.read_text(encoding="utf-8"))
    # then all of them ask for the same, in the same order
    if not any(name.startswith("opt.bnb.") for name in found):
        truth = {name: sizes for name, sizes in truth.items() if not name.startswith("opt.bnb.")}
    assert found.keys() == truth.keys()
    assert {name: (found[name], sizes) for name, sizes in truth.items() if found[name] != sizes} == {}


def test_composite_ops_with_a_cuda_kernel_are_all_registered() -> None:
    torch = pytest.importorskip("torch")
    yaml = pytest.importorskip("yaml")
    torchgen = pytest.importorskip("torchgen")
    if not torch.__version__.startswith("2.13"):
        pytest.skip("the list is that of torch 2.13")
    path = Path(torchgen.__file__).parent / "packaged/ATen/native/native_functions.yaml"
    functions = yaml.load(path.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    composite = set()
    for function in functions:
        name = function["func"].split("(")[0]
        keys = {key.strip() for group in function.get("dispatch") or {} for key in group.split(",")}
        if not ("CUDA" in keys or function.get("structured_delegate")) or name.startswith("_foreach"):
            continue
        if keys & {"CompositeExplicitAutograd", "CompositeImplicitAutograd"} or _has_composite(torch, name):
            composite.add(name)
    from memprof.simulate.kernels import COMPOSITE, KERNELS

    ours = set(COMPOSITE) | {name.removeprefix("aten::") for name in KERNELS}
    assert composite - ours == set()


def _has_composite(torch: object, name: str) -> bool:
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    keys = ("CompositeExplicitAutograd", "CompositeImplicitAutograd")
    try:
        return any(has(f"aten::{name}", key) for key in keys)
    except RuntimeError:  # not in this build
        return False
