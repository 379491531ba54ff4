"""Sums over a profile: against torch's own sums of the same run, and on small profiles that are counted by hand."""

from __future__ import annotations

import os
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memprof.analysis.profile import summarize, union_ns
from memprof.analysis.profile_causes import NO_MODULE, NO_OP, find_causes
from memprof.analysis.profile_nesting import nest
from memprof.trace.kineto import read_profile
from memprof.trace.kineto_file import load_profile

OP = {"ph": "X", "cat": "cpu_op", "pid": 1, "tid": 1}


def op(name, start, end, *, cat="cpu_op", tid=1, **args):
    names = {"external": "External id", "sequence": "Sequence number", "forward": "Fwd thread id"}
    args = {names[key]: value for key, value in args.items()}
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": start, "dur": end - start, "args": args}


def module(name, start, end):
    return op(f"memprof.module {name}", start, end, cat="user_annotation")


def kernel(name, start, end, **args):
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": start, "dur": end - start, "args": args}


def memory(time, size, total=0, *, tid=1, kind=1, device=0):
    args = {"Addr": 4096, "Bytes": size, "Device Type": kind, "Device Id": device, "Total Allocated": total}
    return {
        "ph": "i",
        "name": "[memory]",
        "pid": 1,
        "tid": tid,
        "ts": time,
        "args": {**args, "Total Reserved": 2 * total},
    }


def profile_of(*events):
    return read_profile([("traceEvents", event) for event in events], "trace.json")


def by_name(costs):
    return {cost.name: cost for cost in costs}


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """A profile of a tiny training step, and torch's own sums over it."""
    torch = pytest.importorskip("torch")
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 4))
    optimizer = torch.optim.AdamW(model.parameters())
    path = tmp_path_factory.mktemp("profile") / "trace.json"
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True, record_shapes=True
    ) as profiler:
        for _ in range(2):
            model(torch.ones(8, 16)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    profiler.export_chrome_trace(str(path))
    return load_profile(path), profiler


@pytest.mark.torch
def test_own_times_are_those_of_torch(real):
    profile, profiler = real

    nesting = nest(profile)

    own: dict[str, list[float]] = {}
    for row, time in enumerate(nesting.own.tolist()):
        count_and_time = own.setdefault(profile.texts[int(profile.ranges.name[row])], [0, 0.0])
        count_and_time[0] += 1
        count_and_time[1] += time / 1000
    averages = {event.key: event for event in profiler.key_averages() if event.key != "[memory]"}
    assert set(own) == set(averages)
    names = [profile.texts[name] for name in profile.ranges.name.tolist()]
    # torch drops a range whose only child has the same name.
    doubled = {
        name
        for name, parent in zip(names, nesting.parent.tolist(), strict=True)
        if parent >= 0 and names[parent] == name
    }
    assert len(doubled) < len(own) / 4
    for name in set(own) - doubled:
        count, time = own[name]
        assert count == averages[name].count, name
        assert time == pytest.approx(averages[name].self_cpu_time_total, abs=0.01 * count), name


@pytest.mark.torch
def test_every_byte_and_nanosecond_has_one_module_and_one_op(real):
    profile, _ = real

    summary = summarize(profile)

    allocated = int(profile.memory.size[profile.memory.size > 0].sum())
    for costs in (summary.modules, summary.ops):
        assert sum(cost.allocated for cost in costs) == allocated == summary.devices[0].allocated
        assert sum(cost.cpu for cost in costs) == summary.cpu
        assert sum(cost.calls for cost in costs) == sum(profile.ranges.kind == 0)
    assert summary.devices[0].peak == int(profile.memory.allocated.max())


def test_time_inside_is_taken_from_the_range_around():
    profile = profile_of(op("outer", 0, 100), op("first", 10, 30), op("inner", 12, 20), op("second", 50, 60))

    nesting = nest(profile)

    assert nesting.parent.tolist() == [-1, 0, 1, 0]
    assert nesting.own.tolist() == [70_000, 12_000, 8_000, 10_000]


def test_a_range_that_outlives_the_one_around_it_takes_nothing_twice():
    profile = profile_of(op("outer", 0, 100), op("crossing", 80, 120), op("after", 100, 110))

    nesting = nest(profile)

    assert nesting.parent.tolist() == [-1, 0, -1]
    assert nesting.own.tolist() == [80_000, 40_000, 10_000]


def test_threads_do_not_nest_in_each_other():
    profile = profile_of(op("one", 0, 100), op("other", 10, 20, tid=2))

    assert nest(profile).parent.tolist() == [-1, -1]


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20), st.integers(1, 2)), min_size=1, max_size=30),
    st.integers(-1, 80),
)
def test_own_times_add_up_to_the_time_in_which_something_runs(ranges, moment):
    profile = profile_of(*(op("op", start, start + length, tid=tid) for start, length, tid in ranges))

    nesting = nest(profile)

    if all(nesting.own >= 0) and not _crossing(ranges):
        covered = {(tid, tick) for start, length, tid in ranges for tick in range(start, start + length)}
        assert nesting.own.sum() == 1000 * len(covered)
    inner = nesting.innermost(profile.ranges.thread, np.full(len(ranges), moment * 1000))
    for row, inside in enumerate(inner.tolist()):
        if inside >= 0:
            assert ranges[inside][2] == ranges[row][2]
            assert ranges[inside][0] <= moment < ranges[inside][0] + max(ranges[inside][1], 1)


def _crossing(ranges):
    return any(a[2] == b[2] and a[0] < b[0] < a[0] + a[1] < b[0] + b[1] for a in ranges for b in ranges)


