"""The twelve points of the reported table, recorded on an H200: peaks, slopes, crossover, and every pair compared."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from rich.console import Console

import memprof
from memprof.analysis.account import open_account
from memprof.analysis.compare import compare
from memprof.analysis.growth import measure_growth
from memprof.analysis.sweep_folder import read_folder
from memprof.categories.category import Category
from memprof.report.as_json import to_text
from memprof.report.compare import words
from memprof.report.growth import growth_report
from memprof.report.growth_json import growth_json

TRACES = Path(__file__).parents[2] / "traces"
SWEEP = TRACES / "sweep-pythia-70m"
XS = (1, 2, 4, 8, 16, 32)
LENGTH, VOCABULARY, HIDDEN, LAYERS = 1037, 50304, 2048, 6
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
    # given every committed capture; four of the sweep's have a second name
    files = {path.read_bytes(): path for path in sorted(TRACES.rglob("*.pickle"))}
    traces = [memprof.load(path) for path in files.values()]
    peaks = [own_peak(trace) for trace in traces]
    assert len(traces) > len(XS) * len(MEASURED_GB)

    for (a, peak_a), (b, peak_b) in itertools.permutations(zip(traces, peaks, strict=True), 2):
        assert sum(change.difference for change in compare(a, b).changes) == peak_b - peak_a, (a.path, b.path)


def own_peak(trace):
    """``torch.cuda.max_memory_allocated()`` as the capture read it; the CPU has no such figure, but its sizes."""
    known = [each.max_allocated_bytes for each in trace.devices[0].stats if each.max_allocated_bytes is not None]
    return max(known) if known else int(open_account(trace, trace.devices[0]).replay.allocated.max())


def test_tensors_that_changed_their_type_are_pairs():
    plain, packed = (memprof.load(SWEEP / f"pythia-70m_16-mixed_{quant}_seq1037_mbs16.pickle") for quant in MEASURED_GB)

    said = [line.plain.strip() for line in words(compare(plain, packed).changes)]

    # Two bytes more for each of 16 x 1037 x 50304 logits, in 9 chunks; blocks may be up to 1 MiB larger.
    assert said[0] == "lm_head.linear logits of aten::mm -> aten::_to_copy: float16 -> float32, +1.678 GB, 9 tensors"
    assert pytest.approx(1.678e9, rel=0.01) == 16 * LENGTH * VOCABULARY * 2
    assert any(line.startswith("lm_head.linear.weight quantized: float32 -> uint8, -90.14 MB") for line in said)


def test_json_of_growth_has_no_infinities_and_all_ten_categories(growth):
    document = json.loads(json.dumps(growth_json(growth), allow_nan=False))

    assert [len(group["categories"]) for group in document["groups"]] == [10, 10]
    crossing = document["crossovers"][0]["explained_by"]
    assert [each["finding"] for each in crossing] == ["quantized-output-float32"]


def test_growth_names_float32_outputs_as_the_cause_with_their_bytes_per_sample(growth):
    findings = {(each["group"], each["id"]): each for each in growth_json(growth)["findings"]}
    quants = [group.config["quant"] for group in growth.groups]

    found = findings[quants.index("bnb.nf4"), "quantized-output-float32"]

    assert (quants.index("none"), "quantized-output-float32") not in findings
    # Two bytes more for each logit, and for what all layers but the last keep between their linear ones.
    on_paper = LENGTH * (VOCABULARY + (LAYERS - 1) * HIDDEN) * 2
    assert found["bytes_per_sample"] == pytest.approx(on_paper, rel=0.001)
    assert {row["module"] for row in found["evidence"]} == {"lm_head.linear", "transformer.h.*.mlp.fc.linear"}
    # The loss makes float32 copies of half-precision logits, so that most of it comes back.
    assert found["gives_back_bytes_per_sample"] == pytest.approx(36.4e6, rel=0.01)
    plain = growth.groups[quants.index("none")].total.line.slope
    assert found["total_bytes_per_sample_without"] == pytest.approx(float(plain), rel=0.005)


def test_float32_outputs_explain_the_whole_difference_where_the_two_cross(growth):
    (crossover,) = growth.crossovers

    (explanation,) = crossover.explained_by

    assert explanation.finding.id == "quantized-output-float32"
    assert float(explanation.share) == pytest.approx(1, abs=0.02)
    measured = (18_503_442_944 - 9_369_105_920) - (17_997_277_696 - 9_417_176_576)  # nf4 and plain, 16 to 32
    assert float(explanation.per_unit) == pytest.approx(measured / 16, rel=0.02)


def test_terminal_says_the_cause_and_what_a_sample_would_cost_without_it(growth):
    console = Console(width=400, no_color=True)
    with console.capture() as capture:
        console.print(growth_report(growth))
    text = capture.get()

    assert "finding  quantized-output-float32: Quantized layers return float32: 4.020 GB more" in text
    assert "125.7 MB a sample. Without it the peak is 1.156 GB lower, and a sample costs 535.8 MB instead of" in text
    assert "because  Quantized layers return float32 (quantized-output-float32): without it a sample costs" in text


def test_sweep_json_is_what_growth_says_of_the_captures():
    written = json.loads((SWEEP / "sweep.json").read_text(encoding="utf-8"))

    assert written == json.loads(to_text(growth_json(measure_growth(read_folder(SWEEP).points))))
