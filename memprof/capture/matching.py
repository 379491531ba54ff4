"""Finds the entry of the allocator's history that belongs to each memory event of the profiler.

Both list the same allocations and frees. Per address they alternate, so the n-th event from the end of one is the n-th
from the end of the other: no clock is needed, and a history that lost its oldest entries is no harm.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memprof.capture.timeline import MemoryEvent

__all__ = ["first_entry_after", "match_entries"]


def match_entries(entries: list[dict[str, Any]], memory: list[MemoryEvent]) -> list[int]:
    """Return the entry of every memory event, -1 where the history has none that fits."""
    by_address: defaultdict[int, list[int]] = defaultdict(list)
    for row, entry in enumerate(entries):
        if entry["action"] in ("alloc", "free_requested"):
            by_address[entry["addr"]].append(row)
    found = [-1] * len(memory)
    for number in range(len(memory) - 1, -1, -1):
        event = memory[number]
        rows = by_address.get(event.address)
        # What does not fit was done by a thread that the profiler does not follow: the history alone has it.
        while rows:
            row = rows.pop()
            if _fits(entries[row], event):
                found[number] = row
                break
    return found


def _fits(entry: dict[str, Any], event: MemoryEvent) -> bool:
    # The profiler reports the block, the history what was asked for.
    return bool((entry["action"] == "alloc") == (event.size > 0) and entry["size"] <= abs(event.size))


def first_entry_after(at: int, entries: list[dict[str, Any]], memory: list[MemoryEvent], rows: list[int]) -> int:
    """Return the entry before which the moment of rank `at` lies; the number of entries if all are before it."""
    after = [row for event, row in zip(memory, rows, strict=True) if event.at > at and row >= 0]
    entry = min(after, default=len(entries))
    # A new segment is fetched on behalf of the allocation that follows it.
    while 0 < entry < len(entries) and entries[entry - 1]["action"] in ("segment_alloc", "segment_map", "segment_free"):
        entry -= 1
    return entry
