"""Replay of small traces written by hand: what is missing, what disagrees, and what is said of it."""

from __future__ import annotations

import time

import numpy as np
import pytest
from allocator_driving import KIB, MIB, PLAIN, columns_of
from hypothesis import given, settings
from hypothesis import strategies as st

from memprof.allocator.heap import final_differences, heap_at
from memprof.allocator.replay import replay
from memprof.errors import InputError
from memprof.trace.model import Action, Blocks, BlockState, DeviceTrace, Events, Segments, Settings, Source

A, F, C = Action.ALLOC, Action.FREE_REQUESTED, Action.FREE_COMPLETED
SEGMENT = 0x7F00_0000_0000


def column(values, dtype=np.int64):
    return np.array(values, dtype=dtype)


def trace_of(events=(), segments=(), blocks=()) -> DeviceTrace:
    """Build a device from (action, address, size), (address, size[, expandable]) and (address, size, state) rows."""
    events, blocks = list(events), list(blocks)
    segments = [(*segment, False)[:3] for segment in segments]
    count = len(events)
    starts = [address for address, _, _ in segments]
    return DeviceTrace(
        device=0,
        events=Events(
            action=column([row[0] for row in events], np.uint8),
            address=column([row[1] for row in events]),
            size=column([row[2] for row in events]),
            stream=column([0] * count),
            time_us=column([0] * count),
            stack=column(range(count), np.int32),
            metadata=column([-1] * count, np.int32),
        ),
        segments=Segments(
            address=column(starts),
            total_size=column([size for _, size, _ in segments]),
            stream=column([0] * len(segments)),
            large=column([size > 2 * MIB for _, size, _ in segments], np.bool_),
            pool=column([0] * len(segments), np.int32),
            expandable=column([expandable for _, _, expandable in segments], np.bool_),
        ),
        blocks=Blocks(
            segment=column([np.searchsorted(starts, row[0], side="right") - 1 for row in blocks], np.int32),
            address=column([row[0] for row in blocks]),
            size=column([row[1] for row in blocks]),
            requested=column([row[1] for row in blocks]),
            state=column([row[2] for row in blocks], np.uint8),
            stack=column([100 + number for number in range(len(blocks))], np.int32),
        ),
    )


def replayed(device: DeviceTrace, settings: Settings | None = None, source: Source = Source.UNKNOWN):
    return replay(device, settings or Settings(), source)


NO_BLOCKS = trace_of().blocks
FREE, USED, PENDING = BlockState.INACTIVE, BlockState.ALLOCATED, BlockState.PENDING_FREE


def test_a_state_without_events_is_one_row():
    device = trace_of(
        segments=[(SEGMENT, 20 * MIB)],
        blocks=[(SEGMENT, 6 * MIB, USED), (SEGMENT + 6 * MIB, 4 * MIB, PENDING), (SEGMENT + 10 * MIB, 10 * MIB, FREE)],
    )

    result = replayed(device)

    assert [result.allocated.tolist(), result.pending.tolist()] == [[6 * MIB], [4 * MIB]]
    assert result.reserved.tolist() == [20 * MIB]
    assert result.peak_event == -1
    assert result.allocations.live_at(-1).tolist() == [0]
    assert result.allocations.stack.tolist() == [100, 101]
    assert result.notes == ()


def test_a_device_with_nothing_is_nothing():
    result = replayed(trace_of())

    assert [result.allocated.tolist(), result.reserved.tolist(), len(result.allocations)] == [[0], [0], 0]


