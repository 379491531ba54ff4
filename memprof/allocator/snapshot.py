"""The state of a simulated allocator, as the values that a recording has and as torch's snapshot spells it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from memprof.trace.model import Blocks, BlockState, DeviceTrace, Segments

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memprof.allocator.pools import Block
    from memprof.allocator.simulation import CachingAllocator

__all__ = ["device_trace", "torch_segments"]

_STATE_NAMES = {
    BlockState.INACTIVE: "inactive",
    BlockState.ALLOCATED: "active_allocated",
    BlockState.PENDING_FREE: "active_pending_free",
}


def device_trace(allocator: CachingAllocator, device: int = 0) -> DeviceTrace:
    """Return the trace and the present segments, as if the run had been recorded."""
    segments = list(allocator.segments())
    heads = [blocks[0] for blocks in segments]
    owners = sorted({_owner(head) for head in heads} - {(0, 0)})
    every = [(row, block) for row, blocks in enumerate(segments) for block in blocks]
    return DeviceTrace(
        device=device,
        events=allocator.trace.events(),
        segments=Segments(
            address=_column([head.address for head in heads]),
            total_size=_column([sum(block.size for block in blocks) for blocks in segments]),
            stream=_column([head.stream for head in heads]),
            large=np.array([not head.pool.small for head in heads], dtype=np.bool_),
            pool=np.array([1 + owners.index(_owner(h)) if _owner(h) in owners else 0 for h in heads], dtype=np.int32),
            expandable=np.array([head.expandable is not None for head in heads], dtype=np.bool_),
        ),
        blocks=Blocks(
            segment=np.array([row for row, _ in every], dtype=np.int32),
            address=_column([block.address for _, block in every]),
            size=_column([block.size for _, block in every]),
            requested=_column([block.requested for _, block in every]),
            state=np.array([_state(block) for _, block in every], dtype=np.uint8),
            stack=np.full(len(every), -1, dtype=np.int32),
        ),
    )


def torch_segments(allocator: CachingAllocator, device: int = 0) -> list[dict[str, Any]]:
    """Return the present segments with the keys of torch's ``segments``, frames left empty."""
    return [
        {
            "device": device,
            "address": blocks[0].address,
            "total_size": sum(block.size for block in blocks),
            "allocated_size": sum(block.size for block in blocks if block.allocated),
            "active_size": sum(block.size for block in blocks if not block.is_free),
            "requested_size": sum(block.requested for block in blocks if not block.is_free),
            "stream": blocks[0].stream,
            "segment_type": "small" if blocks[0].pool.small else "large",
            "segment_pool_id": _owner(blocks[0]),
            "is_expandable": blocks[0].expandable is not None,
            "frames": [],
            "blocks": [
                {
                    "address": block.address,
                    "size": block.size,
                    "requested_size": block.requested,
                    "state": _STATE_NAMES[_state(block)],
                    "frames": [],
                }
                for block in blocks
            ],
        }
        for blocks in allocator.segments()
    ]


def _state(block: Block) -> BlockState:
    """Return what a snapshot says of a block."""
    if block.allocated:
        return BlockState.ALLOCATED
    return BlockState.INACTIVE if block.is_free else BlockState.PENDING_FREE


def _owner(block: Block) -> tuple[int, int]:
    """Return the identity of the block's private pool; (0, 0) is the default one."""
    return block.pool.owner.name if block.pool.owner is not None else (0, 0)


def _column(values: Sequence[int]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return a column of integers."""
    return np.array(values, dtype=np.int64)
