"""What a cause costs by the sample, on points whose lines are known."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from growth_values import point

from memprof.analysis.findings import Certainty, Evidence, Finding
from memprof.analysis.growth import measure_growth
from memprof.report.growth_json import growth_json
from memprof.report.growth_words import explanation_words, finding_words

KEY = ("activations", "saved", "mlp", "aten::mm", "float32")
MB = 1_000_000
XS = (1, 2, 4, 8)


def finding(size, gives_back, *, kind="quantized-output-float32", grows=True):
    return Finding(
        id=kind,
        title=f"Something returns float32: {size} bytes",
        category="activations",
        size=size,
        per_sample=1.0 if grows else None,
        certainty=Certainty.CERTAIN,
        evidence=(Evidence(module="mlp", op="aten::mm", dtype="float32", size=size),),
        fix="change it",
        gives_back=gives_back,
    )


def points(per_sample, fixed, *, found=lambda x: (), quant="none"):
    return [replace(point(x, {KEY: fixed * MB + per_sample * MB * x}, quant=quant), findings=found(x)) for x in XS]


def test_a_sample_costs_what_the_line_says_less_what_the_cause_gives_back():
    growth = measure_growth(points(10, 100, found=lambda x: (finding(4 * MB * x, 3 * MB * x + 7),)))

    (found,) = growth.groups[0].findings

    assert (found.at, found.slope, found.total, found.without, found.given_back) == (
        8, 4 * MB, 10 * MB, 7 * MB, 3 * MB
    )  # fmt: skip
    assert finding_words(growth, found) == (
        "Something returns float32: 32000000 bytes, at mbs 8; 4.000 MB a sample. Without it the peak is 24.00 MB "
        "lower, and a sample costs 7.000 MB instead of 10.00 MB"
    )
    (row,) = growth_json(growth)["findings"]
    assert row["group"] == 0
    assert row["bytes_per_sample"] == 4 * MB
    assert row["total_bytes_per_sample_without"] == 7 * MB


def test_what_a_cause_gives_back_is_not_known_where_one_point_does_not_tell():
    growth = measure_growth(points(10, 100, found=lambda x: (finding(4 * MB * x, None if x == 2 else MB),)))

    (found,) = growth.groups[0].findings

    assert found.slope == 4 * MB
    assert found.without is None
    assert found.given_back is None


def test_points_without_the_cause_give_nothing_back():
    growth = measure_growth(points(10, 100, found=lambda x: (finding(8 * MB, 8 * MB, grows=False),) if x == 8 else ()))

    (found,) = growth.groups[0].findings

    assert found.slope is None  # one point makes no line
    assert found.without < found.total
    assert growth_json(growth)["findings"][0]["bytes_per_sample"] is None


def test_what_is_never_worth_a_line_is_not_told():
    growth = measure_growth(points(10, 100, found=lambda x: (finding(1000, 1000),)))

    assert growth.groups[0].findings == ()


@pytest.mark.parametrize(("shared", "expected"), [(False, [Fraction(6 * MB)]), (True, [])])
def test_only_what_the_other_configuration_does_not_have_explains_the_difference(shared, expected):
    # given two lines that cross at 5: one costs 8 MB a sample more
    cause = finding(9 * MB, 9 * MB)
    plain = points(10, 140, found=lambda x: (cause,) if shared else ())
    packed = points(18, 100, found=lambda x: (replace(cause, gives_back=6 * MB * x),), quant="nf4")

    growth = measure_growth([*plain, *packed])
    (crossover,) = growth.crossovers

    assert crossover.at == 5
    assert [each.per_unit for each in crossover.explained_by] == expected
    if expected:
        assert crossover.explained_by[0].share == Fraction(6, 8)
        (said,) = explanation_words(growth, crossover)
        assert said.startswith("Something returns float32 (quantized-output-float32): without it a sample costs 6.000")
        assert said.endswith("less with nf4, 75.0% of the difference")


def test_over_length_the_bytes_are_those_of_a_token():
    found = lambda x: (finding(4 * MB * x, MB * x),)  # noqa: E731 - as the others
    lengths = [replace(point(x, {KEY: 10 * MB * x}, over="seq", mbs=1), findings=found(x)) for x in (128, 256, 512)]

    (row,) = growth_json(measure_growth(lengths))["findings"]

    assert row["bytes_per_token"] == 4 * MB
    assert row["bytes_per_sample"] is None
    assert row["gives_back_bytes_per_token"] == MB
