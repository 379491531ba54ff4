"""Make PyTorch's C++ side believe in one CUDA device, with functions that its libraries already export.

Two things are asked in C++ before any kernel runs: a *device guard* (which device is current, and its stream) and the
*CUDA hooks* (is there a CUDA accelerator, does it have a context, where does pinned memory come from).

- The guard is registered through ``c10::impl::registerDeviceGuard``. It reports no device, upon which torch's own
  ``_ensureCUDADeviceGuardSet`` (made for ``FakeTensorMode``) replaces it by ``NoOpDeviceGuardImpl<CUDA>``.
- The hooks are one object on the heap with virtual functions. Its table of virtual functions is replaced by a copy of
  the table of ``at::CUDAHooksInterface``, whose functions say no, with other entries; each is a function that some
  library exports and that gives the wanted answer, so no machine code is written anywhere. In a CUDA build the object
  is of a derived class, whose own functions would ask CUDA's driver: none of them is left in the table.

A CUDA build has an allocator for the device too. It is taken out, so that nothing can ask it for memory.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch

from memprof.errors import UnsupportedError
from memprof.simulate.hook_slots import hook_slots
from memprof.simulate.support import advice

__all__ = ["register_device"]

_CUDA = 1
"""``c10::DeviceType::CUDA``."""
_NO = "isBuilt"
"""This is ``return false`` in the base class: here the answer 0 wherever one is wanted."""
_YES_HOOKS = (
    "isBuilt",
    "isAvailable",
    "deviceCount",
    "getDeviceFromPtr",  # a `c10::Device` is returned as two bytes, type and index: 1 is ``cuda:0``
    "hasCUDA",
    "compiledWithCuDNN",
    "getNumGPUs",
)
"""Answered 1."""
_NO_HOOKS = (
    "hasPrimaryContext",
    "init",
    "setCurrentDevice",
    "getCurrentDevice",
    "exchangeDevice",
    "maybeExchangeDevice",
    "current_device",
    "deviceSynchronize",
)
"""Answered 0."""
_CUDNN_HOOKS = ("versionCuDNN", "versionRuntimeCuDNN")
_CHECKS = ((_NO, 0), ("hasCUDA", 0), ("current_device", -1))
"""What functions of the base class answer."""
_HEADER_WORDS = 2
"""Words before the functions of a table: offset to the top of the object, and its type."""
_HIGHEST_PRIORITY = 255
"""Of an allocator: it replaces every other one."""

_kept: list[object] = []
"""What C++ holds pointers to: it must outlive the process's last tensor."""


def register_device(cudnn_version: int) -> None:
    """Register the device guard and replace the answers of the CUDA hooks; for the whole process, once.

    Raises
    ------
    UnsupportedError
        The libraries do not export what is needed, or the hooks are not laid out as torch's headers say.
    """
    if _kept:
        return
    folder = Path(torch.__file__).parent / "lib"
    cpu = ctypes.CDLL(str(folder / "libtorch_cpu.so"))
    core = ctypes.CDLL(str(folder / "libc10.so"))
    try:
        no = _replace_hooks(cpu, core, cudnn_version)
        _register_guard(core, no)
        core._ZN3c1012SetAllocatorENS_10DeviceTypeEPNS_9AllocatorEh(
            ctypes.c_int8(_CUDA), None, ctypes.c_uint8(_HIGHEST_PRIORITY)
        )
    except (AttributeError, ValueError) as error:
        raise UnsupportedError(
            f"this build of torch {torch.__version__} does not export what the simulated device needs ({error}); "
            f"{advice()}"
        ) from error


def _address(function: object) -> int:
    value = ctypes.cast(function, ctypes.c_void_p).value  # type: ignore[arg-type]  # any foreign function
    assert value is not None
    return value


