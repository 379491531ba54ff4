"""Runs torch's profiler beside a run and reads its events as a `Timeline`.

For labels only CPU activities are recorded: op ranges with the tensors that each op was given, and memory events.
The profiler gives every allocation the op around it, on whichever thread, without touching the tensors.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from torch._C._profiler import RecordScope, _EventType, _TensorMetadata
from torch.profiler import ProfilerActivity, profile

from memprof.capture.liveblocks import LiveBlocks
from memprof.capture.marks import MARK, parse, split_looks
from memprof.capture.nesting import nested_by_time
from memprof.capture.timeline import MemoryEvent, Op, TensorSight, Timeline

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

__all__ = ["profiled", "read_timeline"]

MEMORY = f"{MARK}memory"


@contextmanager
def profiled(
    *, tensors: bool, activities: Sequence[ProfilerActivity] = (ProfilerActivity.CPU,), stacks: bool = False
) -> Iterator[profile]:
    """Profile what runs inside; the events can be read after it ended.

    Parameters
    ----------
    tensors
        Also record which tensors each op is given.
    activities
        What to follow: devices take as much memory outside the allocator as their profiler needs.
    stacks
        Also record every call of a Python function.
    """
    # Kineto prints a line when it starts and stops; only its log level silences it, and it reads that when it starts.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    with ExitStack() as around:
        with warnings.catch_warnings():
            # That a second cycle would clear the events of the first: each profiler has one.
            warnings.filterwarnings("ignore", message=".*Profiler clears events", category=UserWarning)
            profiler = profile(activities=activities, record_shapes=tensors, profile_memory=True, with_stack=stacks)
            around.enter_context(profiler)
        yield profiler


def read_timeline(profilers: profile | Sequence[profile], device: torch.device) -> Timeline:
    """Read what one profiler, or several one after the other, recorded.

    Of memory only the events of `device`, or the memory marks of a simulated one.
    """
    roots: list[Any] = []
    for profiler in profilers if isinstance(profilers, Sequence) else (profilers,):
        # torch.profiler.profile keeps the finished result here; _memory_profiler in torch/profiler reads the same.
        assert profiler.profiler is not None
        result = profiler.profiler.kineto_results
        assert result is not None
        tree = result.experimental_event_tree()
        roots += nested_by_time(tree) if profiler.with_stack else tree
    moments: list[tuple[int, int, int, bool]] = []  # time, order within the walk, row, whether it is an op's end
    ops: list[tuple[Any, int, str, list[Any]]] = []  # event, parent, name, what it was given
    memory: list[tuple[int, int, int, int]] = []  # time, address, size, op
    order = 0
    # Entering and leaving are two visits, so that ranges nest by the walk's order where times are equal.
    pending: list[tuple[Any, int, bool]] = [(event, -1, False) for event in reversed(roots)]
    while pending:
        event, parent, leaving = pending.pop()
        order += 1
        if leaving:
            # What still ran when the recording ended has no end of its own.
            moments.append((max(event.end_time_ns, event.start_time_ns), order, parent, True))
            continue
        row = parent
        time = event.start_time_ns
        mark = parse(event.name) if event.name.startswith(MEMORY) else None
        if mark is not None:
            moments.append((time, order, -1 - len(memory), False))
            memory.append((time, mark.address, mark.size, parent))
        elif event.tag == _EventType.TorchOp:
            given = event.extra_fields.inputs
            looks = split_looks(event.name)
            if looks is not None and len(looks) == len(given):  # one after the other, as if each had a range
                for look, value in zip(looks[:-1], given, strict=False):
                    moments.append((time, order, len(ops), False))
                    moments.append((time, order, len(ops), True))
                    ops.append((event, parent, look, [value]))
            row = len(ops)
            ops.append(
                (event, parent, event.name if looks is None else looks[-1], given if looks is None else given[-1:])
            )
            moments.append((time, order, row, False))
            pending.append((event, row, True))
        elif event.tag == _EventType.Allocation and event.extra_fields.device == device:
            moments.append((time, order, -1 - len(memory), False))
            memory.append((time, event.extra_fields.ptr, event.extra_fields.alloc_size, parent))
        pending.extend((child, row, False) for child in reversed(event.children))
    moments.sort()
    starts, ends = [0] * len(ops), [0] * len(ops)
    events: list[MemoryEvent] = []
    live = LiveBlocks()
    rank = 0
    for _, _, row, leaving in moments:
        if row < 0:
            time, address, size, op = memory[-1 - row]
            if size > 0:
                for lost, bytes_ in live.take(address, size):
                    events.append(MemoryEvent(at=rank, time_ns=time, address=lost, size=-bytes_, op=-1, implied=True))
                    rank += 1
            else:
                live.give_back(address)
            events.append(MemoryEvent(at=rank, time_ns=time, address=address, size=size, op=op))
        elif leaving:
            ends[row] = rank
        else:
            starts[row] = rank
        rank += 1
    return Timeline(
        ops=[_op(op, starts[row], ends[row]) for row, op in enumerate(ops)],
        memory=events,
        device=device.type,
    )


def _op(found: tuple[Any, int, str, list[Any]], start: int, end: int) -> Op:
    event, parent, name, given = found
    fields = event.extra_fields
    return Op(
        name=name,
        parent=parent,
        start=start,
        end=end,
        sequence=fields.sequence_number,
        backward=fields.scope == RecordScope.BACKWARD_FUNCTION,
        operator=fields.scope != RecordScope.USER_SCOPE,
        tensors=tuple(_tensors(given)),
    )


def _tensors(values: list[Any]) -> Iterator[TensorSight]:
    for value in values:
        if isinstance(value, _TensorMetadata):
            if value.storage_data_ptr:
                dtype = value.dtype
                yield TensorSight(
                    value.storage_data_ptr,
                    str(dtype).removeprefix("torch."),
                    tuple(value.sizes),
                    dtype.itemsize,
                )
        elif isinstance(value, list):
            yield from _tensors(value)
