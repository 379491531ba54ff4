"""How torch's reduction kernel spreads over the card, as far as that takes memory.

When few outputs come from many inputs, several thread blocks work on one output, and leave partial results in a buffer
of global memory with a counter each. The plan is that of ``setReduceConfig`` in ``ATen/native/cuda/Reduce.cuh``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memprof.simulate.cards import Card

__all__ = ["Layout", "buffers", "coalesce"]

_VECTOR = 4
"""Values that a thread loads at once."""
_MAX_THREADS = 512
_WARP = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A reduction with neighbouring dimensions joined: reduced sizes and kept ones, with the input's strides."""

    reduced: tuple[tuple[int, int], ...]
    """(size, stride) in elements, by rising stride."""
    kept: tuple[tuple[int, int], ...]


def coalesce(size: Sequence[int], stride: Sequence[int], dims: Sequence[int] | None) -> Layout:
    """Return the layout of reducing `dims` (None or empty: all) of a tensor."""
    wanted = {dim % max(len(size), 1) for dim in dims} if dims else set(range(len(size)))
    parts = []
    for reduce in (True, False):
        joined: list[tuple[int, int]] = []
        found = sorted((stride[d], size[d]) for d in range(len(size)) if (d in wanted) == reduce and size[d] != 1)
        for step, extent in found:
            if joined and joined[-1][0] * joined[-1][1] == step:
                joined[-1] = (joined[-1][0] * extent, joined[-1][1])
            else:
                joined.append((extent, step))
        parts.append(tuple(joined))
    return Layout(reduced=parts[0], kept=parts[1])


def buffers(card: Card, layout: Layout, accumulator_bytes: int) -> tuple[int, int]:
    """Return the bytes of the buffer and of the counters; (0, 0) where one block does it all."""
    inputs = math.prod(extent for extent, _ in layout.reduced)
    outputs = math.prod(extent for extent, _ in layout.kept)
    along_input = not layout.kept or bool(layout.reduced and layout.reduced[0][1] < layout.kept[0][1])
    first, second = (inputs, outputs) if along_input else (outputs, inputs)
    fastest = (layout.reduced or ((1, 1),))[0][1] if along_input else layout.kept[0][1]
    vector = 1
    if fastest == 1:
        if along_input and first > 128 and len(layout.reduced) + len(layout.kept) == 1:
            first //= _VECTOR
        elif not along_input:
            vector = _output_vector(layout)
            first //= vector
    width, height = _block(first, second, _MAX_THREADS // vector)
    step_input, step_output = (width, 1) if along_input else (1, width)
    if math.ceil(inputs / step_input) < min(height * 16, 256):
        return 0, 0
    step_input *= height
    values = math.ceil(inputs / step_input)
    blocks = math.ceil(outputs // vector / step_output)
    target = card.multiprocessors * (card.threads_per_multiprocessor // (width * height))
    if values < 256 or blocks > target:
        return 0, 0
    split = max(min(math.ceil(target / blocks), math.ceil(values / 16)), math.ceil(values / 256))
    if split <= 1:
        return 0, 0
    size = accumulator_bytes * outputs * split
    if not along_input:
        size *= width * vector
    return size, 4 * blocks


def _output_vector(layout: Layout) -> int:
    """Return how many neighbouring outputs a thread works on (``get_output_vec_size``)."""
    vector = _VECTOR
    for number in (layout.kept[0][0], *(stride for _, stride in layout.reduced), *(s for _, s in layout.kept[1:])):
        while number % vector:
            vector //= 2
    return vector


def _block(first: int, second: int, threads: int) -> tuple[int, int]:
    """Return width and height of a thread block (``set_block_dimension``)."""
    first, second = min(_power(first), threads), min(_power(second), threads)
    width = min(first, _WARP)
    height = min(second, threads // width)
    return min(first, threads // height), height


def _power(number: int) -> int:
    """Return the largest power of two that is not above `number`, at least 1."""
    return 1 << (max(number, 1).bit_length() - 1)