def test_a_remainder_of_one_mebibyte_stays_in_the_block_and_counts():
    # given a 20 MiB segment: 4 MiB, then 15 MiB of which 1 MiB would remain
    events = [
        (Action.SEGMENT_ALLOC, SEGMENT, 20 * MIB),
        (A, SEGMENT, 4 * MIB),
        (A, SEGMENT + 4 * MIB, 15 * MIB),
        (F, SEGMENT + 4 * MIB, 15 * MIB),
        (C, SEGMENT + 4 * MIB, 15 * MIB),
        (A, SEGMENT + 4 * MIB, 15 * MIB - 1),
    ]
    device = trace_of(
        events,
        [(SEGMENT, 20 * MIB)],
        [(SEGMENT, 4 * MIB, USED), (SEGMENT + 4 * MIB, 16 * MIB, USED)],
    )

    result = replayed(device)

    assert result.allocated.tolist() == [0, 0, 4 * MIB, 20 * MIB, 4 * MIB, 4 * MIB, 20 * MIB]
    assert result.requested[3] == 19 * MIB
    assert result.pending.tolist() == [0, 0, 0, 0, 16 * MIB, 0, 0]
    # with expandable segments switched on, the same allocations are cut to size
    blocks = [(SEGMENT, 4 * MIB, USED), (SEGMENT + 4 * MIB, 15 * MIB, USED), (SEGMENT + 19 * MIB, MIB, FREE)]
    cut = replayed(trace_of(events[:3], [(SEGMENT, 20 * MIB)], blocks), Settings(expandable_segments=True))
    assert cut.allocated[3] == 19 * MIB


def test_memory_from_before_the_first_event_is_in_the_first_row():
    # given a block that is freed without an alloc, its neighbour that is never seen, and one that is allocated later
    device = trace_of(
        [(F, SEGMENT, 4 * MIB), (C, SEGMENT, 4 * MIB), (A, SEGMENT, 3 * MIB)],
        [(SEGMENT, 20 * MIB)],
        [
            (SEGMENT, 3 * MIB, USED),
            (SEGMENT + 3 * MIB, 2 * MIB, FREE),
            (SEGMENT + 5 * MIB, 15 * MIB, USED),
        ],
    )

    result = replayed(device)

    # then the first held the 1 MiB up to its neighbour, too: it could not be split off
    assert result.allocated.tolist() == [20 * MIB, 15 * MIB, 15 * MIB, 18 * MIB]
    assert result.allocations.born.tolist() == [-1, -1, 2]
    assert result.allocations.stack.tolist() == [-1, 102, 2]
    (note,) = result.notes
    assert note.startswith("2 allocations (20,971,520 bytes) were there before the first event")
    assert final_differences(device, result) == ()


def test_what_begins_behind_a_base_block_while_it_lives_tells_its_size():
    # given a block of 4 MiB from before, with nothing behind it, and an allocation that begins 5 MiB after it began
    device = trace_of(
        [(A, SEGMENT + 5 * MIB, 4 * MIB), (F, SEGMENT, 4 * MIB), (C, SEGMENT, 4 * MIB)],
        [(SEGMENT, 20 * MIB)],
        [(SEGMENT, 5 * MIB, FREE), (SEGMENT + 5 * MIB, 4 * MIB, USED), (SEGMENT + 9 * MIB, 11 * MIB, FREE)],
    )

    assert replayed(device).allocated.tolist() == [5 * MIB, 9 * MIB, 4 * MIB, 4 * MIB]


