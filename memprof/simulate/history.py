"""The allocator's history: what ``torch.cuda.memory._record_memory_history`` keeps, and the snapshot made of it.

Keys, values and their order are those of torch's own snapshots (``torch/csrc/cuda/Module.cpp``,
``THCPModule_memorySnapshot``), so that every reader of those reads these.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memprof.allocator.snapshot import torch_segments
from memprof.trace.model import Action

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import CodeType

    from memprof.allocator.simulation import CachingAllocator

    Stack = tuple[tuple[CodeType, int], ...]

__all__ = ["History"]

_OWN_FOLDER = str(Path(__file__).parent)
"""Our frames stand where torch has compiled code: they are left out of stacks."""
_FREES = (Action.FREE_REQUESTED, Action.FREE_COMPLETED)


class History:
    """Adds what the allocator's trace does not have: times, stacks and metadata, while recording is on."""

    def __init__(self, allocator: CachingAllocator) -> None:
        self.metadata = ""
        """Attached to every later entry; ``torch.cuda.memory._set_memory_metadata`` sets it."""
        self._allocator = allocator
        self._seen = 0
        self._recording = False
        self._annotate = False
        self._context = ""
        self._skip: frozenset[str] = frozenset()
        self._entries: deque[tuple[int, int, Stack, str]] = deque()  # row of the trace, time, stack, metadata
        self._annotations: list[dict[str, Any]] = []
        self._stacks: dict[Stack, Stack] = {}
        self._live: dict[int, Stack] = {}

    def start(
        self,
        enabled: str | None,
        *,
        context: str | None,
        max_entries: int,
        clear: bool,
        annotate: bool,
        skip: Iterable[str],
    ) -> None:
        """Switch recording on (`enabled` is ``state`` or ``all``) or off (None); the options are torch's."""
        self._recording = enabled == "all"
        self._context = (context or "") if enabled else ""
        self._annotate = annotate and enabled is not None
        self._skip = frozenset(skip)
        self._seen = len(self._allocator.trace)
        cleared = clear or enabled is None
        limit = None if max_entries >= sys.maxsize else max_entries
        self._entries = deque(() if cleared else self._entries, maxlen=limit)
        if cleared:
            self._live.clear()
            self._stacks.clear()
            self._annotations.clear()

    def catch_up(self) -> None:
        """Note the entries that the allocator has written since the last call: all of this moment and stack."""
        trace = self._allocator.trace
        first, self._seen = self._seen, len(trace)
        if not self._context and not self._recording:
            return
        now = time.time_ns() // 1000
        stack: Stack | None = None
        for row in range(first, self._seen):
            action = trace.action[row]
            if self._context == "all" or (self._context and action not in _FREES):
                stack = self._stack() if stack is None else stack
                kept = stack
            else:
                kept = ()
            if action == Action.ALLOC:
                self._live[trace.address[row]] = kept
            elif action == Action.FREE_COMPLETED:
                self._live.pop(trace.address[row], None)
            if self._recording and Action(action).name.lower() not in self._skip:
                self._entries.append((row, now, kept, self.metadata))

    def annotation(self, name: str, *, start: bool) -> None:
        """Keep one end of a named region, if annotations are recorded (``global_record_annotations``)."""
        if self._annotate:
            stage = "START" if start else "END"
            self._annotations.append(
                {"stage": stage, "name": name, "device": 0, "time_us": time.time_ns() // 1000},
            )

    def snapshot(self, *, traces: bool = True) -> dict[str, Any]:
        """Return the snapshot that torch would return: segments, traces, settings and annotations."""
        frames = _FrameWriter()
        segments = torch_segments(self._allocator)
        for segment in segments:
            for block in segment["blocks"]:
                if block["state"] != "inactive":
                    block["frames"] = frames.write(self._live.get(block["address"], ()))
        return {
            "segments": segments,
            "device_traces": [list(self._trace(frames)) if traces else []],
            "allocator_settings": self._settings(),
            "external_annotations": list(self._annotations) if traces else [],
        }

    def _trace(self, frames: _FrameWriter) -> Iterable[dict[str, Any]]:
        trace = self._allocator.trace
        for row, now, stack, metadata in self._entries:
            action = Action(trace.action[row])
            yield {
                "action": action.name.lower(),
                "device_free" if action is Action.OOM else "addr": trace.address[row],
                "size": trace.size[row],
                "stream": trace.stream[row],
                "pool_id": trace.pool[row],
                "time_us": now,
                "compile_context": "N/A",
                "user_metadata": metadata,
                "frames": frames.write(stack),
            }

    def _settings(self) -> dict[str, Any]:
        settings = self._allocator.settings
        divisions = dict(settings.roundup_power2_divisions)
        return {
            "PYTORCH_CUDA_ALLOC_CONF": settings.conf,
            "max_split_size": -1 if settings.max_split_size is None else settings.max_split_size,
            "garbage_collection_threshold": settings.garbage_collection_threshold,
            "expandable_segments": settings.expandable_segments,
            "pinned_num_register_threads": 1,
            "release_lock_on_cudamalloc": False,
            "pinned_use_cuda_host_register": False,
            "graph_capture_record_stream_reuse": False,
            "roundup_power2_divisions": {str(1 << i): divisions.get(1 << i, 0) for i in range(16)},
        }

    def _stack(self) -> Stack:
        frame = sys._getframe(2)
        found: list[tuple[CodeType, int]] = []
        while frame is not None:
            code = frame.f_code
            if not code.co_filename.startswith(_OWN_FOLDER):
                found.append((code, frame.f_lineno))
            frame = frame.f_back  # type: ignore[assignment]  # None ends the loop
        stack = tuple(found)
        return self._stacks.setdefault(stack, stack)


class _FrameWriter:
    """Turns stacks into torch's lists of frames, one list per distinct stack."""

    def __init__(self) -> None:
        self._lists: dict[Stack, list[dict[str, Any]]] = {}

    def write(self, stack: Stack) -> list[dict[str, Any]]:
        known = self._lists.get(stack)
        if known is None:
            known = [{"name": code.co_name, "filename": code.co_filename, "line": line} for code, line in stack]
            self._lists[stack] = known
        return known
