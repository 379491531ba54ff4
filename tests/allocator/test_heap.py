from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from allocator_driving import MIB, PLAIN, columns_of
from hypothesis import given
from hypothesis import strategies as st

from memprof.allocator.heap import Heap, MappedRanges, final_differences, final_heap
from memprof.allocator.invariant import broken_rules
from memprof.allocator.replay import replay
from memprof.trace.model import BlockState, Settings, Source


def heap_of(segments, blocks) -> Heap:
    """Build a heap from (address, size) and (segment, address, size, state) rows."""
    segments, blocks = np.array(segments).reshape(-1, 2), np.array(blocks).reshape(-1, 4)
    return Heap(
        segment_address=segments[:, 0],
        segment_size=segments[:, 1],
        segment=blocks[:, 0],
        address=blocks[:, 1],
        size=blocks[:, 2],
        state=blocks[:, 3].astype(np.uint8),
    )


SOUND = [(0, 0, 512, 1), (0, 512, 1536, 0), (1, 2048, 1024, 0), (1, 3072, 1024, 2)]
SEGMENTS = [(0, 2048), (2048, 2048)]


def test_a_sound_heap_breaks_no_rule():
    heap = heap_of(SEGMENTS, SOUND)

    assert broken_rules(heap, allocated=512, pending=1024, reserved=4096) == ()
    assert heap.bytes_of(BlockState.INACTIVE) == 2560


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({0: (0, 0, 512, 0)}, "free blocks have a free neighbour"),
        ({1: (0, 1024, 1024, 0)}, "do not end where the next begins"),
        ({1: (0, 512, 1024, 0)}, "does not end with a block"),
        ({0: (0, 256, 256, 1)}, "does not begin with a block"),
        ({3: (-1, 9000, 1024, 2)}, "lie outside of all segments"),
        ({2: (0, 2048, 1024, 1), 3: (0, 3072, 1024, 2)}, "not every segment has blocks"),
        ({0: (0, 0, 0, 1)}, "have no bytes"),
    ],
)
def test_each_broken_rule_is_found(changed, said):
    blocks = [changed.get(row, block) for row, block in enumerate(SOUND)]

    assert any(said in rule for rule in broken_rules(heap_of(SEGMENTS, blocks)))


@pytest.mark.parametrize(("what", "value"), [("allocated", 513), ("pending", 0), ("reserved", 4095)])
def test_totals_that_are_not_those_of_the_blocks_are_found(what, value):
    (broken,) = broken_rules(heap_of(SEGMENTS, SOUND), **{what: value})

    assert broken.startswith(f"{what} is said to be {value} bytes")


def test_differences_at_the_end_name_an_example():
    # given a recording whose file has lost the remainder of one block
    device = columns_of(PLAIN)
    result = replay(device, Settings(), Source.UNKNOWN)
    used = int(np.flatnonzero(device.blocks.state == BlockState.ALLOCATED)[3])
    size = device.blocks.size.copy()
    size[used] -= 512

    differences = final_differences(replace(device, blocks=replace(device.blocks, size=size)), result)

    address = int(device.blocks.address[used])
    assert len(differences) == 2
    assert (
        f"1 blocks are only in the replay, such as segment {device.blocks.segment[used]}, address {address}"
        in differences[0]
    )
    assert final_heap(device).bytes_of(BlockState.ALLOCATED) == result.allocated[-1]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 30), st.integers(1, 12)), max_size=30))
def test_mapped_ranges_are_those_of_a_set_of_pages(changes):
    ranges, pages = MappedRanges(), set()

    for added, begin, length in changes:
        (ranges.add if added else ranges.remove)(begin * MIB, (begin + length) * MIB)
        touched = set(range(begin, begin + length))
        pages = pages | touched if added else pages - touched

    covered = [
        page for low, high in zip(ranges.begins, ranges.ends, strict=True) for page in range(low // MIB, high // MIB)
    ]
    assert covered == sorted(pages)
    gaps = zip(ranges.ends, ranges.begins[1:], strict=False)
    assert all(end < begin for end, begin in gaps)
