"""Nests the profiler's events by their times, for where its own tree cannot be used.

With Python's calls recorded, the profiler ends whatever is open when a call returns. The mark of a module is opened in
a hook and outlives that call, so in the profiler's tree it would hold nothing.
"""

from __future__ import annotations

from typing import Any

from torch._C._profiler import _EventType

__all__ = ["nested_by_time"]


class _Event:
    """One event of the profiler, with the children that its times give it."""

    __slots__ = ("children", "end_time_ns", "extra_fields", "name", "start_time_ns", "tag")

    def __init__(self, event: Any) -> None:
        self.name = event.name
        self.tag = event.tag
        self.start_time_ns = event.start_time_ns
        self.end_time_ns = event.end_time_ns
        self.extra_fields = event.extra_fields
        self.children: list[_Event] = []


def nested_by_time(tree: list[Any]) -> list[_Event]:
    """Return the ops and memory events of `tree`, without Python's calls, nested by their times within each thread."""
    threads: dict[int, list[tuple[int, int, int, Any]]] = {}
    pending = list(reversed(tree))
    order = 0
    while pending:
        event = pending.pop()
        order += 1
        if event.tag in (_EventType.TorchOp, _EventType.Allocation):
            found = threads.setdefault(event.start_tid, [])
            found.append((event.start_time_ns, -event.end_time_ns, order, event))
        pending.extend(reversed(event.children))
    roots: list[_Event] = []
    for events in threads.values():
        events.sort(key=lambda each: each[:3])
        around: list[_Event] = []
        for *_, event in events:
            node = _Event(event)
            while around and around[-1].end_time_ns <= node.start_time_ns:
                around.pop()
            (around[-1].children if around else roots).append(node)
            if node.tag == _EventType.TorchOp:
                around.append(node)
    return roots
