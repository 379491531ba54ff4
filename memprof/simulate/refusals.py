"""Parts of torch that cannot work here and would otherwise fail far from their cause: they refuse in words.

What a program calls is replaced by a function that refuses when it is called, never when it is imported: libraries
import and decorate what they may never use. Modules that are not loaded yet are changed when they are.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import inspect
import sys
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from memprof.errors import UnsupportedError

if TYPE_CHECKING:
    import types
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec

    from memprof.simulate.device import Device

__all__ = ["install_refusals"]

GRAPHS = "what a captured graph keeps of its pool is not known; run without it"
ALLOCATORS = "only PyTorch's own allocator is; run with it"
KERNELS = "memprof cannot know what memory a kernel of its own takes, and no kernel runs here; leave it out"
COLLECTIVES = "one process with one GPU is, without what NCCL and its peers allocate; run without torch.distributed"
CUDA_SOURCES = (".cu", ".cuh")


def install_refusals(device: Device) -> None:
    """Let what cannot be simulated refuse when it is called; the device notes it, should the program go on."""
    refusals = _Refusals(device)
    refusals.compilation()
    refusals.torch_cuda()
    refusals.distributed()
    for name, change in (
        ("torch.utils.cpp_extension", refusals.extensions),
        ("triton.runtime.jit", refusals.triton),
    ):
        if name in sys.modules:
            change(sys.modules[name])
        else:
            _when_loaded[name] = change
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)


class _Refusals:
    """Makes functions that refuse, and puts them where programs find them."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._library = torch.library.Library("c10d", "IMPL")  # type: ignore[no-untyped-call]

    def refuse(self, what: str, why: str) -> NoReturn:
        """Refuse; should the program catch that and go on, the file says so."""
        self._device.caveats.add("refused", f"{what} was refused, and the program went on without it")
        raise UnsupportedError(f"{what} cannot be simulated: {why}")

    def refusing(self, what: str, why: str) -> Callable[..., NoReturn]:
        """Return a function that refuses, whatever it is called with."""

        def refused(*_args: Any, **_named: Any) -> NoReturn:
            self.refuse(what, why)

        return refused

    def compilation(self) -> None:
        """Refuse ``torch.compile`` when what it returned is called; libraries decorate with it at import."""
        refused = self.refusing("torch.compile", "the kernels that it would make are not known; run without it")

        def compile_(model: Any = None, **_options: Any) -> Any:
            if model is None:
                return compile_
            if isinstance(model, torch.nn.Module):
                model.forward = refused
                return model
            return refused

        def compile_module(module: torch.nn.Module, *_args: Any, **_options: Any) -> None:
            module.forward = refused

        package: Any = torch
        package.compile = compile_
        package.nn.Module.compile = compile_module

    def torch_cuda(self) -> None:
        """Refuse CUDA graphs, other allocators, and kernels that are compiled when they are called."""
        cuda: Any = torch.cuda
        core: Any = torch._C
        graphs = self.refusing("a CUDA graph (torch.cuda.CUDAGraph)", GRAPHS)
        cuda.CUDAGraph.__new__ = graphs
        cuda.MemPool.__new__ = self.refusing("torch.cuda.MemPool", ALLOCATORS)
        cuda.memory.CUDAPluggableAllocator.__init__ = self.refusing("torch.cuda.CUDAPluggableAllocator", ALLOCATORS)
        cuda._compile_kernel = self.refusing("torch.cuda._compile_kernel", KERNELS)
        core._cuda_jiterator_compile_and_launch_kernel = self.refusing("torch.cuda.jiterator", KERNELS)

    def distributed(self) -> None:
        """Refuse NCCL, and every collective on the device over another backend."""
        package: Any = torch.distributed
        if not package.is_available():
            return
        core: Any = torch.distributed.distributed_c10d
        make = core._new_process_group_helper
        signature = inspect.signature(make)

        def make_group(*args: Any, **named: Any) -> Any:
            backend = str(signature.bind(*args, **named).arguments["backend"]).lower()
            # "undefined" takes what each device has, and that is NCCL for this one.
            if "nccl" in backend or backend == "undefined":
                self.refuse("NCCL (torch.distributed)", COLLECTIVES)
            return make(*args, **named)

        core._new_process_group_helper = make_group
        core.default_pg_nccl_timeout = core.default_pg_timeout  # or torch warns that it has none before it asks for one
        package.is_nccl_available = lambda: True  # as on a machine with the card: what a program asks to choose by
        parallel: Any = torch.nn.parallel.DistributedDataParallel
        init = parallel.__init__

        def init_parallel(ddp: Any, module: torch.nn.Module, *args: Any, **named: Any) -> None:
            if any(parameter.is_cuda for parameter in module.parameters()):
                self.refuse("DistributedDataParallel on the GPU", COLLECTIVES)
            init(ddp, module, *args, **named)

        parallel.__init__ = init_parallel
        names = sorted({full.partition(".")[0] for full in torch._C._dispatch_get_all_op_names()})
        for name in names:
            if name.startswith("c10d::") and torch._C._dispatch_has_kernel_for_dispatch_key(name, "CUDA"):
                what = f"{name.removeprefix('c10d::').rstrip('_')} (torch.distributed) on the GPU"
                self._library.impl(  # type: ignore[no-untyped-call]
                    name.removeprefix("c10d::"), self.refusing(what, COLLECTIVES), "CUDA", allow_override=True
                )

    def extensions(self, module: Any) -> None:
        """Refuse to build CUDA extensions; those of C++ alone are built."""
        build = module._jit_compile
        signature = inspect.signature(build)

        def jit_compile(*args: Any, **named: Any) -> Any:
            given = signature.bind(*args, **named).arguments
            if given.get("with_cuda") or any(str(source).endswith(CUDA_SOURCES) for source in given["sources"]):
                self.refuse(f"the CUDA extension {given['name']} (torch.utils.cpp_extension)", KERNELS)
            return build(*args, **named)

        module._jit_compile = jit_compile
        module.CUDAExtension = self.refusing("a CUDA extension (torch.utils.cpp_extension.CUDAExtension)", KERNELS)

    def triton(self, module: Any) -> None:
        """Refuse to launch Triton's kernels."""

        def run(kernel: Any, *_args: Any, **_named: Any) -> NoReturn:
            self.refuse(f"the Triton kernel {kernel.fn.__name__}", KERNELS)

        module.JITFunction.run = run


_when_loaded: dict[str, Callable[[Any], None]] = {}
"""What to do with modules, by name, when they are loaded."""


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules of `_when_loaded` as Python would, and changes them once they are there."""

    @classmethod
    def find_spec(
        cls, fullname: str, _path: Sequence[str] | None = None, _target: types.ModuleType | None = None
    ) -> ModuleSpec | None:
        change = _when_loaded.pop(fullname, None)  # once: the search below comes here too
        if change is None:
            return None
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: types.ModuleType) -> None:
            execute(module)
            change(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]  # of this one loader
        return spec
