"""What grows: fits, breaks and crossovers, over points whose growth is known."""

from __future__ import annotations

from fractions import Fraction

import pytest
from growth_values import point

from memprof.analysis.growth import measure_growth
from memprof.categories.category import CATEGORIES, Category
from memprof.errors import InputError, UsageError

MB = 10**6
XS = (1, 2, 4, 8, 16, 32)
WEIGHTS = ("weights", "base", "wte", None, "float32")
SAVED = ("activations", "saved", "mlp", "aten::mm", "float16")
LOGITS = ("activations", "logits", "lm_head", "aten::mm", "float16")
WIDE = ("activations", "logits", "lm_head", "aten::_to_copy", "float32")


def linear(x, **more):
    return point(x, {WEIGHTS: 300 * MB, SAVED: 20 * MB * x}, **more)


def test_slope_and_fixed_part_of_every_category():
    growth = measure_growth([linear(x) for x in reversed(XS)], by="module")

    (group,) = growth.groups
    assert (growth.over, [each.at for each in group.points]) == ("mbs", list(XS))
    assert (group.total.line.slope, group.total.line.fixed, group.total.line.max_error) == (20 * MB, 300 * MB, 0)
    assert group.categories[Category.WEIGHTS].line.slope == 0
    assert group.categories[Category.ACTIVATIONS].line.slope == 20 * MB
    assert set(group.categories) == set(group.own_maximum) == set(CATEGORIES)
    assert group.causes[Category.ACTIVATIONS, "mlp"].line.slope == 20 * MB
    assert group.total.breaks == ()
    assert group.total.pieces == (group.total.line,)
    assert group.steady is None
    assert group.device_used is None


def test_categories_sum_to_the_total_exactly():
    points = [point(x, {WEIGHTS: 300 * MB + 7 * x * x, SAVED: 20 * MB * x + x % 3}) for x in XS]

    (group,) = measure_growth(points).groups

    assert sum(fit.line.slope for fit in group.categories.values()) == group.total.line.slope
    assert sum(fit.line.fixed for fit in group.categories.values()) == group.total.line.fixed


def test_block_rounding_is_no_break():
    points = [point(x, {WEIGHTS: 300 * MB, SAVED: 20 * MB * x}, slack=x * x * 79_190 % (5 * MB)) for x in XS]

    (group,) = measure_growth(points).groups

    assert group.total.breaks == ()
    assert MB < group.total.line.max_error < 5 * MB


def test_break_says_where_the_peak_moved():
    points = [
        point(
            x,
            {WEIGHTS: 300 * MB, SAVED: (20 if x < 8 else 25) * MB * x},
            place=("forward", 0, "mlp", "aten::mm") if x < 8 else ("backward", 0, "lm_head", "aten::mm"),
        )
        for x in XS
    ]

    (group,) = measure_growth(points).groups

    (found,) = group.total.breaks
    assert (found.after, found.at) == (4, 8)
    assert "the peak moves from aten::mm in mlp of forward to aten::mm in lm_head of backward" in found.why
    assert "activations (saved) mlp is 40.00 MB more at mbs 8 than the points below it say" in found.why
    assert [(piece.low, piece.high, piece.slope) for piece in group.total.pieces] == [(1, 4, 20 * MB), (8, 32, 25 * MB)]
    assert group.total.last.slope == 25 * MB


def test_break_names_the_kernel_that_appears_and_only_its_category_breaks():
    copy = ("dequantized", "forward", "mlp", "bitsandbytes::dequantize_4bit", "float16")
    points = [point(x, {WEIGHTS: 300 * MB, SAVED: 20 * MB * x, **({copy: 90 * MB} if x >= 8 else {})}) for x in XS]

    (group,) = measure_growth(points).groups

    (found,) = group.categories[Category.DEQUANTIZED].breaks
    assert (found.after, found.at) == (4, 8)
    assert "dequantized (forward) mlp is 90.00 MB more at mbs 8 than the points below it say" in found.why
    assert "the peak moves" not in found.why
    assert group.categories[Category.ACTIVATIONS].breaks == ()
    assert len(group.total.breaks) == 1


def test_break_says_where_another_op_runs():
    other = ("activations", "logits", "lm_head", "aten::bmm", "float16")
    points = [point(x, {WEIGHTS: 100 * MB, LOGITS if x < 8 else other: (20 if x < 8 else 30) * MB * x}) for x in XS]

    (group,) = measure_growth(points).groups

    (found,) = group.total.breaks
    assert "activations (logits) lm_head: aten::bmm float16 in place of aten::mm float16 (240.0 MB)" in found.why
    assert "activations (logits) lm_head is 80.00 MB more at mbs 8" in found.why


def test_first_point_alone_may_be_off_the_line():
    points = [point(x, {WEIGHTS: 300 * MB, SAVED: 20 * MB * x + (60 * MB if x == 1 else 0)}) for x in XS]

    (group,) = measure_growth(points).groups

    (found,) = group.total.breaks
    assert (found.after, found.at) == (1, 2)
    assert "is 60.00 MB more at mbs 1 than the points above it say" in found.why


def test_noise_is_no_break_but_an_error():
    noise = {1: 0, 2: 9, 4: -8, 8: 9, 16: -9, 32: 8}
    points = [point(x, {WEIGHTS: 300 * MB, SAVED: 20 * MB * x + noise[x] * MB}) for x in XS]

    (group,) = measure_growth(points).groups

    assert group.categories[Category.ACTIVATIONS].breaks == ()
    assert group.total.line.max_error > 4 * MB


