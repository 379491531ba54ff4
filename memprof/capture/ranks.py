"""Which of several processes this one is, and so which file is its own."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["own_file"]


def own_file(path: Path) -> Path:
    """Return `path` with the rank in its name where several processes train together: run.pickle, run.rank0.pickle."""
    rank = _rank()
    return path if rank is None else path.with_name(f"{path.stem}.rank{rank}{path.suffix}")


def _rank() -> str | None:
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return str(distributed.get_rank()) if distributed.get_world_size() > 1 else None
    # What torchrun sets (torch/distributed/run.py).
    rank = os.environ.get("RANK", os.environ.get("LOCAL_RANK"))
    return rank if rank is not None and os.environ.get("WORLD_SIZE", "2") != "1" else None
