from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from memprof.allocator.lifetimes import ALLOC, FREE, RELEASE, find, lives_of, overlapping, stable_order


def lives(*entries: tuple[int, int], end: int = 99):
    """Pair (address, kind) entries at events 0, 1, 2, ..."""
    return lives_of(
        np.arange(len(entries)),
        np.array([address for address, _ in entries]),
        np.array([kind for _, kind in entries], dtype=np.uint8),
        end,
    )


def rows(result):
    columns = (result.address, result.born, result.freed, result.released)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_an_address_that_is_used_twice_has_two_lives():
    result = lives((8, ALLOC), (8, FREE), (4, ALLOC), (8, RELEASE), (8, ALLOC))

    assert rows(result) == [(4, 2, 99, 99), (8, 0, 1, 3), (8, 4, 99, 99)]
    assert (result.strays, result.unended) == (0, 0)


def test_an_end_without_a_beginning_is_a_life_from_before():
    assert rows(lives((8, FREE), (8, RELEASE), (4, RELEASE))) == [(4, -1, 99, 2), (8, -1, 0, 1)]


def test_a_lost_release_ends_where_it_was_freed():
    assert rows(lives((8, ALLOC), (8, FREE), (8, ALLOC))) == [(8, 0, 1, 1), (8, 2, 99, 99)]


def test_a_life_that_nothing_ends_ends_when_its_address_is_given_out_again():
    result = lives((8, ALLOC), (8, ALLOC))

    assert rows(result) == [(8, 0, 1, 1), (8, 1, 99, 99)]
    assert result.unended == 1


def test_ends_of_what_has_ended_are_strays():
    assert lives((8, ALLOC), (8, FREE), (8, RELEASE), (8, FREE), (8, RELEASE)).strays == 2


def test_no_entries_have_no_lives():
    assert rows(lives()) == []


@given(st.lists(st.integers(-(1 << 62), 1 << 62), max_size=40), st.booleans())
def test_order_is_stable_for_values_of_any_size(values, near):
    column = np.array([value % 7 for value in values] if near else values, dtype=np.int64)

    np.testing.assert_array_equal(stable_order(column), np.argsort(column, kind="stable"))


ranges = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9)), max_size=12)


@given(ranges, ranges)
def test_ranges_overlap_as_sets_do(some, others):
    def columns(pairs):
        return (np.array([pair[place] for pair in pairs], dtype=np.int64) for place in (0, 1))

    found = overlapping(*columns(some), *columns(others))

    taken = {byte for begin, size in others for byte in range(begin, begin + size)}
    assert found.tolist() == [not taken.isdisjoint(range(begin, begin + size)) for begin, size in some]


@given(st.sets(st.integers(0, 20)), st.lists(st.integers(0, 20)))
def test_values_are_found_where_they_are(haystack, needles):
    column = np.array(sorted(haystack), dtype=np.int64)

    places, there = find(column, np.array(needles, dtype=np.int64))

    assert there.tolist() == [needle in haystack for needle in needles]
    assert all(column[place] == needle for place, needle, found in zip(places, needles, there, strict=True) if found)
