from __future__ import annotations

import numpy as np
import pytest
from allocator_driving import MIB
from hypothesis import given
from hypothesis import strategies as st

from memprof.allocator.rules import (
    page_size,
    round_size,
    round_sizes,
    segment_size,
    should_split,
    slack_limits,
)
from memprof.trace.model import Settings

PLAIN = Settings()
EXPANDABLE = Settings(expandable_segments=True)
OVERSIZE = Settings(max_split_size=32 * MIB)


@pytest.mark.parametrize(
    ("size", "rounded"),
    [(1, 512), (511, 512), (512, 512), (513, 1024), (MIB, MIB), (MIB + 1, MIB + 512), (10 * MIB - 1, 10 * MIB)],
)
def test_sizes_are_rounded_up_to_512_bytes(size, rounded):
    assert round_size(size, PLAIN) == rounded


@pytest.mark.parametrize(
    ("size", "rounded"),
    [
        # The example in the comment of roundup_power2_next_division, times 1024: four steps between powers of two.
        (1200 * 1024, 1280 * 1024),
        (1025 * 1024, 1280 * 1024),
        (1280 * 1024, 1280 * 1024),
        (1537 * 1024, 1792 * 1024),
        (1793 * 1024, 2048 * 1024),
        (1024 * 1024, 1024 * 1024),
        # At most 512 bytes times the divisions: the ordinary rounding.
        (2048, 2048),
        (2047, 2048),
        (1500, 1536),
        (2049, 2560),
    ],
)
def test_divisions_round_up_to_steps_between_powers_of_two(size, rounded):
    everywhere = Settings(roundup_power2_divisions=tuple((1 << place, 4) for place in range(16)))

    assert round_size(size, everywhere) == rounded


def test_divisions_hold_for_their_interval_only():
    # given divisions for sizes from 4 MiB up to 8 MiB
    settings = Settings(roundup_power2_divisions=((4, 2),))

    assert round_size(4 * MIB + 1, settings) == 6 * MIB
    assert round_size(3 * MIB + 1, settings) == 3 * MIB + 512
    assert round_size(8 * MIB + 1, settings) == 8 * MIB + 512


@given(
    st.lists(st.integers(1, 1 << 45), min_size=1, max_size=20),
    st.lists(
        st.tuples(st.sampled_from([1 << place for place in range(16)]), st.sampled_from([1, 2, 4, 8, 64])),
        unique_by=lambda pair: pair[0],
        max_size=5,
    ),
)
def test_rounding_many_sizes_is_rounding_each(sizes, divisions):
    settings = Settings(roundup_power2_divisions=tuple(sorted(divisions)))

    many = round_sizes(np.array(sizes, dtype=np.int64), settings)

    assert many.tolist() == [round_size(size, settings) for size in sizes]
    assert (many >= np.array(sizes)).all()
    assert not (many % 512).any()


@pytest.mark.parametrize(
    ("rounded", "segment"),
    [
        (512, 2 * MIB),
        (MIB, 2 * MIB),
        (MIB + 512, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (10 * MIB + 512, 12 * MIB),
        (21 * MIB, 22 * MIB),
    ],
)
def test_segments_have_the_sizes_of_get_allocation_size(rounded, segment):
    assert segment_size(rounded, PLAIN) == segment


def test_large_segment_size_sets_segment_and_page_of_the_large_pool():
    settings = Settings(large_segment_size=64 * MIB)

    assert segment_size(2 * MIB, settings) == 64 * MIB
    assert segment_size(MIB, settings) == 2 * MIB
    assert page_size(settings, small=False) == 64 * MIB
    assert page_size(settings, small=True) == 2 * MIB


@pytest.mark.parametrize(
    ("settings", "small", "rounded", "remaining", "split"),
    [
        (PLAIN, True, 512, 512, True),
        (PLAIN, True, 512, 0, False),
        (PLAIN, False, 2 * MIB, MIB, False),
        (PLAIN, False, 2 * MIB, MIB + 512, True),
        (EXPANDABLE, False, 2 * MIB, 512, True),
        (EXPANDABLE, False, 2 * MIB, 0, False),
        (OVERSIZE, False, 32 * MIB - 512, 2 * MIB, True),
        (OVERSIZE, False, 32 * MIB, 2 * MIB, False),
        (OVERSIZE, True, 512, 512, True),
    ],
)
def test_blocks_are_split_as_should_split_says(settings, small, rounded, remaining, split):
    assert should_split(rounded + remaining, rounded, settings, small=small) is split


def test_only_oversize_blocks_may_keep_more_than_one_mebibyte():
    rounded = np.array([2 * MIB, 32 * MIB - 512, 32 * MIB])

    assert slack_limits(rounded, PLAIN).tolist() == [MIB, MIB, MIB]
    assert slack_limits(rounded, OVERSIZE).tolist() == [MIB, MIB, 20 * MIB]
