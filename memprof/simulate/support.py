"""What the simulation runs on, checked before anything is changed in the process."""

from __future__ import annotations

import platform
import sys

from memprof.errors import UnsupportedError

__all__ = ["TORCH_VERSION", "check_build", "check_support"]

TORCH_VERSION = "2.13.0"
"""The torch whose internals the simulation knows, and whose behaviour it predicts."""

_INSTALL = f"pip install torch=={TORCH_VERSION} --index-url https://download.pytorch.org/whl/cpu"


def check_support() -> None:
    """Refuse every platform, build and version that the simulation does not know.

    Raises
    ------
    UnsupportedError
        Names what was found and what to install.
    """
    import torch

    check_build(torch.__version__, torch.version.cuda)


def check_build(version: str, cuda: str | None) -> None:
    """Do the same for a torch that need not be loaded: its version, and the CUDA that it was built for.

    Raises
    ------
    UnsupportedError
        Names what was found and what to install.
    """
    machine = f"{platform.system()} {platform.machine()}"
    if machine != "Linux x86_64" or sys.implementation.name != "cpython":
        raise UnsupportedError(
            f"the simulated device needs CPython on Linux x86_64, this is {sys.implementation.name} on {machine}; "
            "run it there"
        )
    if version.partition("+")[0] != TORCH_VERSION:
        raise UnsupportedError(f"the simulated device knows torch {TORCH_VERSION}, this is {version}; use `{_INSTALL}`")
    if cuda is not None:
        raise UnsupportedError(
            f"the simulated device needs the CPU build of torch, this is {version} for CUDA {cuda}; use `{_INSTALL}`"
        )