def test_rows_are_in_order_of_birth_and_base_ones_of_address():
    device = trace_of(
        [(F, SEGMENT + KIB, KIB), (C, SEGMENT + KIB, KIB), (A, SEGMENT + 3 * KIB, KIB), (A, SEGMENT + KIB, KIB)],
        [(SEGMENT, 2 * MIB)],
        [(SEGMENT + number * KIB, KIB, USED) for number in range(4)] + [(SEGMENT + 4 * KIB, 2 * MIB - 4 * KIB, FREE)],
    )

    rows = replayed(device).allocations

    assert ((rows.address - SEGMENT) // KIB).tolist() == [0, 1, 2, 3, 1]
    assert rows.born.tolist() == [-1, -1, -1, 2, 3]


def test_a_block_whose_free_request_is_lost_waits_from_the_start():
    device = trace_of(
        [(C, SEGMENT, 512), (F, SEGMENT + 512, 512), (C, SEGMENT + 512, 512)],
        [(SEGMENT, 2 * MIB)],
        [(SEGMENT, 2 * MIB, FREE)],
    )

    result = replayed(device)

    assert result.allocated.tolist() == [512, 512, 0, 0]
    assert result.pending.tolist() == [512, 0, 512, 0]


def test_a_block_that_still_waits_at_the_end_has_its_stack_and_is_not_returned():
    # given one from before that was freed but waits, at an address whose last user waits, in a file without any
    # free_completed
    events = [(A, SEGMENT + 512, 512), (F, SEGMENT + 512, 512), (A, SEGMENT + 512, 500), (F, SEGMENT + 512, 500)]
    device = trace_of(
        [*events, (F, SEGMENT, 512)],
        [(SEGMENT, 2 * MIB)],
        [(SEGMENT, 512, PENDING), (SEGMENT + 512, 512, PENDING), (SEGMENT + 1024, 2 * MIB - 1024, FREE)],
    )

    result = replayed(device)

    assert result.allocated.tolist() == [512, 1024, 512, 1024, 512, 0]
    assert result.pending.tolist() == [0, 0, 0, 0, 512, 1024]
    assert result.allocations.released.tolist() == [5, 1, 5]
    assert result.allocations.stack.tolist() == [100, 0, 2]


def test_segments_without_an_entry_are_there_all_the_time_and_others_while_they_live():
    other = SEGMENT + 64 * MIB
    device = trace_of(
        [
            (Action.SEGMENT_FREE, other, 30 * MIB),
            (Action.SEGMENT_ALLOC, other, 40 * MIB),
            (Action.SEGMENT_FREE, other, 40 * MIB),
            (Action.SNAPSHOT, 0, 0),
        ],
        [(SEGMENT, 20 * MIB)],
        [(SEGMENT, 20 * MIB, FREE)],
    )

    result = replayed(device)

    assert result.reserved.tolist() == [50 * MIB, 20 * MIB, 60 * MIB, 20 * MIB, 20 * MIB]


def test_mapped_pages_from_before_are_what_the_trace_does_not_explain():
    page = 20 * MIB
    device = trace_of(
        [(Action.SEGMENT_MAP, SEGMENT + page, page), (Action.SEGMENT_UNMAP, SEGMENT, page)],
        [(SEGMENT + page, 2 * page, True)],
        [(SEGMENT + page, 2 * page, FREE)],
    )

    result = replayed(device)

    assert result.reserved.tolist() == [2 * page, 3 * page, 2 * page]
    before = heap_at(device, result, -1)
    assert list(zip(before.segment_address, before.segment_size, strict=True)) == [
        (SEGMENT, page),
        (SEGMENT + 2 * page, page),
    ]


def test_more_mapped_pages_than_there_are_at_the_end_are_told():
    page = 20 * MIB
    device = trace_of(
        [(Action.SEGMENT_MAP, SEGMENT, page), (Action.SEGMENT_MAP, SEGMENT + page, page), (Action.SNAPSHOT, 0, 0)],
        [(SEGMENT, page, True)],
        [(SEGMENT, page, FREE)],
    )

    result = replayed(device)

    assert result.reserved.tolist() == [0, page, 2 * page, page]
    assert result.notes[0].startswith("the trace maps 20,971,520 bytes of expandable segments more than")


def test_a_segment_that_lies_where_another_was_came_with_the_last_event():
    device = trace_of(
        [(Action.SEGMENT_FREE, SEGMENT, 40 * MIB), (Action.SNAPSHOT, 0, 0)],
        [(SEGMENT + 2 * MIB, 20 * MIB)],
        [(SEGMENT + 2 * MIB, 20 * MIB, FREE)],
    )

    result = replayed(device)

    assert result.reserved.tolist() == [40 * MIB, 0, 20 * MIB]
    assert result.notes[0].startswith("1 segments of the file lie where the trace had freed others")


def test_what_the_segments_do_not_have_at_the_end_is_gone_with_the_last_event():
    # given two live allocations of which the file's segments have none, and a segment that they do not have either
    other = SEGMENT + 64 * MIB
    device = trace_of(
        [
            (Action.SEGMENT_ALLOC, SEGMENT, 2 * MIB),
            (Action.SEGMENT_ALLOC, other, 2 * MIB),
            (A, SEGMENT, 1 * KIB),
            (A, other, 2 * KIB),
            (Action.SNAPSHOT, 0, 0),
        ],
        [(SEGMENT, 2 * MIB)],
        [(SEGMENT, 2 * MIB, FREE)],
    )

    result = replayed(device)

    assert result.allocated.tolist() == [0, 0, 0, 1 * KIB, 3 * KIB, 0]
    assert result.reserved.tolist() == [0, 2 * MIB, 4 * MIB, 4 * MIB, 4 * MIB, 2 * MIB]
    allocations, segments = result.notes
    assert allocations.startswith(
        "2 allocations (3,072 requested bytes) live by the trace are not in the file's segments"
    )
    assert segments.startswith("1 segments (2,097,152 bytes) live by the trace are not in the file's segments")
    assert final_differences(device, result) == ()


def test_what_only_the_segments_have_came_with_the_last_event_if_its_place_was_taken():
    device = trace_of(
        [(A, SEGMENT, 4 * KIB), (F, SEGMENT, 4 * KIB), (C, SEGMENT, 4 * KIB), (Action.SNAPSHOT, 0, 0)],
        [(SEGMENT, 2 * MIB)],
        [(SEGMENT, 1 * KIB, USED), (SEGMENT + KIB, 2 * MIB - KIB, FREE)],
    )

    result = replayed(device)

    assert result.allocated.tolist() == [0, 4 * KIB, 0, 0, 1 * KIB]
    (note,) = result.notes
    assert note.startswith("1 blocks (1,024 bytes) of the file's segments lie where the trace has other memory")
    assert final_differences(device, result) == ()


def test_without_segments_the_trace_is_believed():
    result = replayed(trace_of([(A, SEGMENT, 1000), (A, SEGMENT + KIB, 3 * MIB)]))

    assert result.allocated.tolist() == [0, 1 * KIB, 3 * MIB + KIB]
    assert (result.reserved >= result.allocated).all()
    assert any("has no segments" in note for note in result.notes)
    assert any("segment entries are missing" in note for note in result.notes)


def test_frees_of_nothing_and_allocations_over_live_ones_are_told():
    device = trace_of(
        [
            (A, SEGMENT, 512),
            (F, SEGMENT, 512),
            (C, SEGMENT, 512),
            (F, SEGMENT, 512),
            (A, SEGMENT, 512),
            (A, SEGMENT, 512),
        ],
        [(SEGMENT, 2 * MIB)],
        [(SEGMENT, 512, USED), (SEGMENT + 512, 2 * MIB - 512, FREE)],
    )

    result = replayed(device)

    assert result.allocated.tolist() == [0, 512, 0, 0, 0, 512, 512]
    assert any(note.startswith("1 free entries of the trace free what is not allocated") for note in result.notes)
    assert any(note.startswith("1 allocations were never freed in the trace") for note in result.notes)


def test_block_sizes_that_the_rules_do_not_give_are_the_segments_and_told():
    device = trace_of(
        [(A, SEGMENT, 512)],
        [(SEGMENT, 2 * MIB)],
        [(SEGMENT, 2 * KIB, USED), (SEGMENT + 2 * KIB, 2 * MIB - 2 * KIB, FREE)],
    )

    result = replayed(device)

    assert result.allocated.tolist() == [0, 2 * KIB]
    assert result.notes[-1].startswith("1 blocks have another size in the file's segments")


def test_a_cpu_recording_has_no_blocks_and_no_reserved_bytes():
    # given memory events of the CPU: sizes are what they are
    device = trace_of(
        [(A, 1000, 100), (A, 5000, 3 * MIB), (F, 1000, 100), (C, 1000, 100)],
        [(5000, 3 * MIB)],
        [(5000, 3 * MIB, USED)],
    )

    result = replayed(device, source=Source.PROFILED)

    assert result.reserved is None
    assert result.allocated.tolist() == [0, 100, 100 + 3 * MIB, 3 * MIB, 3 * MIB]
    assert result.allocated.tolist() == result.requested.tolist()
    assert final_differences(device, result, Source.PROFILED) == ()
    assert result.notes == ()


def test_oversize_blocks_reach_up_to_what_is_next():
    # given a limit of 32 MiB for splitting: a request of 40 MiB took the whole cached block of 50 MiB
    events = [(Action.SEGMENT_ALLOC, SEGMENT, 50 * MIB), (A, SEGMENT, 50 * MIB), (F, SEGMENT, 50 * MIB)]
    events += [(C, SEGMENT, 50 * MIB), (A, SEGMENT, 40 * MIB), (F, SEGMENT, 40 * MIB), (C, SEGMENT, 40 * MIB)]
    device = trace_of(events, [(SEGMENT, 50 * MIB)], [(SEGMENT, 50 * MIB, FREE)])

    result = replayed(device, Settings(max_split_size=32 * MIB))

    assert result.allocated[5] == 50 * MIB
    assert replayed(device).allocated[5] == 40 * MIB


@pytest.mark.parametrize("part", ["events", "segments"])
def test_sizes_beyond_reason_are_refused(part):
    huge = 1 << 61
    rows = [(A, 0, huge), (A, 4096, huge)]
    blocks = [(0, huge, USED), (huge, huge, USED)]
    device = trace_of(rows) if part == "events" else trace_of(segments=[(0, huge), (huge, huge)], blocks=blocks)

    with pytest.raises(InputError, match="add up to over 4 EiB"):
        replayed(device)


def test_a_million_events_take_about_as_long_as_reading_them():
    # given a recording repeated until it has a million events; what lives at the end of a round is freed then
    once = columns_of(PLAIN)
    events = once.events
    moving = events.action <= Action.FREE_COMPLETED
    first = replay(once, Settings(), Source.UNKNOWN).allocations
    live = first.live_at(len(events) - 1)
    action = np.concatenate([events.action[moving], np.repeat([F, C], len(live)).astype(np.uint8)])
    address = np.concatenate([events.address[moving], np.tile(first.address[live], 2)])
    size = np.concatenate([events.size[moving], np.tile(first.requested[live], 2)])
    rounds = 1_000_000 // len(action)
    count = rounds * len(action)
    none = np.full(count, -1, dtype=np.int32)
    many = DeviceTrace(
        device=0,
        events=Events(
            action=np.tile(action, rounds),
            address=np.tile(address, rounds),
            size=np.tile(size, rounds),
            stream=np.zeros(count, dtype=np.int64),
            time_us=np.zeros(count, dtype=np.int64),
            stack=none,
            metadata=none,
        ),
        segments=once.segments,
        blocks=NO_BLOCKS,
    )
    begin = time.perf_counter()

    result = replayed(many)

    # then it takes well under a second on one core; the bound leaves room for a loaded machine
    assert time.perf_counter() - begin < 3
    assert count > 990_000
    peaks = result.allocated[1:].reshape(rounds, -1).max(axis=1)
    assert set(peaks.tolist()) == {9_417_176_576}


garbage = st.lists(
    st.tuples(
        st.integers(0, 9),
        st.integers(0, 40).map(lambda place: SEGMENT + place * MIB // 2),
        st.one_of(st.integers(0, 4 * KIB), st.integers(0, 12 * MIB)),
    ),
    max_size=40,
)
layouts = st.lists(
    st.tuples(st.integers(1, 8), st.lists(st.tuples(st.integers(1, 8), st.integers(0, 2)), min_size=1, max_size=5)),
    max_size=4,
)


@settings(max_examples=150, deadline=None)
@given(garbage, layouts, st.booleans(), st.sampled_from([Source.UNKNOWN, Source.PROFILED]))
def test_any_trace_at_all_ends_in_the_segments_and_is_never_negative(events, layout, expandable, source):
    # given entries without any sense, and segments that have nothing to do with them
    segments, blocks, address = [], [], SEGMENT
    for gap, parts in layout:
        address += gap * MIB
        segments.append((address, sum(size for size, _ in parts) * MIB, expandable))
        for size, state in parts:
            blocks.append((address, size * MIB, state))
            address += size * MIB
    device = trace_of(events, segments, blocks)

    result = replayed(device, source=source)

    columns = [result.allocated, result.requested, result.pending]
    assert all((column >= 0).all() for column in columns)
    if segments or not events:
        assert result.allocated[-1] == sum(size for _, size, state in blocks if state == USED)
        assert result.pending[-1] == sum(size for _, size, state in blocks if state == PENDING)
        if source is Source.UNKNOWN:
            assert result.reserved[-1] == sum(size for _, size, _ in segments)
            # neighbours that are both free are one block in a real heap, and in the replay's
            lone = all(
                (parts[at][1], parts[at + 1][1]) != (0, 0) for _, parts in layout for at in range(len(parts) - 1)
            )
            assert not lone or final_differences(device, result) == ()

    if result.reserved is not None:
        assert (result.allocated + result.pending <= result.reserved).all()
    rows = result.allocations
    assert (rows.born <= rows.freed).all()
    assert (rows.freed <= rows.released).all()
    assert (rows.released <= len(device.events)).all()
    assert (np.diff(rows.born) >= 0).all()
