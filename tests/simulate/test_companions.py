"""What programs use beside ``torch.cuda`` works as with a CUDA build: ranges, copies, one device's DataParallel."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parent))
from children import run_child, simulate

pytestmark = pytest.mark.torch


def test_ranges_nest_and_cost_nothing() -> None:
    found = simulate(
        """
        with torch.cuda.nvtx.range("outer"):
            depth = torch.cuda.nvtx.range_push("inner")
            left = torch.cuda.nvtx.range_pop()
        torch.cuda.nvtx.range_end(torch.cuda.nvtx.range_start("long"))
        torch.cuda.nvtx.mark("now")
        report(depth=depth, left=left, allocated=torch.cuda.max_memory_allocated())
        """
    )
    assert found == {"depth": 1, "left": 1, "allocated": 0}


def test_data_parallel_on_its_one_device_moves_the_batch_on_a_stream_of_its_own() -> None:
    found = simulate(
        """
        def peak(model, batch):
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            model(batch).sum().backward()
            model.zero_grad()
            return torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
        layer = torch.nn.Linear(256, 256).cuda()
        alone = peak(layer, torch.ones(64, 256, device="cuda"))
        parallel = torch.nn.DataParallel(layer)
        device = peak(parallel, torch.ones(64, 256, device="cuda"))
        host = peak(parallel, torch.ones(64, 256))
        report(alone=alone, device=device, host=host)
        """
    )
    assert found["alone"] == found["device"]
    # a batch from the host is allocated on that stream, and so in a segment of the pool of small blocks of its own
    allocated, reserved = found["alone"]
    assert found["host"] == [allocated, reserved + (2 << 20)]


def test_a_deep_copy_of_a_tensor_copies_its_whole_storage() -> None:
    # given a view of a part of a larger storage, which deepcopy copies whole
    found = simulate(
        """
        import copy
        view = torch.arange(1000, device="cuda")[10:20]
        before = torch.cuda.memory_allocated()
        copied = copy.deepcopy(view)
        report(grown=torch.cuda.memory_allocated() - before, offset=copied.storage_offset(), values=copied[:3].tolist(),
               device=str(copied.device))
        """
    )
    # 8,000 bytes in blocks of 512
    assert found == {"grown": 8192, "offset": 10, "values": [10, 11, 12], "device": "cuda:0"}


def test_a_programs_own_profiler_sees_ops_and_memory_without_a_word_of_complaint() -> None:
    code = """
        from torch.profiler import ProfilerActivity, profile
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], profile_memory=True) as profiler:
            x = torch.ones(1024, device="cuda") * 2
        averages = {event.key: event for event in profiler.key_averages()}
        report(memory=averages["aten::mul"].device_memory_usage)
        """
    found = simulate(code)
    assert found == {"memory": 4096}
    assert "Exception raised" not in run_child(code).stderr


def test_checks_of_values_pass_and_are_noted() -> None:
    found = simulate(
        """
        from torch.distributions import Categorical, Normal
        Normal(torch.randn(3, device="cuda"), torch.rand(3, device="cuda")).rsample()
        Categorical(logits=torch.randn(2, 5, device="cuda")).sample()
        known = bool(torch._is_all_true(torch.tensor([True, False], device="cuda")))
        report(known=known, said=[caveat.what for caveat in device.caveats])
        """
    )
    assert found["known"] is False
    assert "a check that all values are valid is taken as passed" in found["said"]
