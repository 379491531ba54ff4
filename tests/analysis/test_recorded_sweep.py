"""The twelve points of the reported table, recorded on an H200: peaks, slopes, crossover, and every pair compared."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

import memprof
from memprof.analysis.compare import compare
from memprof.analysis.growth import measure_growth
from memprof.analysis.sweep_folder import read_folder
from memprof.categories.category import Category
from memprof.report.growth_json import growth_json

SWEEP = Path(__file__).parents[2] / "traces" / "sweep-pythia-70m"
XS = (1, 2, 4, 8, 16, 32)
MEASURED_GB = {
    "none": (1.402, 1.940, 3.013, 5.136, 9.417, 17.997),
    "bnb.nf4": (0.882, 1.408, 2.484, 4.771, 9.369, 18.503),
}
"""torch.cuda.max_memory_allocated() of the same runs by an independent script."""


@pytest.fixture(scope="module")
def growth():
    return measure_growth(read_folder(SWEEP).points, by="op")


@pytest.fixture(scope="module")
def groups(growth):
    return {group.config["quant"]: group for group in growth.groups}


def test_peaks_are_those_measured_by_hand(groups):
    for quant, measured in MEASURED_GB.items():
        assert [x for x, _ in groups[quant].total.values] == list(XS)
        assert [round(size / 1e9, 3) for _, size in groups[quant].total.values] == pytest.approx(measured, abs=0.0011)


def test_quantized_samples_cost_more_and_the_rest_less(groups):
    plain, packed = groups["none"], groups["bnb.nf4"]

    assert float(plain.total.line.slope) == pytest.approx(535e6, rel=0.005)
    assert float(packed.total.last.slope) == pytest.approx(572e6, rel=0.005)
    assert plain.total.breaks == ()
    assert packed.total.line.fixed < plain.total.line.fixed
    assert sum(fit.line.slope for fit in packed.categories.values()) == packed.total.line.slope


def test_break_of_the_quantized_run_is_where_the_peak_moves(groups):
    (found,) = groups["bnb.nf4"].total.breaks

    assert (found.after, found.at) == (2, 4)
    assert "the peak moves from aten::_to_copy in lm_head.linear of backward" in found.why
    assert "to aten::_log_softmax_backward_data of backward" in found.why


def test_crossover_lies_between_16_and_32_and_float32_outputs_pay(growth):
    (crossover,) = growth.crossovers

    assert 16 < crossover.low < crossover.at < crossover.high < 20
    assert not crossover.extrapolated
    assert crossover.predicted == pytest.approx(crossover.at, abs=0.5)
    sign = 1 if growth.groups[crossover.b].config["quant"] == "bnb.nf4" else -1
    assert sign * crossover.paid_by[Category.ACTIVATIONS] > 0 > sign * crossover.paid_by[Category.WEIGHT_CASTS]
    (logits,) = (
        each
        for each in crossover.causes
        if each.finer == "logits" and {each.dtype_a, each.dtype_b} == {"float16", "float32"}
    )
    # The logits of a sample, length x vocabulary, have two bytes more an element.
    assert sign * float(logits.per_sample) == pytest.approx(1037 * 50304 * 2, rel=0.015)


def test_rows_of_every_pair_sum_to_the_difference_of_the_allocators_own_peaks():
    traces = [memprof.load(path) for path in sorted(SWEEP.glob("*.pickle"))]
    peaks = [max(stats.max_allocated_bytes for stats in trace.devices[0].stats) for trace in traces]

    for (a, peak_a), (b, peak_b) in itertools.permutations(zip(traces, peaks, strict=True), 2):
        assert sum(change.difference for change in compare(a, b).changes) == peak_b - peak_a


def test_json_of_growth_has_no_infinities_and_all_ten_categories(growth):
    document = json.loads(json.dumps(growth_json(growth), allow_nan=False))

    assert [len(group["categories"]) for group in document["groups"]] == [10, 10]
    assert document["findings"] == []
