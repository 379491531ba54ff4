"""Free blocks that the allocator keeps: fragmentation, and what cannot be told from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from memprof.analysis.findings.finding import Certainty, Evidence, Finding
from memprof.trace.model import Action
from memprof.units import format_bytes

if TYPE_CHECKING:
    from memprof.analysis.findings.view import View

__all__ = ["cache_untold", "fragmentation"]

CACHED = "cached"
FAR = 0.25
"""Share of reserved from which on free blocks are worth a word."""
FAR_BYTES = 64 << 20
"""A few segments of 20 MiB are half empty in every run (kLargeBuffer in c10/cuda/CUDACachingAllocator.h)."""


def fragmentation(view: View) -> Finding | None:
    """Find reserved memory that no moment of the recording needed, or a request that failed beside enough free memory.

    Bytes are the highest reserved less the highest sum of allocated and pending bytes, wherever each of them was: a
    larger step, also one that ran out of memory, raises both, so that the cache it leaves does not count. What was
    cached before the recording began is subtracted: nobody saw what that was for. Or, where a request failed although
    free blocks had more bytes than it asked for, those free blocks.
    """
    reserved = view.account.replay.reserved
    if reserved is None or len(view.account.device.events) == 0:
        return None
    needed = view.account.replay.allocated + view.account.replay.pending
    free = reserved - needed
    for event in np.flatnonzero(view.account.device.events.action == Action.OOM).tolist():
        asked = int(view.account.device.events.size[event])
        if free[event + 1] >= asked > 0:
            size = int(free[event + 1])
            return _finding(
                "fragmentation",
                f"Fragmentation: {format_bytes(asked)} could not be had although {format_bytes(size)} were free, "
                "in pieces",
                size,
                where="free blocks when the request failed",
            )
    size = int(reserved.max()) - int(needed.max()) - max(0, int(free[0]))
    if size < max(FAR_BYTES, FAR * int(reserved.max())):
        return None
    return _finding(
        "fragmentation",
        f"Fragmentation: {format_bytes(int(reserved.max()))} reserved, and never more than "
        f"{format_bytes(int(needed.max()))} needed",
        size,
        where="highest reserved less highest needed",
    )


def cache_untold(view: View) -> Finding | None:
    """Find free blocks that were reserved before the recording began and that it never needed.

    Nothing says why they are there. Files without history are the plainest case.
    """
    replay = view.account.replay
    if replay.reserved is None or int(replay.reserved.max()) > int(replay.reserved[0]):
        return None
    size = int(replay.reserved[0]) - int((replay.allocated + replay.pending).max())
    if size < max(FAR_BYTES, FAR * int(replay.reserved[0])):
        return None
    return _finding(
        "cached-without-history",
        f"{format_bytes(size)} are reserved and free; whether that is fragmentation or the cache of a larger step "
        "cannot be told without history",
        size,
        where="free blocks in segments",
        fix=(
            "Record with torch.cuda.memory._record_memory_history() from the start; torch.cuda.empty_cache() gives "
            "back whole free segments, and what stays is fragmented."
        ),
    )


def _finding(kind: str, title: str, size: int, *, where: str, fix: str | None = None) -> Finding:
    return Finding(
        id=kind,
        title=title,
        category=CACHED,
        size=size,
        per_sample=None,
        certainty=Certainty.CERTAIN,
        evidence=(Evidence(module=None, op=None, dtype=None, size=size, where=where),),
        fix=fix
        or (
            "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True (memprof alloc-conf tries settings on this "
            "recording), and avoid sizes that change from step to step: pad or bucket the batches."
        ),
    )
