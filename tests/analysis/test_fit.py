"""Lines through exact integers."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memprof.analysis.fit import fit_line, fit_parabola, fit_pieces

BYTES = st.integers(-(2**50), 2**50)
XS = st.lists(st.integers(1, 4096), min_size=4, max_size=10, unique=True).map(sorted)


@given(XS, BYTES, BYTES)
def test_points_on_a_line_give_that_line_without_error(xs, slope, fixed):
    line = fit_line(xs, [fixed + slope * x for x in xs])

    assert (line.slope, line.fixed, line.max_error) == (slope, fixed, 0)


@given(XS, st.integers(-(2**20), 2**20), BYTES, BYTES)
def test_points_on_a_parabola_give_that_parabola_without_error(xs, quadratic, slope, fixed):
    parabola = fit_parabola(xs, [fixed + slope * x + quadratic * x * x for x in xs])

    assert (parabola.quadratic, parabola.slope, parabola.fixed) == (quadratic, slope, fixed)
    assert parabola.max_error == 0


@given(XS, st.data())
def test_line_is_the_least_squares_line(xs, data):
    ys = data.draw(st.lists(st.integers(0, 10**6), min_size=len(xs), max_size=len(xs)))

    line = fit_line(xs, ys)

    slope, fixed = np.polyfit(xs, ys, 1)
    assert float(line.slope) == pytest.approx(slope, rel=1e-6, abs=1e-6)
    assert float(line.fixed) == pytest.approx(fixed, rel=1e-6, abs=1e-3)
    assert line.max_error == pytest.approx(
        max(abs(fixed + slope * x - y) for x, y in zip(xs, ys, strict=True)), abs=1.1
    )


def test_error_is_rounded_up_and_never_lost():
    line = fit_line([1, 2, 3], [0, 1, 0])

    assert (line.slope, line.fixed, line.max_error) == (0, Fraction(1, 3), 1)


def test_sums_beyond_64_bits_stay_exact():
    line = fit_line([1, 2, 4], [2**62 + 1, 2**62 + 2, 2**62 + 4])

    assert (line.slope, line.fixed, line.max_error) == (1, 2**62, 0)


def test_single_point_is_a_flat_line():
    line = fit_line([8], [5])

    assert (line.slope, line.fixed, line.points) == (0, 5, 1)


def test_pieces_meet_where_the_line_bends():
    xs = [1, 2, 4, 8, 16, 32]
    ys = [100 * x for x in xs[:3]] + [1000 + 100 * x for x in xs[3:]]

    pieces = fit_pieces(xs, ys, [0] * 6)

    assert [(piece.low, piece.high, piece.slope, piece.fixed) for piece in pieces] == [
        (1, 4, 100, 0),
        (8, 32, 100, 1000),
    ]


def test_one_line_is_one_piece():
    (piece,) = fit_pieces([1, 2, 3, 5], [10, 20, 30, 50], [0] * 4)

    assert (piece.low, piece.high, piece.max_error) == (1, 5, 0)


def test_point_that_either_piece_could_have_goes_to_the_longer_run():
    xs = [1, 2, 4, 8, 16]
    ys = [999, 20, 40, 80, 160]  # 1 and 2 are on a line, as any two points are

    pieces = fit_pieces(xs, ys, [0] * 5)

    assert [(piece.low, piece.high) for piece in pieces] == [(1, 1), (2, 16)]


def test_tolerance_is_each_points_own():
    xs, ys = [1, 2, 3, 4], [10, 20, 30, 44]

    assert len(fit_pieces(xs, ys, [3] * 4)) == 1
    assert len(fit_pieces(xs, ys, [3, 3, 3, 0])) == 2
