"""Where the driver's chunks put segments: by the rule, and against the addresses of recorded runs."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from memprof.allocator.chunks import CHUNK, Chunks, TopDown
from memprof.allocator.driver import AddressOrder, Driver

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB = 1 << 20
TOP = 1 << 46
DATA = Path(__file__).parents[1] / "simulate/data/third_runs_h200.json.gz"


def test_rest_of_the_newest_chunk_is_used_first() -> None:
    """Given two chunks with room, when a small segment is made, then it lies in the newer, at its lowest address."""
    chunks = Chunks(TopDown(TOP))
    older, newer = chunks.reserve(20 * MIB), chunks.reserve(20 * MIB)
    assert (older, newer) == (TOP - CHUNK, TOP - 2 * CHUNK)
    assert chunks.reserve(2 * MIB) == newer + 20 * MIB
    assert chunks.reserve(12 * MIB) == older + 20 * MIB


def test_chunks_are_multiples_of_32_mib_and_go_back_whole() -> None:
    """Given a segment of 72 MiB, when all in its chunk is given back, then its 96 MiB can hold another chunk."""
    chunks = Chunks(TopDown(TOP))
    large = chunks.reserve(72 * MIB)
    small = chunks.reserve(24 * MIB)
    below = chunks.reserve(2 * MIB)
    assert (large, small, below) == (TOP - 96 * MIB, TOP - 24 * MIB, TOP - 128 * MIB)
    chunks.unreserve(large, 72 * MIB)
    assert chunks.reserve(96 * MIB) == TOP - 224 * MIB
    chunks.unreserve(small, 24 * MIB)
    assert chunks.reserve(64 * MIB) == TOP - 64 * MIB


def test_hole_in_a_chunk_that_is_used_is_filled_from_below() -> None:
    """Given a range given back from a chunk in use, when segments are made, then they fill it upwards."""
    chunks = Chunks(TopDown(TOP))
    large = chunks.reserve(414 * MIB)
    last = chunks.reserve(2 * MIB)
    assert last == large + 414 * MIB
    chunks.unreserve(large, 414 * MIB)
    assert [chunks.reserve(20 * MIB) - large for _ in range(3)] == [0, 20 * MIB, 40 * MIB]


@pytest.mark.parametrize("order", AddressOrder)
def test_segments_never_overlap(order: AddressOrder) -> None:
    """Given any order, when segments are made and freed in turns, then no two that are there overlap."""
    driver = Driver(order=order)
    live: list[tuple[int, int]] = []
    for step in range(400):
        if step % 3 == 2:
            driver.release(*live.pop(step * 7 % len(live)))
        size = 2 * MIB * (1 + step * step % 29)
        address = driver.malloc(size)
        assert address is not None
        assert all(address + size <= other or other + length <= address for other, length in live)
        live.append((address, size))


def test_reserved_space_is_apart_from_segments_and_used_again() -> None:
    """Given space reserved twice for expandable segments, when the first goes back, then the next lies there."""
    driver = Driver()
    first, second = driver.reserve(157 << 30), driver.reserve(157 << 30)
    assert second == first + (157 << 30)
    driver.unreserve(first, 157 << 30)
    segment = driver.malloc(20 * MIB)
    assert segment is not None
    assert segment > second + (157 << 30)
    assert driver.reserve(157 << 30) == first


class _Recorded:
    """An address space that gives chunks where a recorded run had them."""

    def __init__(self, addresses: Iterator[int]) -> None:
        self._addresses = addresses

    def map(self, size: int) -> int:
        """Return the next one."""
        del size
        return next(self._addresses)

    def unmap(self, address: int, size: int) -> None:
        """Take it back."""


@pytest.mark.parametrize("case", ["mpt_autocast_foreach", "prompt_granite"])
def test_recorded_segments_lie_in_chunks_as_the_rule_says(case: str) -> None:
    """Given where a recorded run's new chunks lie, when its segments are made, then all others are where they were.

    The run's first segments of 20 MiB and 2 MiB fill what the context left of its own chunks: that is given as well.
    """
    run = next(run for run in json.loads(gzip.decompress(DATA.read_bytes()))["runs"] if run["case"] == case)
    sizes = [value for action, value in zip(run["actions"], run["values"], strict=True) if action == "s"]
    addresses = run["addresses"]
    of_context = next(address for address in addresses if address % CHUNK == 8 * MIB) - 8 * MIB
    new = [address for address in addresses if address % CHUNK == 0]
    chunks = Chunks(_Recorded(iter([of_context, *new])))
    assert chunks.reserve(8 * MIB) == of_context
    assert [chunks.reserve(size) for size in sizes] == addresses
    assert len(new) < len(addresses)
