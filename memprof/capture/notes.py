"""Labels without a profiler: what happens is noted in Python, and the allocator's history says when.

Each note has a number, which becomes the allocator's metadata: every later entry of the history carries the number of
the last note on its thread (``user_metadata`` in ``c10/cuda/CUDACachingAllocator.cpp`` is thread-local). So a note
stands before the first entry that has its number or a higher one; no clocks are compared.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

import torch

from memprof.capture.marks import MARK, seen_mark
from memprof.capture.phases import NODE, OPTIMIZER
from memprof.capture.timeline import MemoryEvent, Op, TensorSight, Timeline
from memprof.errors import CaptureError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["NotePen", "timeline_of"]

_LOOK, _BEGIN, _END, _UNPACKED = range(4)
_SEEN = seen_mark()
_PREFIX = f"{MARK}note "
"""What our metadata begins with, so that a program's own is told from it."""

_Note = tuple[int, int, int, bool, Any, tuple[tuple[int, torch.dtype, tuple[int, ...]], ...]]
"""Number, kind, thread, whether a backward ran on it, mark (of an end: number of its beginning), tensors."""


class NotePen:
    """Writes notes.

    Raises
    ------
    CaptureError
        If this torch's allocator takes no metadata.
    """

    def __init__(self) -> None:
        set_metadata = getattr(torch._C, "_cuda_setMemoryMetadata", None)
        if set_metadata is None:
            raise CaptureError(
                f"--labels light: the allocator of torch {torch.__version__} takes no metadata; use --labels full"
            )
        self.notes: list[_Note] = []
        self._set_metadata = set_metadata
        self._home = threading.get_ident()
        self._backward = 0
        """Thread of the backward that was noted last, until something else is."""
        self._numbers = count()

    def look(self, mark: str, tensors: list[torch.Tensor] | tuple[torch.Tensor, ...]) -> None:
        """Write one mark, with tensors that it is about; what a module returns has no category of its own."""
        if mark != _SEEN:
            self._write(_LOOK, mark, tensors)

    def look_each(self, marks: Sequence[str], tensors: list[torch.Tensor]) -> None:
        """Write one mark for each tensor."""
        for mark, tensor in zip(marks, tensors, strict=True):
            self._write(_LOOK, mark, (tensor,))

    def begin(self, mark: str) -> Any:
        """Open a range."""
        return self._write(_BEGIN, mark, ())

    def end(self, begun: Any) -> None:
        """Close a range."""
        if begun is not None:
            self._write(_END, begun, ())

    def unpacked(self) -> None:
        """Note that a backward began; on a thread of its own it goes on until that thread allocates no more."""
        thread = threading.get_ident()
        if thread == self._home or thread != self._backward:
            self._write(_UNPACKED, "", ())
            self._backward = thread

    def optimizer_begins(self) -> Any:
        """Open the range of an optimizer's step."""
        return self._write(_BEGIN, f"{OPTIMIZER}step", ())

    def close(self) -> None:
        """Take the metadata away again, on this thread."""
        self._set_metadata("")

    def _write(self, kind: int, mark: Any, tensors: Sequence[torch.Tensor]) -> int:
        number = next(self._numbers)
        backward = torch._C._current_graph_task_id() != -1
        if not backward:
            self._backward = 0
        seen = tuple([_sight(tensor) for tensor in tensors if tensor.is_cuda]) if tensors else ()
        self.notes.append((number, kind, threading.get_ident(), backward, mark, seen))
        self._set_metadata(f"{_PREFIX}{number}")
        return number


def _sight(tensor: torch.Tensor) -> tuple[int, torch.dtype, tuple[int, ...]]:
    """Return where a tensor's storage begins, its dtype and shape, without asking for the storage itself."""
    try:
        address = tensor.data_ptr()
        if offset := tensor.storage_offset():
            address -= int(offset) * tensor.element_size()
    except RuntimeError:  # it has no storage: a functional or batched tensor
        address = 0
    return address, tensor.dtype, tensor.shape


