"""The simulated device on builds of torch: which are known, and that of a CUDA build nothing real is used."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parent))
import torch
from children import run_child, simulate

from memprof.errors import UnsupportedError
from memprof.simulate.compiled_libraries import needed_libraries
from memprof.simulate.hook_slots import HEADERS, hook_slots, slots_of_declarations
from memprof.simulate.support import TORCH_MINORS, check_build

pytestmark = pytest.mark.torch

CUDA_BUILD = torch.version.cuda is not None
FOLDER = Path(torch.__file__).parent
BASE = "struct TORCH_API AcceleratorHooksInterface {\n  virtual ~AcceleratorHooksInterface() = default;\n"
DERIVED = "struct TORCH_API CUDAHooksInterface : AcceleratorHooksInterface {\n"


@pytest.mark.parametrize("minor", TORCH_MINORS)
@pytest.mark.parametrize(("local", "cuda"), [("", "13.0"), ("+cpu", None), ("+cu126", "12.6")])
def test_builds_that_are_known(minor: str, local: str, cuda: str | None) -> None:
    check_build(f"{minor}.0{local}", cuda)


@pytest.mark.parametrize(
    ("version", "cuda", "hip", "what"),
    [
        ("2.9.1+cpu", None, None, "does not know torch 2.9.1+cpu"),
        ("3.0.0", "14.0", None, "does not know torch 3.0.0"),
        ("2.13.0a0+git1234567", "13.0", None, "does not know torch 2.13.0a0"),
        ("2.13.0+rocm7.0", None, "7.0", "does not know torch for ROCm"),
        ("2.13.0+cu118", "11.8", None, "does not know torch for CUDA 11.8"),
    ],
)
def test_other_builds_are_refused_with_what_to_install(
    version: str, cuda: str | None, hip: str | None, what: str
) -> None:
    with pytest.raises(UnsupportedError, match=rf"{what.replace('+', '.')}.*use torch .* to .*pip install torch=="):
        check_build(version, cuda, hip)


def test_hooks_stand_in_the_order_of_their_declarations() -> None:
    # given a base class, and a class that overrides one function and adds two, one of them for ROCm alone
    base = BASE + "  // virtual void not_this();\n  virtual bool isBuilt() const { return false; }\n"
    base += "  virtual void init() const {\n    check(false);\n  }\n};\nstruct Other { virtual void later(); };"
    derived = DERIVED + "  void init() const override {\n  }\n#ifdef USE_ROCM\n  virtual bool rocm() const {}\n#endif\n"
    derived += "  virtual const std::vector<int>&\n  hasCUDA(int = 0) const {\n  }\n};\n"
    # then a destructor takes two places, and an overriding function none of its own
    assert slots_of_declarations([base, derived]) == {
        "~AcceleratorHooksInterface": 0,
        "isBuilt": 2,
        "init": 3,
        "hasCUDA": 4,
    }


@pytest.mark.parametrize(
    ("base", "derived", "said"),
    [
        (BASE + "#if SOMETHING\n  virtual void a();\n#endif\n};", DERIVED + "};", "on conditions"),
        (BASE + "  virtual void a();\n  virtual void a(int);\n};", DERIVED + "};", "declares a twice"),
        ("struct Hooks {\n};", DERIVED + "};", "is not as expected"),
    ],
)
def test_other_declarations_are_refused(base: str, derived: str, said: str) -> None:
    with pytest.raises(UnsupportedError, match=said):
        slots_of_declarations([base, derived])


def test_torch_without_its_headers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=f"{HEADERS[0]}.h is not there"):
        hook_slots(tmp_path)


def test_linked_libraries_are_read_as_the_linker_reads_them(tmp_path: Path) -> None:
    assert "libtorch_python.so" in needed_libraries(torch._C.__file__)
    assert "libc10.so" in needed_libraries(str(FOLDER / "lib" / "libtorch_cpu.so"))
    assert needed_libraries(__file__) == []
    cut = tmp_path / "cut.so"
    cut.write_bytes(b"\x7fELF\x02\x01" + struct.pack("<58x"))
    assert needed_libraries(str(cut)) == []


@pytest.mark.skipif(not CUDA_BUILD, reason="torch is a CPU build here")
def test_no_kernel_and_no_function_of_a_cuda_build_is_left() -> None:
    found = simulate("""
        names = torch._C._dispatch_get_registrations_for_dispatch_key("CUDA")
        tables = {name: torch._C._dispatch_dump_table(name) for name in names if not name.startswith("c10d::")}
        lines = {name: next(line for line in table.splitlines() if line.startswith("CUDA: "))
                 for name, table in tables.items()}
        import memprof
        # torch names the file of a Python registration, and /dev/null for those beneath torch.library
        ours = ("registered at /dev/null", f"registered at {memprof.__path__[0]}")
        real = [name for name, line in lines.items() if not any(each in line for each in ours)]
        builtin = type(len)
        left = [name for name, value in vars(torch._C).items() if name.startswith("_cuda_") and type(value) is builtin]
        report(count=len(lines), real=real, left=left)
    """)
    assert found["count"] > 1200
    assert found["real"] == []
    assert found["left"] == []


def test_a_real_card_is_not_touched() -> None:
    found = simulate("""
        import os
        layer = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.Flatten(), torch.nn.LazyLinear(4)).cuda()
        optimizer = torch.optim.AdamW(layer.parameters())
        for _ in range(2):
            layer(torch.randn(2, 3, 16, 16, device="cuda")).sum().backward()
            optimizer.step()
        torch.cuda.synchronize()
        links = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
                 if os.path.islink(f"/proc/self/fd/{fd}")]
        report(devices=[link for link in links if "nvidia" in link], count=torch.cuda.device_count(),
               allocated=torch.cuda.max_memory_allocated())
    """)
    assert found["devices"] == []
    assert found["count"] == 1
    assert found["allocated"] > 0


@pytest.mark.skipif(not CUDA_BUILD, reason="without CUDA's libraries the linker refuses it")
def test_a_module_that_is_compiled_for_cuda_is_named(tmp_path: Path) -> None:
    # given an extension module that is linked with CUDA's runtime: torch's own, under another name
    (tmp_path / "fused_kernels.so").symlink_to(FOLDER / "lib" / "libtorch_cuda.so")
    done = run_child(f"""
        import sys
        from memprof.simulate.unsimulated import as_refusal
        sys.path.insert(0, {str(tmp_path)!r})
        try:
            import fused_kernels
        except ImportError as error:
            print(as_refusal(error))
    """)
    assert done.stdout.startswith("fused_kernels cannot be simulated: it is compiled for CUDA (libc10_cuda"), (
        done.stderr
    )
