"""Makes a snapshot, in torch's form, of the profiler's memory events on the CPU.

The CPU has no caching allocator: every live block is a segment of its own, and there are no reserved bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memprof.capture.facts import FOREVER
from memprof.capture.liveblocks import LiveBlocks
from memprof.capture.marks import parse
from memprof.capture.modules import PLUMBING
from memprof.capture.phases import NODE
from memprof.categories.category import Category

if TYPE_CHECKING:
    from memprof.capture.facts import Label
    from memprof.capture.timeline import MemoryEvent, Timeline

__all__ = ["add_base", "snapshot_of"]

_LASTING = (Category.WEIGHTS, Category.OPTIMIZER_STATE)


def snapshot_of(timeline: Timeline) -> dict[str, Any]:
    """Return a snapshot dict: an alloc, or a free_requested and free_completed, for every memory event.

    A free of what was allocated before the recording stands alone, as in torch's own files. Python stacks are not to be
    had without slowing the run many times over; the frames are the ops and modules around the allocation instead, in
    the form that torch uses for C++ frames.
    """
    entries: list[dict[str, Any]] = []
    live: dict[int, tuple[MemoryEvent, list[dict[str, Any]]]] = {}
    stacks: dict[int, list[dict[str, Any]]] = {-1: []}
    for event in timeline.memory:
        common = {"addr": event.address, "size": abs(event.size), "stream": 0, "time_us": event.time_ns // 1000}
        if event.size > 0:
            frames = stacks.get(event.op)
            if frames is None:
                frames = stacks[event.op] = _frames(timeline, event.op)
            entries.append({"action": "alloc", **common, "frames": frames})
            live[event.address] = event, frames
        else:
            live.pop(event.address, None)
            entries.append({"action": "free_requested", **common, "frames": []})
            entries.append({"action": "free_completed", **common, "frames": []})
    segments = [_segment(address, event.size, frames) for address, (event, frames) in sorted(live.items())]
    return {"segments": segments, "device_traces": [entries]}


def add_base(snapshot: dict[str, Any], base: list[Label]) -> None:
    """Add what is live from before the recording: no event tells of it, but it was seen to have a category.

    Its size is that of the largest tensor that was seen in it. What shares memory with a block of the recording is left
    out: it was freed on the way, or it is a part of something else. So is all but weights and optimizer state: torch
    tells of no free of what is older than its profiler (``CPUAllocator.cpp`` in ``c10/core``), and a batch that was
    made before would stand in the account for ever.
    """
    recorded = LiveBlocks()
    for entry in snapshot["device_traces"][0]:
        recorded.take(entry["addr"], entry["size"])
    segments = snapshot["segments"]
    for item in base:
        known = item.freed == FOREVER and item.size and item.category in _LASTING
        if known and not recorded.overlaps(item.address, item.size):
            recorded.take(item.address, item.size)
            segments.append(_segment(item.address, item.size, []))
    segments.sort(key=lambda segment: segment["address"])


def _segment(address: int, size: int, frames: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "device": 0,
        "address": address,
        "total_size": size,
        "allocated_size": size,
        "active_size": size,
        "requested_size": size,
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": [
            {
                "address": address,
                "size": size,
                "requested_size": size,
                "state": "active_allocated",
                "frames": frames,
            }
        ],
    }


def _frames(timeline: Timeline, op: int) -> list[dict[str, Any]]:
    names = []
    for around in timeline.around(op):
        mark = parse(around.name)
        if mark is None:
            if around.name not in PLUMBING:
                names.append(around.name.removeprefix(NODE))
        elif mark.kind == "module":
            names.append(f"module {mark.name or '(root)'}")
        elif mark.kind == "phase":
            names.append(f"{mark.name} of step {mark.step}")
    # A node's two ranges, the engine's and its own, have the same name.
    kept = [name for name, inner in zip(names, ["", *names], strict=False) if name != inner]
    return [{"name": name, "filename": "??", "line": 0} for name in kept]
