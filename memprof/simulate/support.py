"""What the simulation runs on, checked before anything is changed in the process."""

from __future__ import annotations

import platform
import sys

import torch

from memprof.errors import UnsupportedError

__all__ = ["TORCH_VERSION", "check_support"]

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
    machine = f"{platform.system()} {platform.machine()}"
    if machine != "Linux x86_64" or sys.implementation.name != "cpython":
        raise UnsupportedError(
            f"the simulated device needs CPython on Linux x86_64, this is {sys.implementation.name} on {machine}; "
            "run it there"
        )
    version = torch.__version__.split("+")[0]
    if version != TORCH_VERSION:
        raise UnsupportedError(
            f"the simulated device knows torch {TORCH_VERSION}, this is {torch.__version__}; use `{_INSTALL}`"
        )
    if torch.version.cuda is not None:
        raise UnsupportedError(
            f"the simulated device needs the CPU build of torch, this is {torch.__version__} for CUDA "
            f"{torch.version.cuda}; use `{_INSTALL}`"
        )
