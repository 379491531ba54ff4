"""Bytes of every category after every event, and which of them are drawn."""

from __future__ import annotations

import numpy as np
from growth_values import capture_of
from hypothesis import given
from hypothesis import strategies as st

from memprof.analysis.account import open_account
from memprof.analysis.state import state_at
from memprof.analysis.timeline import category_timeline, drawn_columns
from memprof.categories.category import CATEGORIES

SIZES = st.lists(
    st.tuples(st.integers(1, 10**9), st.sampled_from(CATEGORIES), st.integers(1, 6)), min_size=1, max_size=30
)


@given(SIZES)
def test_every_column_is_the_state_at_that_event(tensors):
    trace = capture_of(
        [
            {"size": size, "category": category.value, "until": number + life}
            for number, (size, category, life) in enumerate(tensors)
        ]
    )
    account = open_account(trace, trace.devices[0])

    timeline = category_timeline(account)

    for event in range(-1, len(account.device.events)):
        categories = state_at(account, event).categories
        assert timeline[:, event + 1].tolist() == [categories[category] for category in CATEGORIES]


@given(st.lists(st.lists(st.integers(0, 50), min_size=200, max_size=200), min_size=1, max_size=3))
def test_drawing_keeps_every_extreme_and_both_ends(curves):
    columns = [np.array(curve, np.int64) for curve in curves]

    drawn = drawn_columns(columns, 40)

    assert len(drawn) < 200
    assert (drawn[0], drawn[-1]) == (0, 199)
    assert np.all(np.diff(drawn) > 0)
    for column in columns:
        assert column[drawn].max() == column.max()
        assert column[drawn].min() == column.min()
        assert int(np.argmax(column)) in drawn


def test_short_timeline_is_drawn_whole():
    assert drawn_columns([np.arange(7)], 7).tolist() == list(range(7))