def _replace_hooks(cpu: ctypes.CDLL, core: ctypes.CDLL, cudnn_version: int) -> int:
    """Point the hooks object to a table with our answers; return the address of a function that returns 0."""
    slots = hook_slots(Path(torch.__file__).parent / "include")
    symbol = ctypes.c_char.in_dll(cpu, _TABLE)
    count = _words(cpu, ctypes.addressof(symbol)) - _HEADER_WORDS
    if count != max(slots.values()) + 1:
        raise _differing(f"has {count} functions and not the {max(slots.values()) + 1} of its headers")
    table = (ctypes.c_void_p * (_HEADER_WORDS + count)).from_address(ctypes.addressof(symbol))
    functions = {name: table[_HEADER_WORDS + slot] for name, slot in slots.items()}
    get_hooks = cpu._ZN2at6detail12getCUDAHooksEv
    get_hooks.restype = ctypes.c_void_p
    hooks = get_hooks()
    own = ctypes.c_void_p.from_address(hooks)
    if torch.version.cuda is None and own.value != ctypes.addressof(table) + 8 * _HEADER_WORDS:
        raise UnsupportedError("the CUDA hooks of this process are not those of a CPU build; start a fresh process")
    for name, answer in _CHECKS:
        if ctypes.CFUNCTYPE(ctypes.c_int8, ctypes.c_void_p)(functions[name] or 0)(hooks) != answer:
            raise _differing(f"gives another answer to {name} than {answer}")
    no, yes = functions[_NO], _address(ctypes.pythonapi.Py_IsInitialized)
    assert no is not None
    version = ctypes.CFUNCTYPE(ctypes.c_long)(lambda: cudnn_version)
    # CUDNN_BN_MIN_EPSILON is 0.
    epsilon = ctypes.CFUNCTYPE(ctypes.c_double)(lambda: 0.0)
    answers = dict.fromkeys(_YES_HOOKS, yes) | dict.fromkeys(_NO_HOOKS, no)
    answers |= dict.fromkeys(_CUDNN_HOOKS, _address(version))
    answers |= {
        "batchnormMinEpsilonCuDNN": _address(epsilon),
        "getPinnedMemoryAllocator": _address(core._ZN3c1015GetCPUAllocatorEv),
        "getDefaultGenerator": _address(cpu._ZN2at6detail22getDefaultCPUGeneratorEv),
        # Takes a seed where the hook takes `this`: some seed.
        "getNewGenerator": _address(cpu._ZN2at6detail18createCPUGeneratorEm),
    }
    copy = type(table)(*table)
    for name, function in answers.items():
        copy[_HEADER_WORDS + slots[name]] = function
    _kept.extend((copy, version, epsilon, cpu, core))
    own.value = ctypes.addressof(copy) + 8 * _HEADER_WORDS
    return no


_TABLE = "_ZTVN2at18CUDAHooksInterfaceE"
"""Table of virtual functions of ``at::CUDAHooksInterface``."""


def _differing(how: str) -> UnsupportedError:
    return UnsupportedError(f"the class of CUDA hooks of torch {torch.__version__} {how}; {advice()}")


class _Symbol(ctypes.Structure):
    """``Elf64_Sym`` of ``elf.h``."""

    _fields_ = (
        ("name", ctypes.c_uint32),
        ("info", ctypes.c_uint8),
        ("other", ctypes.c_uint8),
        ("section", ctypes.c_uint16),
        ("value", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
    )


_SYMBOL_WANTED = 1
"""``RTLD_DL_SYMENT`` of ``dlfcn.h``."""


def _words(library: ctypes.CDLL, address: int) -> int:
    """Return the size in words of what the symbol at an address of a library names."""
    found = ctypes.POINTER(_Symbol)()
    names = (ctypes.c_void_p * 4)()  # a `Dl_info`, which is not wanted
    done = library.dladdr1(ctypes.c_void_p(address), names, ctypes.byref(found), _SYMBOL_WANTED)
    return int(found.contents.size) // 8 if done and found else 0


def _register_guard(core: ctypes.CDLL, no: int) -> None:
    """Register a guard all of whose functions return 0, and let torch replace it by its no-op guard."""
    functions = (ctypes.c_void_p * 64)(*[no] * 64)
    guard = (ctypes.c_void_p * 1)(ctypes.addressof(functions))
    _kept.extend((functions, guard))
    register = core._ZN3c104impl19registerDeviceGuardENS_10DeviceTypeEPKNS0_24DeviceGuardImplInterfaceE
    register(ctypes.c_int8(_CUDA), ctypes.c_void_p(ctypes.addressof(guard)))
    torch._C._ensureCUDADeviceGuardSet()
    registry = (ctypes.c_void_p * (_CUDA + 1)).in_dll(core, "_ZN3c104impl26device_guard_impl_registryE")
    if registry[_CUDA] == ctypes.addressof(guard):
        raise UnsupportedError(f"torch {torch.__version__} did not set its no-op CUDA guard; {advice()}")
