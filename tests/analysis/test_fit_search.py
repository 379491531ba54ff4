"""The search for the largest size: right on every border, and with few sizes looked at."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memprof.allocator.counters import OutOfMemory
from memprof.allocator.driver import Driver
from memprof.allocator.simulation import CachingAllocator
from memprof.allocator.snapshot import device_trace
from memprof.analysis.fit_search import search
from memprof.analysis.fit_search_need import Answer, Need, need_of
from memprof.trace.model import Settings

MIB = 1 << 20


def need(least, *, capacity, uncertain=0):
    margin = capacity - least
    answer = Answer.YES if margin >= uncertain else Answer.NO if margin < -uncertain else Answer.CLOSE
    return Need(
        answer=answer,
        allocated=least,
        reserved=least,
        reserved_range=(least, least),
        least=least,
        uncertain=uncertain,
        margin=margin,
    )


@given(
    fixed=st.integers(0, 10**9),
    slope=st.integers(1, 10**8),
    curve=st.integers(0, 10**5),
    wave=st.integers(0, 10**7),
    capacity=st.integers(1, 10**11),
    uncertain=st.integers(0, 10**10),
    limit=st.integers(1, 5000),
)
def test_borders_are_those_of_looking_at_every_size(*, fixed, slope, curve, wave, capacity, uncertain, limit):
    def least(at):
        return fixed + slope * at + curve * at * at + wave * (at // 7)

    looked = []

    def measure(at):
        looked.append(at)
        return need(least(at), capacity=capacity, uncertain=uncertain)

    found = search(measure, limit=limit)

    sizes = range(1, limit + 1)
    assert found.fits == max((at for at in sizes if least(at) <= capacity - uncertain), default=None)
    assert found.fails == min((at for at in sizes if least(at) > capacity + uncertain), default=None)
    between = [at for at in sizes if capacity - uncertain < least(at) <= capacity + uncertain]
    assert found.close == ((between[0], between[-1]) if between else None)
    assert found.limit == (limit if found.fails is None else None)
    assert len(looked) == len(set(looked)) <= 60
    assert list(found.needs) == sorted(looked)


def test_a_line_is_followed_to_its_border_at_once():
    # given what a sample costs in a real run: 0.45 GB and 0.57 GB a sample, a card of 14.8 GB
    looked = []

    def measure(at):
        looked.append(at)
        return need(450_000_000 + 570_000_000 * at, capacity=14_829_219_584)

    found = search(measure, limit=1 << 20)

    assert (found.fits, found.fails) == (25, 26)
    assert len(looked) <= 5


def test_steps_do_not_lead_astray():
    # given memory that is the same for 1,000 sizes and then much more
    def measure(at):
        return need(10**6 if at < 1000 else 10**12, capacity=10**9)

    found = search(measure, limit=1 << 20)

    assert (found.fits, found.fails) == (999, 1000)
    assert len(found.needs) < 35


def run_of(allocations, capacity=None):
    allocator = CachingAllocator(Settings(), Driver(capacity))
    for size, freed in allocations:
        address = allocator.malloc(size)
        if freed:
            allocator.free(address)
    return device_trace(allocator)


GROWING = [(60 * MIB, True), (80 * MIB, True), (100 * MIB, False)]
"""Three segments where memory is not short; one, where the cache has to be given back each time."""


@pytest.mark.parametrize(
    ("capacity", "uncertain", "answer", "least"),
    [
        (300, 0, Answer.YES, 240),
        (300, 60, Answer.YES, 240),
        (239, 0, Answer.YES, 100),
        (100, 0, Answer.YES, 100),
        (100, 1, Answer.CLOSE, 100),
        (99, 0, Answer.NO, 240),
        (99, 1, Answer.CLOSE, 100),
        (50, 49, Answer.NO, 240),
    ],
)
def test_cache_that_can_be_given_back_does_not_count(capacity, uncertain, answer, least):
    found = need_of(run_of(GROWING), Settings(), capacity=capacity * MIB, uncertain=uncertain * MIB)

    assert found.answer is answer
    assert (found.allocated, found.reserved) == (100 * MIB, 240 * MIB)
    assert 0 <= found.least - least * MIB <= 2 * MIB
    assert found.margin == capacity * MIB - found.least


def test_the_answer_is_what_a_run_on_such_a_card_meets():
    # given fragments: 38 of each 40 MiB are free, but no segment can be given back
    pinned = [*[(40 * MIB, True), (2 * MIB, False), (38 * MIB, True)] * 3, (50 * MIB, False)]
    for capacity in range(40, 240, 7):
        try:
            run_of(pinned, capacity * MIB)
            fits = True
        except OutOfMemory:
            fits = False
        found = need_of(run_of(pinned), Settings(), capacity=capacity * MIB, uncertain=0)
        assert (found.answer is Answer.YES) == fits