def test_quadratic_growth_over_length_is_a_parabola_and_no_break():
    scores = ("activations", "saved", "attn", "aten::bmm", "float16")
    xs = (256, 512, 1024, 2048)
    points = [point(x, {WEIGHTS: 300 * MB, SAVED: 1000 * x, scores: 64 * x * x}, over="seq", mbs=1) for x in xs]

    growth = measure_growth(points)

    (group,) = growth.groups
    assert growth.over == "seq"
    curve = group.categories[Category.ACTIVATIONS].curve
    assert (curve.quadratic, curve.slope, curve.max_error) == (64, 1000, 0)
    assert group.total.breaks == ()
    assert group.categories[Category.WEIGHTS].curve is None


def test_oom_and_failed_points_are_listed_and_not_fitted():
    failed = point(32, {}, status="failed")
    points = [*(linear(x, lora_r=8) for x in XS[:4]), linear(16, status="oom", lora_r=8), failed]

    (group,) = measure_growth(points).groups

    assert [(each.at, each.point.status) for each in group.points[-2:]] == [(16, "oom"), (32, "failed")]
    assert [x for x, _ in group.total.values] == [1, 2, 4, 8]


def test_one_point_is_no_growth():
    growth = measure_growth([linear(1)])

    assert growth.groups[0].total is None
    assert growth.groups[0].categories == {}
    assert any("fewer than two points" in note for note in growth.notes)


def test_two_captures_of_one_configuration_are_refused():
    with pytest.raises(InputError, match="second capture of the same configuration"):
        measure_growth([linear(1), linear(1)])


@pytest.mark.parametrize(
    ("options", "said"), [({"over": "rank"}, "mbs or seq"), ({"by": "stack"}, "module, op, dtype")]
)
def test_unknown_option_names_what_it_can_be(options, said):
    with pytest.raises(UsageError, match=said):
        measure_growth([linear(1), linear(2)], **options)


def test_different_versions_are_noted():
    other = linear(2)
    other.environment["torch"] = "2.1.0"

    assert any("different torch: 2.1.0, 2.11.0" in note for note in measure_growth([linear(1), other]).notes)


def test_measured_and_simulated_stand_side_by_side_and_are_not_crossed():
    measured = [linear(x, source="recorded", card="H200") for x in XS]
    simulated = [point(x, {WEIGHTS: 299 * MB, SAVED: 21 * MB * x}, source="simulated", card="H200") for x in XS]

    growth = measure_growth([*measured, *simulated])

    assert [group.config["source"] for group in growth.groups] == ["recorded", "simulated"]
    assert growth.crossovers == ()


def two_configurations():
    """By hand: plain 300 + 20 x, quantized 100 + 30 x MB; they cross at 20, between the points 16 and 32."""
    plain = [point(x, {WEIGHTS: 300 * MB, LOGITS: 10 * MB * x, SAVED: 10 * MB * x}) for x in XS]
    packed = [point(x, {WEIGHTS: 100 * MB, WIDE: 20 * MB * x, SAVED: 10 * MB * x}, quant="bnb.nf4") for x in XS]
    return [*plain, *packed]


def test_crossover_and_who_pays_for_it():
    growth = measure_growth(two_configurations())

    (crossover,) = growth.crossovers
    assert (crossover.at, crossover.low, crossover.high, crossover.predicted) == (20, 20, 20, 20)
    assert (crossover.setting, crossover.cheaper_below, crossover.extrapolated) == ("quant", crossover.b, False)
    assert crossover.paid_by[Category.WEIGHTS] == -200 * MB
    assert crossover.paid_by[Category.ACTIVATIONS] == 200 * MB
    assert crossover.per_sample[Category.ACTIVATIONS] == 10 * MB
    cause = crossover.causes[0]
    assert (cause.module, cause.dtype_a, cause.dtype_b) == ("lm_head", "float16", "float32")
    assert (cause.per_sample, cause.size) == (10 * MB, 320 * MB)
    assert sum(each.per_sample for each in crossover.causes) == sum(crossover.per_sample.values())


def test_uncertainty_is_the_error_of_the_lines_over_the_difference_of_their_slopes():
    points = two_configurations()
    # Off its line by 2 MB at one point in the middle: too little for a break.
    points[3] = point(8, {WEIGHTS: 300 * MB, LOGITS: 80 * MB, SAVED: 80 * MB + MB // 2})

    (crossover,) = measure_growth(points).crossovers

    assert crossover.low < crossover.at < crossover.high
    error = measure_growth(points).groups[0].total.line.max_error
    assert crossover.at - crossover.low == Fraction(error, 10 * MB)


def test_crossover_beyond_the_points_says_so_and_far_ones_are_left_out():
    near = [each for each in two_configurations() if each.config["mbs"] <= 8]
    far = [each for each in two_configurations() if each.config["mbs"] <= 4]

    (crossover,) = measure_growth(near).crossovers

    assert (crossover.at, crossover.extrapolated) == (20, True)
    assert measure_growth(far).crossovers == ()


def test_equal_totals_cross_once_where_they_are_equal():
    plain = [point(x, {WEIGHTS: 320 * MB, SAVED: 10 * MB * x}) for x in XS]
    packed = [point(x, {WEIGHTS: 160 * MB, SAVED: 20 * MB * x}, quant="bnb.nf4") for x in XS]

    (crossover,) = measure_growth([*plain, *packed]).crossovers

    assert crossover.at == 16


def test_configurations_that_differ_in_two_settings_are_not_crossed():
    plain = [point(x, {WEIGHTS: 300 * MB, SAVED: 10 * MB * x}) for x in XS]
    packed = [point(x, {WEIGHTS: 100 * MB, SAVED: 30 * MB * x}, quant="bnb.nf4", precision="other") for x in XS]

    assert measure_growth([*plain, *packed]).crossovers == ()