def test_modules_are_those_around_and_in_backward_those_of_the_forward_op():
    profile = profile_of(
        module("fc", 0, 40),
        op("aten::linear", 5, 30, sequence=7),
        op("aten::addmm", 10, 20, sequence=7),
        op("aten::sum", 50, 60, sequence=8),
        op("autograd::engine::evaluate_function: AddmmBackward0", 100, 150, tid=2, sequence=7, forward=1),
        op("AddmmBackward0", 105, 140, tid=2, sequence=7, forward=1),
        op("aten::mm", 110, 120, tid=2),
        op("autograd::engine::evaluate_function: SumBackward0", 80, 90, tid=2, sequence=8, forward=1),
    )

    causes = find_causes(profile, nest(profile))

    assert [causes.modules[row] for row in causes.module] == ["fc", "fc", "fc", NO_MODULE, "fc", "fc", "fc", NO_MODULE]
    assert causes.ops[int(causes.op[4])] == "AddmmBackward0"


def test_the_profilers_modules_count_where_memprof_marked_none():
    theirs = [op("nn.Module: Linear_0", 0, 40, cat="python_function"), op("aten::mm", 5, 30)]
    ours = [*theirs, module("fc", 1, 39)]

    for events, expected in ((theirs, "Linear_0"), (ours, "fc")):
        profile = profile_of(*events)
        causes = find_causes(profile, nest(profile))
        assert causes.modules[int(causes.module[1])] == expected


def test_a_reused_number_of_autograd_is_that_of_the_last_forward_before():
    profile = profile_of(
        module("first", 0, 10),
        op("aten::mm", 1, 9, sequence=7),
        op("autograd::engine::evaluate_function: MmBackward0", 20, 30, sequence=7, forward=1),
        module("second", 40, 50),
        op("aten::mm", 41, 49, sequence=7),
        op("autograd::engine::evaluate_function: MmBackward0", 60, 70, sequence=7, forward=1),
    )

    causes = find_causes(profile, nest(profile))

    assert causes.modules[int(causes.module[2])] == "first"
    assert causes.modules[int(causes.module[5])] == "second"


def test_memory_and_kernels_go_to_the_op_that_asked():
    profile = profile_of(
        module("fc", 0, 40),
        op("aten::mm", 5, 30, external=11),
        op("aten::empty", 6, 8, external=12),
        memory(7, 512, 512),
        memory(8.5, 1024, 1536),
        memory(35, -1024, 512),
        memory(50, 2048, 2560),
        memory(7, 4, 4, kind=0, device=-1),
        kernel("gemm", 100, 130, device=0, stream=7, **{"External id": 11}),
        kernel("fill", 120, 140, device=0, stream=8, correlation=3),
        op("cudaLaunchKernel", 6.5, 7.5, cat="cuda_runtime"),
        {**op("cudaLaunchKernel", 6.5, 7.5, cat="cuda_runtime"), "args": {"correlation": 3}},
        kernel("lost", 200, 201, device=0, stream=8),
    )

    summary = summarize(profile)

    ops, modules = by_name(summary.ops), by_name(summary.modules)
    assert (ops["aten::mm"].allocated, ops["aten::mm"].allocations) == (1536, 2)
    assert ops["aten::mm"].device == 50_000
    assert "aten::empty" not in ops
    assert (ops[NO_OP].allocated, ops[NO_OP].device) == (2048, 1_000)
    assert (modules["fc"].allocated, modules["fc"].device) == (1536, 50_000)
    assert (summary.kernels, summary.kernel_time, summary.busy) == (3, 51_000, 41_000)
    assert [cost.name for cost in summary.by_kernel] == ["gemm", "fill", "lost"]
    cuda, cpu = summary.devices
    assert (cuda.kind, cuda.events, cuda.allocated, cuda.freed, cuda.peak) == (1, 4, 3584, 1024, 2560)
    assert (cuda.peak_reserved, cuda.peak_op, cuda.peak_module) == (5120, NO_OP, NO_MODULE)
    assert (cpu.kind, cpu.events, cpu.allocated, cpu.peak_reserved) == (0, 1, 4, None)


def test_steps_are_those_that_the_profiler_marked():
    profile = profile_of(
        op("ProfilerStep#2", 0, 10, cat="user_annotation"), op("ProfilerStep#1", 20, 50, cat="user_annotation")
    )

    assert [(step.number, step.duration) for step in summarize(profile).steps] == [(1, 30_000), (2, 10_000)]


def test_memory_events_alone_are_enough():
    summary = summarize(profile_of(memory(1, 512, 512), memory(2, -512, 0)))

    assert summary.devices[0].allocated == summary.devices[0].peak == 512
    assert [(cost.name, cost.allocated) for cost in summary.modules] == [(NO_MODULE, 512)]


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=20))
def test_union_counts_each_moment_once(intervals):
    start = np.array([start for start, _ in intervals], np.int64)
    end = np.array([start + length for start, length in intervals], np.int64)

    assert union_ns(start, end) == len({tick for a, b in zip(start, end, strict=True) for tick in range(a, b)})


def test_tables_are_of_one_length():
    profile = profile_of(op("a", 0, 1), kernel("k", 2, 3), memory(1, 2))

    for table in (profile.ranges, profile.kernels, profile.launches, profile.memory):
        assert {len(getattr(table, field.name)) for field in fields(table)} == {len(table)}


def test_kernels_without_a_clock_do_not_stretch_the_profile():
    profile = profile_of(op("aten::mm", 5_000_000, 5_000_010), kernel("gemm", 0, 0), memory(5_000_004, 512, 512))

    summary = summarize(profile)

    assert (summary.duration, summary.kernels, summary.busy) == (10_000, 1, 0)
    assert any("1 of 1 kernels have no time" in note for note in profile.notes)
