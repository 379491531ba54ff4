"""Timelines that are written by hand."""

from __future__ import annotations

import itertools

from memprof.capture.labelling import label
from memprof.capture.marks import parse
from memprof.capture.phases import phases_of
from memprof.capture.timeline import MemoryEvent, Op, TensorSight, Timeline


class Script:
    """Writes a timeline in the order in which things happen."""

    def __init__(self):
        self.rank = 0
        self.ops = []
        self.memory = []
        self.open = []

    def tick(self):
        self.rank += 1
        return self.rank

    def begin(self, name, *tensors, sequence=-1, backward=False, operator=True):
        parent = self.open[-1] if self.open else -1
        self.open.append(len(self.ops))
        sights = tuple(
            TensorSight(address, dtype, shape, 4 if dtype == "float32" else 2) for address, dtype, shape in tensors
        )
        self.ops.append(
            {
                "name": name,
                "parent": parent,
                "start": self.tick(),
                "sequence": sequence,
                "backward": backward,
                "operator": operator,
                "tensors": sights,
            }
        )

    def end(self, count=1):
        for _ in range(count):
            self.ops[self.open.pop()]["end"] = self.tick()

    def op(self, name, *tensors, **options):
        self.begin(name, *tensors, **options)
        self.end()

    def alloc(self, address, size):
        self._memory(address, size)

    def free(self, address, size):
        self._memory(address, -size)

    def _memory(self, address, size):
        at = self.tick()
        op = self.open[-1] if self.open else -1
        self.memory.append(MemoryEvent(at=at, time_ns=at, address=address, size=size, op=op))

    def timeline(self, device="cuda"):
        assert not self.open
        return Timeline(ops=[Op(**op) for op in self.ops], memory=self.memory, device=device)

    def labels(self, device="cuda", *, unfinished=False):
        return label(self.timeline(device), unfinished=unfinished).labels

    def base(self):
        return label(self.timeline()).base

    def phases(self):
        timeline = self.timeline()
        found = phases_of(timeline, [parse(op.name) for op in timeline.ops])
        assert all(before.end == after.start for before, after in itertools.pairwise(found))
        names = [(phase.name, phase.step) for phase in found]
        # What lies behind the last phase is its last rank, or what a test put there.
        return names[:-1] if names[-1][0] == "between" else names
