"""Finds the entry of the allocator's history that belongs to each memory event of the profiler.

Both list the same allocations and frees. Per address they alternate, so the n-th event from the end of one is the n-th
from the end of the other: no clock is needed, and a history that lost its oldest entries is no harm.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from itertools import accumulate
from typing import Any

from memprof.capture.timeline import MemoryEvent

__all__ = ["first_entry_after", "match_entries", "with_unreported"]


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


def with_unreported(
    entries: list[dict[str, Any]], memory: list[MemoryEvent], rows: list[int]
) -> tuple[list[MemoryEvent], list[int]]:
    """Return `memory`, and its entries, with what only the history has, each right after what happened before it.

    The profiler follows the threads of the run. Others may load a model's weights, or free what the run allocated:
    autograd's own, when it is done.
    """
    matched = sorted((row, event.at) for event, row in zip(memory, rows, strict=True) if row >= 0)
    before = [row for row, _ in matched]
    latest = list(accumulate((at for _, at in matched), max))
    known = set(before)
    sizes = {row: abs(event.size) for event, row in zip(memory, rows, strict=True) if row >= 0}
    live: dict[int, int] = {}
    missing: list[tuple[MemoryEvent, int]] = []
    for row, entry in enumerate(entries):
        size = entry.get("size", 0)
        if entry["action"] == "alloc":
            live[entry["addr"]] = row
        elif entry["action"] == "free_requested":
            size = -sizes.get(live.pop(entry["addr"], -1), size)
        else:
            continue
        if row in known:
            continue
        place = bisect_left(before, row) - 1
        # Between two ranks of the profiler, in the history's order; what came before all of them, after the first.
        at = (latest[place] if place >= 0 else 0) + (row + 1) / (len(entries) + 2)
        event = MemoryEvent(
            at=at, time_ns=entry["time_us"] * 1000, address=entry["addr"], size=size, op=-1, implied=True
        )
        missing.append((event, row))
        sizes[row] = abs(size)
    both = sorted([*zip(memory, rows, strict=True), *missing], key=lambda pair: pair[0].at)
    return [event for event, _ in both], [row for _, row in both]


def first_entry_after(at: float, entries: list[dict[str, Any]], memory: list[MemoryEvent], rows: list[int]) -> int:
    """Return the entry before which the moment of rank `at` lies; the number of entries if all are before it."""
    after = [row for event, row in zip(memory, rows, strict=True) if event.at > at and row >= 0]
    entry = min(after, default=len(entries))
    # A new segment is fetched on behalf of the allocation that follows it.
    while 0 < entry < len(entries) and entries[entry - 1]["action"] in ("segment_alloc", "segment_map", "segment_free"):
        entry -= 1
    return entry
