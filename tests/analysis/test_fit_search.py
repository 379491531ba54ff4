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


def need(allocated, *, capacity, uncertain=0, cache=0):
    """A run that reserves `cache` more than it allocates, and can do with half of that."""
    least, reserved = allocated + cache // 2, allocated + cache
    if reserved <= capacity - uncertain:
        answer = Answer.YES
    elif least <= capacity - uncertain:
        answer = Answer.TIGHT
    else:
        answer = Answer.CLOSE if least <= capacity + uncertain else Answer.NO
    return Need(
        answer=answer,
        expected=least <= capacity,
        allocated=allocated,
        reserved=reserved,
        reserved_range=(reserved, reserved),
        uncertain=uncertain,
        margin=capacity - reserved,
    )


@given(
    fixed=st.integers(0, 10**9),
    slope=st.integers(1, 10**8),
    curve=st.integers(0, 10**5),
    wave=st.integers(0, 10**7),
    share=st.integers(0, 50),
    capacity=st.integers(1, 10**11),
    uncertain=st.integers(0, 10**10),
    limit=st.integers(1, 5000),
)
def test_borders_are_those_of_looking_at_every_size(*, fixed, slope, curve, wave, share, capacity, uncertain, limit):
    def each(at):
        allocated = fixed + slope * at + curve * at * at + wave * (at // 7)
        return need(allocated, capacity=capacity, uncertain=uncertain, cache=allocated * share // 100)

    looked = []

    def measure(at):
        looked.append(at)
        return each(at)

    found = search(measure, limit=limit)

    answers = {at: each(at).answer for at in range(1, limit + 1)}
    served = max((at for at, answer in answers.items() if answer in (Answer.YES, Answer.TIGHT)), default=None)
    close = [at for at, answer in answers.items() if answer is Answer.CLOSE]
    assert found.fits == max((at for at, answer in answers.items() if answer is Answer.YES), default=None)
    assert found.tight == (served if served != found.fits else None)
    assert found.fails == min((at for at, answer in answers.items() if answer is Answer.NO), default=None)
    assert found.close == ((close[0], close[-1]) if close else None)
    assert found.limit == (limit if found.fails is None else None)
    assert len(looked) == len(set(looked)) <= 80
    assert list(found.needs) == sorted(looked)


def test_a_line_is_followed_to_its_border_at_once():
    # given what a sample costs in a real run: 0.45 GB and 0.57 GB a sample, a card of 14.8 GB
    found = search(lambda at: need(450_000_000 + 570_000_000 * at, capacity=14_829_219_584), limit=1 << 20)

    assert (found.fits, found.fails) == (25, 26)
    assert len(found.needs) <= 5


def test_steps_do_not_lead_astray():
    # given memory that is the same for 1,000 sizes and then much more
    found = search(lambda at: need(10**6 if at < 1000 else 10**12, capacity=10**9), limit=1 << 20)

    assert (found.fits, found.fails) == (999, 1000)
    assert len(found.needs) < 40


def test_answers_that_are_not_in_order_are_never_taken_for_sure():
    # given sizes from 40 to 60 of which every third fails, by luck
    def measure(at):
        return need(10**7 * at if at < 40 or at % 3 else 10**12, capacity=600_000_000)

    found = search(measure, limit=1000)

    served = [at for at, each in found.needs.items() if each.answer is not Answer.NO]
    wrong = [at for at, each in found.needs.items() if each.answer is Answer.NO]
    assert found.fits < min(wrong)
    assert found.fails > max(served)
    assert found.close is None or found.close == (found.fits + 1, found.fails - 1)


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
    ("capacity", "uncertain", "answer"),
    [
        (300, 0, Answer.YES),
        (300, 60, Answer.YES),
        (300, 61, Answer.TIGHT),
        (239, 0, Answer.TIGHT),
        (100, 0, Answer.TIGHT),
        (100, 1, Answer.CLOSE),
        (99, 0, Answer.NO),
        (99, 1, Answer.CLOSE),
        (50, 49, Answer.NO),
    ],
)
def test_cache_that_can_be_given_back_makes_it_tight(capacity, uncertain, answer):
    found = need_of(run_of(GROWING), Settings(), capacity=capacity * MIB, uncertain=uncertain * MIB)

    assert found.answer is answer
    assert found.expected is (capacity >= 100)
    assert (found.allocated, found.reserved) == (100 * MIB, 240 * MIB)
    assert (found.margin, found.room) == ((capacity - 240) * MIB, (capacity + uncertain - 100) * MIB)


def test_the_answer_is_what_a_run_on_such_a_card_meets():
    # given fragments: 38 of each 40 MiB are free, but no segment can be given back
    pinned = [*[(40 * MIB, True), (2 * MIB, False), (38 * MIB, True)] * 3, (50 * MIB, False)]
    seen = set()
    for capacity in range(40, 240, 7):
        try:
            run_of(pinned, capacity * MIB)
            fits = True
        except OutOfMemory:
            fits = False
        found = need_of(run_of(pinned), Settings(), capacity=capacity * MIB, uncertain=0)
        assert (found.answer in (Answer.YES, Answer.TIGHT)) == fits == found.expected
        seen.add(fits)
    assert seen == {True, False}
