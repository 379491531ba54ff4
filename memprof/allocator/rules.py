"""The rules of PyTorch's caching allocator, once: sizes of blocks and segments, and when a block is split.

They are those of ``DeviceCachingAllocator`` in ``c10/cuda/CUDACachingAllocator.cpp``; each function names its symbol
there. The constants moved to ``c10/core/AllocatorConfig.h`` in torch 2.10; their values have not changed since 1.8.
Both engines (`memprof.allocator.replay` and `memprof.allocator.simulation`) stand on this module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memprof.trace.model import Settings

__all__ = [
    "MIN_BLOCK",
    "SMALL_BUFFER",
    "SMALL_SIZE",
    "is_small",
    "page_size",
    "round_size",
    "round_sizes",
    "segment_size",
    "should_split",
    "slack_limits",
    "splits_exactly",
]

MIN_BLOCK = 512
"""``kMinBlockSize``: every block is a multiple of it."""
SMALL_SIZE = 1 << 20
"""``kSmallSize``: the largest rounded request that the small pool serves; also the largest remainder that stays
unsplit in the large pool."""
SMALL_BUFFER = 2 << 20
"""``kSmallBuffer``: segment of the small pool, and page of its expandable segments."""
MIN_LARGE_ALLOC = 10 << 20
"""``kMinLargeAlloc``: smaller requests of the large pool share segments of ``large_segment_size`` (``kLargeBuffer``
before torch 2.10); torch takes no smaller value for that."""
ROUND_LARGE = 2 << 20
"""``kRoundLarge``: larger requests get a segment of their own, rounded up to it."""

_MIB_BITS = 20
_LAST_INTERVAL = 15
"""``kRoundUpPowerOfTwoIntervals - 1``: intervals begin at 1, 2, 4, ... 32768 MiB."""


def divisions_of(settings: Settings) -> list[int]:
    """Return ``roundup_power2_divisions`` per interval: item i is for sizes from 2**i MiB up to twice that.

    Smaller sizes use item 0, larger ones the last (``AcceleratorAllocatorConfig::roundup_power2_divisions``).
    """
    divisions = [0] * (_LAST_INTERVAL + 1)
    for start_mib, count in settings.roundup_power2_divisions:
        divisions[min(max(start_mib, 1).bit_length() - 1, _LAST_INTERVAL)] = count
    return divisions


def round_size(size: int, settings: Settings) -> int:
    """Round a request to the bytes that the allocator looks for (``round_size``)."""
    if size < MIN_BLOCK:
        return MIN_BLOCK
    if settings.roundup_power2_divisions:
        interval = min(max(size.bit_length() - 1 - _MIB_BITS, 0), _LAST_INTERVAL)
        divisions = divisions_of(settings)[interval]
        if divisions > 1 and size > MIN_BLOCK * divisions:
            # roundup_power2_next_division; the step is at least MIN_BLOCK here, so it is never 0.
            step = (1 << (size.bit_length() - 1)) >> (divisions.bit_length() - 1)
            return (size + step - 1) // step * step
    return (size + MIN_BLOCK - 1) // MIN_BLOCK * MIN_BLOCK


def round_sizes(sizes: NDArray[np.int64], settings: Settings) -> NDArray[np.int64]:
    """Round many requests; the same rule as `round_size`."""
    rounded: NDArray[np.int64] = np.maximum(sizes + (MIN_BLOCK - 1), MIN_BLOCK) & ~np.int64(MIN_BLOCK - 1)
    if settings.roundup_power2_divisions:
        log2 = np.frexp(np.maximum(sizes, 1).astype(np.float64))[1].astype(np.int64) - 1
        divisions = np.array(divisions_of(settings), dtype=np.int64)[np.clip(log2 - _MIB_BITS, 0, _LAST_INTERVAL)]
        chosen = (divisions > 1) & (sizes > MIN_BLOCK * divisions)
        shift = np.frexp(np.maximum(divisions, 1).astype(np.float64))[1].astype(np.int64) - 1
        step = np.left_shift(np.int64(1), np.maximum(log2 - shift, 0))
        rounded = np.where(chosen, (sizes + step - 1) // step * step, rounded)
    return rounded


def is_small(rounded: int) -> bool:
    """Tell whether a rounded request is served by the small pool (``get_pool``)."""
    return rounded <= SMALL_SIZE


def segment_size(rounded: int, settings: Settings) -> int:
    """Return the bytes of the segment that is made when no free block fits (``get_allocation_size``)."""
    if rounded <= SMALL_SIZE:
        return SMALL_BUFFER
    if rounded < MIN_LARGE_ALLOC:
        return max(settings.large_segment_size, MIN_LARGE_ALLOC)
    return (rounded + ROUND_LARGE - 1) // ROUND_LARGE * ROUND_LARGE


def page_size(settings: Settings, *, small: bool) -> int:
    """Return the bytes in which an expandable segment is mapped and unmapped (``find_expandable_block``)."""
    return SMALL_BUFFER if small else max(settings.large_segment_size, MIN_LARGE_ALLOC)


def splits_exactly(settings: Settings, *, small: bool) -> bool:
    """Tell whether blocks of a pool are always cut to the rounded request (first branch of ``should_split``).

    Sizes are multiples of 512 there, so whatever remains is either nothing or enough to split off. torch before 2.1
    had no expandable segments: only the small pool.
    """
    return small or settings.expandable_segments


def should_split(block: int, rounded: int, settings: Settings, *, small: bool) -> bool:
    """Tell whether a free block of `block` bytes is cut when `rounded` bytes are taken from it (``should_split``)."""
    remaining = block - rounded
    if splits_exactly(settings, small=small):
        return remaining >= MIN_BLOCK
    limit = settings.max_split_size
    return (limit is None or rounded < limit) and remaining > SMALL_SIZE


def slack_limits(rounded: NDArray[np.int64], settings: Settings) -> NDArray[np.int64]:
    """Return how many bytes more than `rounded` unsplit blocks of the large pool can have.

    At most 1 MiB remains unsplit; requests of ``max_split_size`` and more are never split, and take a block that is
    less than ``max_non_split_rounding_size`` larger (``should_split`` and ``get_free_block``), or a fresh segment.
    """
    if settings.max_split_size is None:
        return np.full(len(rounded), SMALL_SIZE, dtype=np.int64)
    oversize = max(settings.max_non_split_rounding_size, ROUND_LARGE)
    return np.where(rounded >= settings.max_split_size, oversize, SMALL_SIZE)
