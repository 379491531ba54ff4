"""What a CUDA build of torch has of the real CUDA, taken away: nothing in the process asks a driver or a card.

A CPU build has none of it. Where there is a card in the machine, the simulation does not touch it.
"""

from __future__ import annotations

import os
import sys
import types
from typing import TYPE_CHECKING, Any

import torch

from memprof.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["hide_devices", "replace_functions"]

_PREFIX = "_cuda_"


def hide_devices() -> None:
    """Hide every real device from CUDA's driver, should anything load it.

    The driver reads the process's environment; ``os.environ`` is Python's copy of it, which programs read and which
    stays as it is.

    Raises
    ------
    UnsupportedError
        The process has used a real device already.
    """
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # in torch
        raise UnsupportedError("this process has used a real CUDA device; simulate in a fresh process")
    os.putenv("CUDA_VISIBLE_DEVICES", "")


def replace_functions(functions: Mapping[str, Callable[..., Any]]) -> None:
    """Put the simulation's functions into ``torch._C``, and take every other one of the CUDA runtime out.

    Modules of torch that have taken such a function from ``torch._C`` get the new one; where there is none they keep
    it, and are refused what it needs (`memprof.simulate.refusals`, or CUDA itself: it finds no device).
    """
    core: Any = torch._C
    for name in [name for name in vars(core) if name.startswith(_PREFIX) and name not in functions]:
        if isinstance(getattr(core, name), types.BuiltinFunctionType):
            delattr(core, name)
    for name, function in functions.items():
        setattr(core, name, function)
    for name, module in list(sys.modules.items()):
        # By exact types: objects of torch warn when they are asked for their class.
        if name.partition(".")[0] != "torch" or type(module) is not types.ModuleType or module is core:
            continue
        for bound, value in list(vars(module).items()):
            if type(value) is types.BuiltinFunctionType and value.__name__ in functions:
                setattr(module, bound, functions[value.__name__])
    # Counting devices asks NVIDIA's management library first, and what of them the environment hides.
    cuda: Any = torch.cuda
    cuda._device_count_nvml = cuda._raw_device_count_nvml = lambda: -1