def timeline_of(notes: list[_Note], entries: list[dict[str, Any]]) -> Timeline:
    """Return what the notes tell, in order with the allocations and frees of the history.

    A stretch of notes that were written while a backward ran is one autograd node. The entries lose our metadata.
    """
    weave = _Weave(sorted(notes, key=lambda note: note[0]))
    for entry in entries:
        metadata = entry.get("user_metadata")
        if isinstance(metadata, str) and metadata.startswith(_PREFIX):
            entry["user_metadata"] = ""
            weave.up_to(int(metadata.removeprefix(_PREFIX)))
        if entry["action"] in ("alloc", "free_requested"):
            weave.memory_event(entry)
    weave.up_to(len(notes))
    return weave.finish()


class _Weave:
    """Puts notes and entries into one order."""

    def __init__(self, notes: list[_Note]) -> None:
        self._notes = notes
        self._next = 0
        self._rank = 0
        self._ops: list[Op] = []
        self._memory: list[MemoryEvent] = []
        self._rows: dict[int, int] = {}
        """Number of a beginning -> row of its op."""
        self._open: dict[int, list[int]] = {}
        """Thread -> rows of its open ranges."""
        self._thread = 0
        self._node = -1
        """Row of the backward that runs."""
        self._node_thread = 0
        self._goes_on = False
        """The backward's thread has made entries since its last note."""

    def up_to(self, number: int) -> None:
        """Place the notes up to `number`, which was the last on the thread of the next entry."""
        while self._next < len(self._notes) and self._notes[self._next][0] <= number:
            self._place(self._notes[self._next])
            self._next += 1
        if number < len(self._notes):
            self._thread = self._notes[number][2]
            if self._node >= 0 and self._thread == self._node_thread:
                self._goes_on = True  # until an entry of another thread
            elif self._goes_on:
                self._end(self._node)
                self._node, self._goes_on = -1, False

    def memory_event(self, entry: dict[str, Any]) -> None:
        size = entry["size"] if entry["action"] == "alloc" else -entry["size"]
        self._memory.append(
            MemoryEvent(
                at=self._tick(),
                time_ns=entry["time_us"] * 1000,
                address=entry["addr"],
                size=size,
                op=self._innermost(self._thread),
            )
        )

    def finish(self) -> Timeline:
        if self._goes_on:
            self._end(self._node)
        for rows in self._open.values():
            for row in rows:
                self._end(row)
        return Timeline(ops=self._ops, memory=self._memory, device="cuda")

    def _place(self, note: _Note) -> None:
        number, kind, thread, backward, mark, tensors = note
        if not backward:
            if self._goes_on:
                self._end(self._node)
            self._node, self._goes_on = -1, False
        elif self._node < 0:
            self._node = len(self._ops)
            self._node_thread = thread
            rank = self._tick()
            self._ops.append(Op(name=NODE, parent=-1, start=rank, end=rank))
        if kind == _END:
            row = self._rows.pop(mark, -1)
            opened = self._open.get(thread, [])
            if row in opened:
                # What was begun inside of it and never ended, ended with it.
                while opened[-1] != row:
                    self._end(opened.pop())
                self._end(opened.pop())
        elif kind != _UNPACKED:
            rank = self._tick()
            row = len(self._ops)
            sights = tuple(
                TensorSight(address, str(dtype).removeprefix("torch."), tuple(shape), dtype.itemsize)
                for address, dtype, shape in tensors
                if address
            )
            self._ops.append(
                Op(
                    name=mark,
                    parent=self._innermost(thread, node=backward),
                    start=rank,
                    end=self._tick(),
                    operator=False,
                    tensors=sights,
                )
            )
            if kind == _BEGIN:
                self._rows[number] = row
                self._open.setdefault(thread, []).append(row)
        if backward:
            self._end(self._node)

    def _innermost(self, thread: int, *, node: bool = False) -> int:
        opened = self._open.get(thread)
        if opened:
            return opened[-1]
        return self._node if node else -1

    def _end(self, row: int) -> None:
        self._ops[row] = replace(self._ops[row], end=self._tick())

    def _tick(self) -> int:
        self._rank += 1
        return self._rank - 1
