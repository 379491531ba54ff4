"""Callbacks that record a training loop which somebody else wrote; each is imported, with its package, on use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memprof.capture.fabric import FabricCallback
    from memprof.capture.hugging_face import HuggingFaceCallback
    from memprof.capture.lightning import LightningCallback

__all__ = ["FabricCallback", "HuggingFaceCallback", "LightningCallback"]

_HOMES = {
    "FabricCallback": "memprof.capture.fabric",
    "HuggingFaceCallback": "memprof.capture.hugging_face",
    "LightningCallback": "memprof.capture.lightning",
}


def __getattr__(name: str) -> Any:
    """Import a callback when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
