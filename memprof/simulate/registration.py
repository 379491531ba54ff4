"""Make PyTorch's C++ side believe in one CUDA device, with functions that its libraries already export.

Two things are asked in C++ before any kernel runs: a *device guard* (which device is current, and its stream) and the
*CUDA hooks* (is there a CUDA accelerator, does it have a context, where does pinned memory come from).

- The guard is registered through ``c10::impl::registerDeviceGuard``. It reports no device, upon which torch's own
  ``_ensureCUDADeviceGuardSet`` (made for ``FakeTensorMode``) replaces it by ``NoOpDeviceGuardImpl<CUDA>``.
- The hooks are one object on the heap with virtual functions that say no. Its table of virtual functions is replaced by
  a copy with other entries; each is a function that some library exports and that gives the wanted answer, so no
  machine code is written anywhere. The order of the entries is that of the declarations in
  ``ATen/detail/AcceleratorHooksInterface.h`` and ``CUDAHooksInterface.h`` of torch 2.13.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch

from memprof.errors import UnsupportedError

__all__ = ["register_device"]

_CUDA = 1
"""``c10::DeviceType::CUDA``."""
_SLOTS = 48
"""Virtual functions of ``at::CUDAHooksInterface``, its two destructors included."""
_NO = 2
"""Slot of ``isBuilt``, which is ``return false`` in the base class: here the answer 0 wherever one is wanted."""
_HAS_CUDA = 16
_CURRENT_DEVICE = 26
_YES_SLOTS = {2: "isBuilt", 3: "isAvailable", 6: "deviceCount", 13: "getDeviceFromPtr", _HAS_CUDA: "hasCUDA"} | {
    28: "compiledWithCuDNN",
    46: "getNumGPUs",
}
"""Answered 1. A ``c10::Device`` is returned as two bytes, type and index: 1 is ``cuda:0``."""
_NO_SLOTS = {4: "hasPrimaryContext", 5: "init", 7: "setCurrentDevice", 8: "getCurrentDevice", 9: "exchangeDevice"} | {
    10: "maybeExchangeDevice",
    _CURRENT_DEVICE: "current_device",
    47: "deviceSynchronize",
}
_PINNED_ALLOCATOR = 12
_DEFAULT_GENERATOR = 14
_NEW_GENERATOR = 15
_CUDNN_VERSIONS = (34, 35)
"""``versionCuDNN`` and ``versionRuntimeCuDNN``."""
_CUDNN_EPSILON = 41
"""``batchnormMinEpsilonCuDNN``: ``CUDNN_BN_MIN_EPSILON`` is 0."""

_kept: list[object] = []
"""What C++ holds pointers to: it must outlive the process's last tensor."""


def register_device(cudnn_version: int) -> None:
    """Register the device guard and replace the answers of the CUDA hooks; for the whole process, once.

    Raises
    ------
    UnsupportedError
        The libraries do not export what is needed, or the hooks are not laid out as in torch 2.13.
    """
    if _kept:
        return
    folder = Path(torch.__file__).parent / "lib"
    cpu = ctypes.CDLL(str(folder / "libtorch_cpu.so"))
    core = ctypes.CDLL(str(folder / "libc10.so"))
    try:
        no = _replace_hooks(cpu, core, cudnn_version)
        _register_guard(core, no)
    except AttributeError as error:
        raise UnsupportedError(
            f"this build of torch {torch.__version__} does not export what the simulated device needs ({error}); "
            "install the wheel from download.pytorch.org/whl/cpu"
        ) from error


def _address(function: object) -> int:
    value = ctypes.cast(function, ctypes.c_void_p).value  # type: ignore[arg-type]  # any foreign function
    assert value is not None
    return value


def _replace_hooks(cpu: ctypes.CDLL, core: ctypes.CDLL, cudnn_version: int) -> int:
    """Point the hooks object to a table with our answers; return the address of a function that returns 0."""
    get_hooks = cpu._ZN2at6detail12getCUDAHooksEv
    get_hooks.restype = ctypes.c_void_p
    hooks = get_hooks()
    table = ctypes.c_void_p.from_address(hooks).value
    expected = ctypes.addressof(ctypes.c_char.in_dll(cpu, "_ZTVN2at18CUDAHooksInterfaceE")) + 16
    if table != expected:
        raise UnsupportedError("the CUDA hooks of this process are not those of a CPU build; start a fresh process")
    slots = (ctypes.c_void_p * _SLOTS).from_address(table)
    for slot, answer in ((_NO, 0), (_HAS_CUDA, 0), (_CURRENT_DEVICE, -1)):
        if ctypes.CFUNCTYPE(ctypes.c_int8, ctypes.c_void_p)(slots[slot] or 0)(hooks) != answer:
            raise UnsupportedError(f"the CUDA hooks of torch {torch.__version__} are laid out differently; use 2.13.0")
    no, yes = slots[_NO], _address(ctypes.pythonapi.Py_IsInitialized)
    version = ctypes.CFUNCTYPE(ctypes.c_long)(lambda: cudnn_version)
    # Two words stand before the functions: offset to the top of the object, and its type.
    header = (ctypes.c_void_p * 2).from_address(table - 16)
    copy = (ctypes.c_void_p * (2 + _SLOTS))(*header, *slots)
    answers = dict.fromkeys(_YES_SLOTS, yes) | dict.fromkeys(_NO_SLOTS, no)
    answers |= dict.fromkeys(_CUDNN_VERSIONS, _address(version))
    epsilon = ctypes.CFUNCTYPE(ctypes.c_double)(lambda: 0.0)
    answers[_CUDNN_EPSILON] = _address(epsilon)
    answers[_PINNED_ALLOCATOR] = _address(core._ZN3c1015GetCPUAllocatorEv)
    answers[_DEFAULT_GENERATOR] = _address(cpu._ZN2at6detail22getDefaultCPUGeneratorEv)
    # Takes a seed where the hook takes `this`: some seed.
    answers[_NEW_GENERATOR] = _address(cpu._ZN2at6detail18createCPUGeneratorEm)
    for slot, function in answers.items():
        copy[2 + slot] = function
    _kept.extend((copy, version, epsilon, cpu, core))
    ctypes.c_void_p.from_address(hooks).value = ctypes.addressof(copy) + 16
    assert no is not None
    return no


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
        raise UnsupportedError(f"torch {torch.__version__} did not set its no-op CUDA guard; use 2.13.0")
