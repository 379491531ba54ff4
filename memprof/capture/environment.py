"""What a file says of the machine and software that made it: versions and card; no names of hosts or users."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

__all__ = ["describe_environment", "package_version"]

PACKAGES = ("litgpt", "bitsandbytes", "peft", "transformers", "lightning", "accelerate", "numpy")
"""Packages whose version can change what memory a run takes."""


def describe_environment(device: dict[str, Any]) -> dict[str, Any]:
    """Return the environment as plain values; `device` is what the device says of itself."""
    return {
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "packages": {name: found for name in PACKAGES if (found := package_version(name)) is not None},
        **device,
    }


def package_version(name: str) -> str | None:
    """Return the installed version of a package; None if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None
