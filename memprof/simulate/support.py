"""What the simulation runs on, checked before anything is changed in the process."""

from __future__ import annotations

import platform
import re
import sys

from memprof.errors import UnsupportedError

__all__ = ["TORCH_MINORS", "advice", "check_build", "check_support"]

TORCH_MINORS = ("2.11", "2.12", "2.13", "2.14")
"""Versions of torch whose internals the simulation knows: CPU builds, and CUDA builds for CUDA 12 and 13."""
TESTED = "2.13.0"
"""The version that most of the tests run on."""
_CUDA_MAJORS = ("12", "13")


def advice() -> str:
    """Return what to install, as the end of a sentence."""
    return (
        f"use torch {TORCH_MINORS[0]} to {TORCH_MINORS[-1]}, such as "
        f"`pip install torch=={TESTED} --index-url https://download.pytorch.org/whl/cpu`"
    )


def check_support() -> None:
    """Refuse every platform, build and version that the simulation does not know.

    Raises
    ------
    UnsupportedError
        Names what was found and what to install.
    """
    import torch

    check_build(torch.__version__, torch.version.cuda, torch.version.hip)


def check_build(version: str, cuda: str | None, hip: str | None = None) -> None:
    """Do the same for a torch that need not be loaded: its version, and the CUDA or ROCm that it was built for.

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
    release = re.fullmatch(r"(\d+\.\d+)\.\d+", version.partition("+")[0])
    if release is None or release[1] not in TORCH_MINORS:
        raise UnsupportedError(f"the simulated device does not know torch {version}; {advice()}")
    if hip is not None:
        raise UnsupportedError(f"the simulated device does not know torch for ROCm, this is {version}; {advice()}")
    if cuda is not None and cuda.partition(".")[0] not in _CUDA_MAJORS:
        raise UnsupportedError(f"the simulated device does not know torch for CUDA {cuda}; {advice()}")
