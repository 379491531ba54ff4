from __future__ import annotations

from memprof.capture.matching import first_entry_after, match_entries, with_unreported
from memprof.capture.timeline import MemoryEvent


def history(*steps):
    return [{"action": action, "addr": address, "size": size, "time_us": 0} for action, address, size in steps]


def profile(*steps):
    return [
        MemoryEvent(at=10 * (number + 1), time_ns=0, address=address, size=size, op=-1)
        for number, (address, size) in enumerate(steps)
    ]


def test_every_event_finds_its_entry_though_the_history_has_more_kinds():
    # given
    entries = history(
        ("segment_alloc", 0, 2048), ("alloc", 1, 500), ("free_requested", 1, 500), ("free_completed", 1, 500),
        ("alloc", 1, 300), ("alloc", 2, 10),
    )  # fmt: skip
    memory = profile((1, 512), (1, -512), (1, 512), (2, 512))

    # then
    assert match_entries(entries, memory) == [1, 2, 4, 5]


def test_a_history_that_lost_its_oldest_entries():
    # given the first life of address 1 is gone
    entries = history(("free_requested", 1, 500), ("alloc", 1, 300))
    memory = profile((1, 512), (1, -512), (1, 512))
    assert match_entries(entries, memory) == [-1, 0, 1]


def test_threads_may_report_in_another_order_than_the_allocator():
    # given two addresses whose events are interleaved differently
    entries = history(("alloc", 1, 4), ("alloc", 2, 8), ("free_requested", 1, 4))
    memory = profile((2, 512), (1, 512), (1, -512))
    assert match_entries(entries, memory) == [1, 0, 2]


def test_what_the_history_has_not_stays_without_entry():
    entries = history(("alloc", 1, 4))
    memory = profile((7, 512), (1, 512))
    assert match_entries(entries, memory) == [-1, 0]


def test_a_free_that_only_the_history_has_disturbs_nothing_before_it():
    # given address 1 freed by a thread that the profiler does not follow
    entries = history(
        ("alloc", 1, 500), ("free_requested", 1, 500), ("alloc", 1, 300), ("free_requested", 1, 300), ("alloc", 1, 100)
    )
    memory = profile((1, 512), (1, -512), (1, 512), (1, 512))
    assert match_entries(entries, memory) == [0, 1, 2, 4]


def test_what_was_freed_unseen_is_freed_right_after_what_happened_before_it():
    # given address 1 freed unseen between two allocations elsewhere, and address 3 at the end
    entries = history(
        ("alloc", 1, 500), ("alloc", 2, 500), ("free_requested", 1, 500), ("alloc", 3, 100), ("free_requested", 3, 100)
    )
    memory = profile((1, 512), (2, 512), (3, 512))
    rows = match_entries(entries, memory)

    # then
    found, found_rows = with_unreported(entries, memory, rows)
    assert [(int(event.at), event.address, event.size, event.implied) for event in found] == [
        (10, 1, 512, False), (20, 2, 512, False), (20, 1, -512, True), (30, 3, 512, False), (30, 3, -512, True),
    ]  # fmt: skip
    assert found_rows == [0, 1, 2, 3, 4]


def test_what_another_thread_allocated_stands_where_the_history_has_it():
    # given address 7 allocated and freed by a thread that the profiler does not follow, before anything and in between
    entries = history(
        ("alloc", 7, 100), ("alloc", 1, 500), ("free_requested", 7, 100), ("alloc", 7, 300), ("free_requested", 1, 500)
    )
    memory = profile((1, 512), (1, -512))
    rows = match_entries(entries, memory)

    # then it has ranks of its own between those of the profiler
    found, found_rows = with_unreported(entries, memory, rows)
    assert found_rows == [0, 1, 2, 3, 4]
    assert [(event.address, event.size, event.implied) for event in found] == [
        (7, 100, True), (1, 512, False), (7, -100, True), (7, 300, True), (1, -512, False),
    ]  # fmt: skip
    assert len({event.at for event in found}) == 5


def test_a_larger_request_than_the_block_is_no_match():
    assert match_entries(history(("alloc", 1, 4096)), profile((1, 512))) == [-1]


def test_a_moment_lies_before_the_segment_that_the_next_allocation_fetched():
    # given a mark of rank 15, between the first and the second allocation
    entries = history(("alloc", 1, 4), ("segment_alloc", 0, 2048), ("alloc", 2, 8))
    memory = profile((1, 512), (2, 512))
    rows = match_entries(entries, memory)

    # then
    assert first_entry_after(5, entries, memory, rows) == 0
    assert first_entry_after(15, entries, memory, rows) == 1
    assert first_entry_after(25, entries, memory, rows) == 3
