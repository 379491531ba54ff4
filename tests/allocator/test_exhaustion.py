"""What the simulated allocator does, and in which order, when memory is short or streams share it."""

from __future__ import annotations

import pytest
from allocator_driving import KIB, MIB

from memprof.allocator.counters import OutOfMemory
from memprof.allocator.driver import AddressOrder, Driver
from memprof.allocator.simulation import CachingAllocator
from memprof.trace.model import Action, Settings


def actions(allocator: CachingAllocator, start: int = 0) -> list[tuple[str, int]]:
    trace = allocator.trace
    return [
        (Action(action).name.lower(), size // MIB)
        for action, size in zip(trace.action[start:], trace.size[start:], strict=True)
    ]


def test_all_cached_segments_are_freed_before_a_request_fails():
    # given 100 MiB of memory: two cached segments and one that is half used
    allocator = CachingAllocator(Settings(), Driver(100 * MIB, total=120 * MIB))
    cached = [allocator.malloc(20 * MIB), allocator.malloc(30 * MIB)]
    allocator.malloc(10 * MIB - 512)
    for address in cached:
        allocator.free(address)
    start = len(allocator.trace)

    # when more is asked for than can be freed
    with pytest.raises(OutOfMemory) as caught:
        allocator.malloc(81 * MIB)

    # then cached segments go back in order of size, and the trace ends with the failure
    assert actions(allocator, start) == [("segment_free", 20), ("segment_free", 30), ("oom", 81)]
    error = caught.value
    assert (error.requested, error.segment_bytes, error.free, error.total) == (81 * MIB, 82 * MIB, 80 * MIB, 120 * MIB)
    assert (error.allocated, error.reserved, error.allowed) == (10 * MIB - 512, 20 * MIB, None)
    assert allocator.trace.address[-1] == 80 * MIB
    counters = allocator.counters
    assert (counters.num_alloc_retries, counters.num_ooms, counters.num_sync_all_streams) == (1, 1, 1)


def test_a_request_that_fits_after_freeing_the_cache_is_served():
    allocator = CachingAllocator(Settings(), Driver(100 * MIB))
    allocator.free(allocator.malloc(60 * MIB))
    start = len(allocator.trace)

    allocator.malloc(80 * MIB)

    assert actions(allocator, start) == [("segment_free", 60), ("segment_alloc", 80), ("alloc", 80)]
    assert allocator.counters.num_alloc_retries == 1


def test_only_oversize_blocks_that_are_needed_are_freed_first():
    # given cached blocks of 30, 40 and 50 MiB, 20 MiB in use, and no memory left
    settings = Settings(max_split_size=25 * MIB)
    allocator = CachingAllocator(settings, Driver(140 * MIB))
    cached = [allocator.malloc(size * MIB) for size in (30, 40, 50)]
    allocator.malloc(20 * MIB)
    for address in cached:
        allocator.free(address)
    start = len(allocator.trace)

    # when 80 MiB are asked for: no single block has as much, so the largest go first, until it is enough
    allocator.malloc(80 * MIB)

    assert actions(allocator, start) == [
        ("segment_free", 50),
        ("segment_free", 40),
        ("segment_alloc", 80),
        ("alloc", 80),
    ]
    assert allocator.counters.num_sync_all_streams == 0


def test_blocks_of_the_limit_itself_are_freed_too_until_it_is_enough():
    allocator = CachingAllocator(Settings(max_split_size=30 * MIB), Driver(75 * MIB))
    for address in [allocator.malloc(size * MIB) for size in (30, 40)]:
        allocator.free(address)
    start = len(allocator.trace)

    allocator.malloc(66 * MIB)

    assert [action for action, _ in actions(allocator, start)][:3] == ["segment_free", "segment_free", "segment_alloc"]
    assert allocator.counters.num_sync_all_streams == 0


def test_one_oversize_block_that_is_large_enough_is_freed_alone():
    settings = Settings(max_split_size=25 * MIB)
    allocator = CachingAllocator(settings, Driver(180 * MIB))
    cached = [allocator.malloc(size * MIB) for size in (60, 100)]
    for address in cached:
        allocator.free(address)
    start = len(allocator.trace)

    # 30 MiB: the cached blocks are 20 MiB and more too large to be used whole
    allocator.malloc(30 * MIB)

    assert actions(allocator, start) == [("segment_free", 60), ("segment_alloc", 30), ("alloc", 30)]


def test_a_block_of_the_limit_itself_is_oversize():
    # given a cached block of exactly max_split_size
    settings = Settings(max_split_size=30 * MIB)
    allocator = CachingAllocator(settings, Driver(60 * MIB))
    allocator.free(allocator.malloc(30 * MIB))
    start = len(allocator.trace)

    # then a smaller request does not get it, and it is freed first when memory is short
    allocator.malloc(20 * MIB)
    allocator.malloc(24 * MIB)

    assert actions(allocator, start) == [
        ("segment_alloc", 20),
        ("alloc", 20),
        ("segment_free", 30),
        ("segment_alloc", 24),
        ("alloc", 24),
    ]
    assert allocator.counters.num_sync_all_streams == 0


def test_oversize_blocks_serve_requests_of_nearly_their_size_only_whole():
    allocator = CachingAllocator(Settings(max_split_size=25 * MIB))
    allocator.free(allocator.malloc(100 * MIB))

    address = allocator.malloc(81 * MIB)

    assert allocator.allocated[address].size == 100 * MIB
    assert allocator.counters.reserved_bytes == 100 * MIB
    allocator.free(address)
    allocator.malloc(80 * MIB)
    assert allocator.counters.reserved_bytes == 180 * MIB


def test_garbage_collection_frees_the_segments_that_were_not_used_for_longest():
    # given a limit of 200 MiB and a threshold of half of that
    settings = Settings(garbage_collection_threshold=0.5)
    allocator = CachingAllocator(settings, allowed=200 * MIB)
    old = allocator.malloc(40 * MIB)
    allocator.free(old)
    young = allocator.malloc(70 * MIB)
    for _ in range(8):
        allocator.free(young)
        young = allocator.malloc(70 * MIB)
    allocator.free(young)
    start = len(allocator.trace)

    # when a new segment is needed while 110 MiB are reserved
    allocator.malloc(80 * MIB)

    # then what has been idle since long goes, what was used just now stays
    assert actions(allocator, start) == [("segment_free", 40), ("segment_alloc", 80), ("alloc", 80)]


def test_garbage_collection_frees_a_single_idle_segment():
    allocator = CachingAllocator(Settings(garbage_collection_threshold=0.1), allowed=200 * MIB)
    allocator.free(allocator.malloc(40 * MIB))

    allocator.malloc(80 * MIB)

    assert ("segment_free", 40) in actions(allocator)


def test_the_large_pool_is_emptied_before_the_small_one():
    allocator = CachingAllocator(Settings())
    for size in (KIB, 20 * MIB):
        allocator.free(allocator.malloc(size))

    allocator.empty_cache()

    assert actions(allocator)[-2:] == [("segment_free", 20), ("segment_free", 2)]


def test_garbage_collection_needs_a_limit():
    allocator = CachingAllocator(Settings(garbage_collection_threshold=0.01), Driver(1000 * MIB))
    allocator.free(allocator.malloc(40 * MIB))

    allocator.malloc(80 * MIB)

    assert ("segment_free", 40) not in actions(allocator)


def test_the_process_limit_counts_before_the_device_is_asked():
    allocator = CachingAllocator(Settings(), Driver(1000 * MIB), allowed=50 * MIB)
    allocator.malloc(30 * MIB)

    with pytest.raises(OutOfMemory) as caught:
        allocator.malloc(30 * MIB)

    assert (caught.value.allowed, caught.value.free) == (50 * MIB, 970 * MIB)


def test_a_block_waits_for_the_other_stream_and_is_not_reused_before():
    allocator = CachingAllocator(Settings())
    first = allocator.malloc(20 * MIB)
    allocator.record_stream(first, 7)
    allocator.free(first)

    # it is not allocated any more, but its memory is not free
    second = allocator.malloc(20 * MIB)
    assert second != first
    assert allocator.counters.allocated_bytes == 20 * MIB
    assert allocator.counters.active_bytes == 40 * MIB

    # until the other stream is done
    allocator.synchronize(7)
    assert allocator.malloc(20 * MIB) == first


def test_streams_do_not_share_free_blocks():
    allocator = CachingAllocator(Settings())
    allocator.free(allocator.malloc(20 * MIB, stream=1))

    allocator.malloc(20 * MIB, stream=2)

    assert allocator.counters.reserved_bytes == 40 * MIB


def test_best_fit_takes_the_smallest_block_then_the_lowest_address():
    allocator = CachingAllocator(Settings(), Driver(order=AddressOrder.UP))
    blocks = [allocator.malloc(size * MIB) for size in (40, 20, 20, 30)]
    for address in blocks:
        allocator.free(address)

    assert allocator.malloc(20 * MIB) == blocks[1]
    assert allocator.malloc(20 * MIB) == blocks[2]
    assert allocator.malloc(20 * MIB) == blocks[3]


def test_a_private_pool_keeps_its_segments_until_it_is_dropped():
    # given a block that was allocated and freed during a graph capture
    allocator = CachingAllocator(Settings())
    allocator.begin_pool((1, 0))
    allocator.free(allocator.malloc(20 * MIB))
    allocator.end_pool((1, 0))

    # then nobody else gets it, and emptying the cache does not free it
    allocator.malloc(20 * MIB)
    allocator.empty_cache()
    assert allocator.counters.reserved_bytes == 40 * MIB
    assert set(allocator.trace.pool) == {(1, 0), (0, 0)}

    # until the graph is gone
    allocator.release_pool((1, 0))
    allocator.empty_cache()
    assert allocator.counters.reserved_bytes == 20 * MIB


def test_frees_of_other_streams_wait_until_a_capture_is_over():
    allocator = CachingAllocator(Settings())
    address = allocator.malloc(20 * MIB)
    allocator.record_stream(address, 3)
    allocator.begin_pool((1, 0), frozenset({5}))
    allocator.free(address)
    allocator.synchronize()
    allocator.malloc(KIB, stream=0)
    assert actions(allocator)[-1][0] == "alloc"
    assert allocator.counters.active_bytes == 20 * MIB + KIB

    allocator.end_pool((1, 0))
    allocator.process_events()
    allocator.synchronize()
    allocator.process_events()

    assert actions(allocator)[-1] == ("free_completed", 20)


def test_streams_recorded_only_during_a_capture_are_not_waited_for():
    allocator = CachingAllocator(Settings())
    address = allocator.malloc(20 * MIB)
    allocator.begin_pool((1, 0), frozenset({5}))
    allocator.record_stream(address, 3)
    allocator.free(address)
    allocator.end_pool((1, 0))

    allocator.process_events()

    assert actions(allocator)[-1] == ("free_completed", 20)


def test_expandable_segments_grow_in_pages_and_give_back_whole_ones():
    # given expandable segments: pages of 20 MiB in the large pool
    allocator = CachingAllocator(Settings(expandable_segments=True), Driver(total=1 << 30))
    first = allocator.malloc(15 * MIB)
    second = allocator.malloc(30 * MIB)
    assert second == first + 15 * MIB
    assert actions(allocator) == [("segment_map", 20), ("alloc", 15), ("segment_map", 40), ("alloc", 30)]

    # when the first is freed and the cache emptied: no whole page is free within it, but one at the end of the second
    allocator.free(second)
    allocator.empty_cache()

    assert actions(allocator)[-1] == ("segment_unmap", 40)
    assert allocator.counters.reserved_bytes == 20 * MIB
    allocator.free(first)
    allocator.empty_cache()
    assert allocator.counters.reserved_bytes == 0
    assert allocator.segments() == []


def test_an_expandable_segment_grows_from_the_free_block_at_its_end():
    # given 5 MiB free at the end of a page
    allocator = CachingAllocator(Settings(expandable_segments=True), Driver(total=1 << 30))
    first = allocator.malloc(15 * MIB)

    # when 25 MiB are asked for: one more page is enough
    assert allocator.malloc(25 * MIB) == first + 15 * MIB

    assert actions(allocator)[2:] == [("segment_map", 20), ("alloc", 25)]


def test_of_two_equal_holes_in_an_expandable_segment_the_lower_is_taken():
    allocator = CachingAllocator(Settings(expandable_segments=True), Driver(total=1 << 30))
    blocks = [allocator.malloc(4 * MIB) for _ in range(4)]
    allocator.free(blocks[2])
    allocator.free(blocks[0])

    assert allocator.malloc(4 * MIB) == blocks[0]


def test_peaks_can_begin_anew():
    allocator = CachingAllocator(Settings())
    allocator.free(allocator.malloc(20 * MIB))

    allocator.counters.reset_peaks()

    assert allocator.counters.allocated_peak == 0
    assert allocator.counters.reserved_peak == 20 * MIB
