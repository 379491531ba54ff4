"""The allocator's settings of this process's environment, as torch reads them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from memprof.allocator.conf import parse_alloc_conf

if TYPE_CHECKING:
    from memprof.trace.model import Settings

__all__ = ["settings_of_environment"]


def settings_of_environment() -> Settings:
    """Return what ``PYTORCH_ALLOC_CONF``, or its older name ``PYTORCH_CUDA_ALLOC_CONF``, says.

    Raises
    ------
    InputError, UnsupportedError
        It says what torch would refuse, or what cannot be simulated.
    """
    return parse_alloc_conf(os.environ.get("PYTORCH_ALLOC_CONF") or os.environ.get("PYTORCH_CUDA_ALLOC_CONF") or "")
