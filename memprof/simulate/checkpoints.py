"""``torch.load`` onto the simulated device: a CPU build cannot make CUDA storages of its own."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["install_checkpoints"]

_FIRST = 1
"""Before torch's own packages, which begin at 10."""


def install_checkpoints() -> None:
    """Register how storages with a ``cuda`` location are restored (``torch.serialization.register_package``)."""
    torch.serialization.register_package(_FIRST, lambda _storage: None, _restore)


def _restore(storage: Any, location: str) -> Any:
    if not str(location).startswith("cuda"):
        return None
    size = storage.nbytes() if hasattr(storage, "nbytes") else len(storage)
    return torch.empty(size, dtype=torch.uint8, device="cuda").untyped_storage()
