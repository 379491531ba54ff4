"""Reading torch's profiler: the order of things, and devices that report through marks."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch._C._profiler import _RecordFunctionFast  # noqa: E402 - after the check that torch is there

from memprof.capture.marks import memory_mark, parse, sight_mark  # noqa: E402
from memprof.capture.profiler import profiled, read_timeline  # noqa: E402

pytestmark = pytest.mark.torch


def mark(text, *tensors):
    with _RecordFunctionFast(text, tensors):
        pass


def test_an_allocation_is_inside_the_op_that_made_it_and_before_who_sees_it():
    # when
    with profiled(tensors=True) as profiler:
        a = torch.ones(100)
        mark(sight_mark("inputs", "a", ""), a)
        address = a.data_ptr()
        del a

    # then
    timeline = read_timeline(profiler, torch.device("cpu"))
    born, freed = [event for event in timeline.memory if event.address == address]
    assert [op.name for op in timeline.around(born.op)] == ["aten::empty", "aten::ones"]
    (sight,) = [op for op in timeline.ops if parse(op.name) is not None]
    assert (born.size, freed.size) == (400, -400)
    assert born.at < sight.start < sight.end < freed.at
    (tensor,) = sight.tensors
    assert (tensor.address, tensor.dtype, tensor.shape, tensor.bytes) == (address, "float32", (100,), 400)


def test_ranks_are_unique_and_ops_nest():
    with profiled(tensors=True) as profiler:
        torch.nn.Linear(4, 4)(torch.ones(2, 4)).sum().backward()
    timeline = read_timeline(profiler, torch.device("cpu"))
    ranks = [rank for op in timeline.ops for rank in (op.start, op.end)] + [event.at for event in timeline.memory]
    assert sorted(ranks) == list(range(len(ranks)))
    for row, op in enumerate(timeline.ops):
        assert op.start < op.end
        if op.parent >= 0:
            outer = timeline.ops[op.parent]
            assert op.parent < row
            assert outer.start < op.start < op.end < outer.end
    assert any(op.backward and op.name == "AddmmBackward0" for op in timeline.ops)


def test_a_view_is_seen_at_the_storage_it_is_a_view_of():
    with profiled(tensors=True) as profiler:
        a = torch.ones(100)
        mark(sight_mark("inputs", "a", ""), a[50:])
    (sight,) = [op for op in read_timeline(profiler, torch.device("cpu")).ops if parse(op.name) is not None]
    assert sight.tensors[0].address == a.data_ptr()


def test_a_free_on_a_thread_of_its_own_is_known_when_the_memory_is_given_out_again():
    # given a device that reports through marks, and a free that is missing
    with profiled(tensors=True) as profiler:
        mark(memory_mark(4096, 512))
        mark(memory_mark(4096 + 256, 512))

    # then
    timeline = read_timeline(profiler, torch.device("cuda", 0))
    assert [(event.address, event.size) for event in timeline.memory] == [(4096, 512), (4096, -512), (4352, 512)]
    assert [event.at for event in timeline.memory] == sorted({event.at for event in timeline.memory})
    assert [event.implied for event in timeline.memory] == [False, True, False]


def test_memory_marks_are_memory_events():
    # given a device that does not report to the profiler
    with profiled(tensors=True) as profiler:
        mark(memory_mark(1 << 40, 512))
        mark(memory_mark(1 << 40, -512))

    # then
    timeline = read_timeline(profiler, torch.device("cuda", 0))
    assert [(event.address, event.size, event.op) for event in timeline.memory] == [
        (1 << 40, 512, -1),
        (1 << 40, -512, -1),
    ]
    assert timeline.ops == []
