"""A CUDA device that allocates and computes nothing: exact memory of real PyTorch programs, without a GPU.

Torch is loaded when a device is asked for; what is known of the cards (`memprof.simulate.cards`) is had without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memprof.simulate.simulated import SimulatedDevice, install, installed

__all__ = ["SimulatedDevice", "install", "installed"]


def __getattr__(name: str) -> Any:
    """Load the device, and torch with it, when it is first asked for."""
    if name in __all__:
        from memprof.simulate import simulated

        return getattr(simulated, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
