"""A guess at the workspace of a convolution that was not recorded: what its nearest recorded neighbours do.

cuDNN's workspaces are mostly sums of few parts: channels-last copies of input, output and weight (their channels
padded, or the weight in float32), partial weight gradients in float32 that are added up at the end, and some bytes of
alignment. So a neighbour's workspace is taken apart, and put together again with the sizes of the one asked for.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from memprof.simulate.convolutions import Convolution, Pass, table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["Neighbours", "estimate"]

_LEAST = 1024
"""Bytes up to which a rest is alignment, and not a part."""
_MOST_PARTIALS = 512
_TRIED = 20
"""Neighbours that are looked at before there is no answer."""
_VOTES = 5
"""Neighbours that are asked."""

Known = tuple[Convolution, tuple["int | None", "int | None", "int | None"]]


@lru_cache(maxsize=1 << 14)
def estimate(convolution: Convolution, which: Pass) -> int:
    """Return a guess at the workspace in bytes."""
    return _all_neighbours().estimate(convolution, which)


@lru_cache(maxsize=1)
def _all_neighbours() -> Neighbours:
    return Neighbours(table().items())


@dataclass(frozen=True, slots=True)
class _Parts:
    """A workspace taken apart."""

    copies: tuple[str, ...]
    partials: int
    """Copies of the weight in float32."""
    rest: int


class Neighbours:
    """Recorded convolutions, found by likeness."""

    def __init__(self, known: Iterable[Known]) -> None:
        groups: dict[Any, list[Known]] = defaultdict(list)
        for convolution, workspaces in known:
            for kind in _kinds(convolution):
                groups[kind].append((convolution, workspaces))
        self._groups = groups
        self._places: dict[Any, np.ndarray[Any, Any]] = {}

    def estimate(self, convolution: Convolution, which: Pass) -> int:
        """Return a guess at the workspace in bytes: what most of the nearest say, or else the nearest."""
        votes: list[int] = []
        for neighbour, workspaces in self._nearest(convolution):
            workspace = workspaces[which]
            if workspace is None:
                continue
            if neighbour == convolution:
                return workspace
            votes.append(_transferred(workspace, neighbour, convolution))
            if len(votes) == _VOTES:
                break
        if not votes:
            return _without_neighbours(convolution, which)
        most, count = Counter(votes).most_common(1)[0]
        return most if count > 1 else votes[0]

    def _nearest(self, convolution: Convolution) -> Iterator[Known]:
        kind = next((kind for kind in _kinds(convolution) if kind in self._groups), None)
        if kind is None:
            return
        if kind not in self._places:
            self._places[kind] = np.array([_place(each) for each, _ in self._groups[kind]])
        distances = np.abs(self._places[kind] - _place(convolution)).sum(1)
        for row in np.argsort(distances, kind="stable")[:_TRIED]:
            yield self._groups[kind][row]


def _transferred(workspace: int, neighbour: Convolution, convolution: Convolution) -> int:
    """Return a neighbour's workspace with the sizes of another convolution."""
    parts = _take_apart(neighbour, workspace)
    if parts is None:
        scale = sum(convolution.elements()) * convolution.item / (sum(neighbour.elements()) * neighbour.item)
        return int(workspace * scale)
    sizes = _sizes(convolution)
    partials = _partials(parts, neighbour, convolution)
    return sum(sizes[name] for name in parts.copies) + partials * sizes["w32"] + parts.rest


def _partials(parts: _Parts, neighbour: Convolution, convolution: Convolution) -> int:
    """Return how many partial gradients: one a sample where it was so; else fewer for a larger weight."""
    if not parts.copies and parts.partials == neighbour.batch:
        return convolution.batch
    smaller = min(1.0, neighbour.elements()[2] / convolution.elements()[2])
    return max(1, round(parts.partials * smaller)) if parts.partials else 0


def _without_neighbours(convolution: Convolution, which: Pass) -> int:
    """Take channels-last copies of input and output, which is what most convolutions do that want anything.

    Grouped ones of length-1 kernels (lit-gpt's LoRA) were recorded in training: nothing in half precision forward, and
    32 bytes more backward.
    """
    if convolution.channels_last or (which is Pass.FORWARD and convolution.item == 2):
        return 0
    sizes = _sizes(convolution)
    return sizes["x"] + sizes["y"] + 32


def _kinds(convolution: Convolution) -> tuple[Any, ...]:
    """Return the groups that a convolution is in, the narrowest first."""
    grouping = 0 if convolution.groups == 1 else 2 if convolution.groups == convolution.inputs else 1
    shared = (len(convolution.kernel), convolution.transposed, convolution.item, convolution.channels_last, grouping)
    exact = (convolution.kernel, convolution.stride, convolution.dilation)
    coarse = (math.prod(convolution.kernel) == 1, max(convolution.stride) == 1)
    return (*shared, *exact), (*shared, *coarse)


def _place(convolution: Convolution) -> np.ndarray[Any, Any]:
    """Return where a convolution stands: sizes by their logarithm, and what tensor cores can be used with."""
    sizes = (
        convolution.inputs,
        convolution.outputs,
        math.prod(convolution.spatial),
        math.prod(convolution.kernel),
    )
    channels = [3.0 * (n % 8 == 0) + 1.6 * (n % 4 == 0) for n in (convolution.inputs, convolution.outputs)]
    pixels = math.prod(convolution.output_spatial())
    aligned = 2.0 * (pixels % 8 == 0) + 1.0 * (pixels % 4 == 0)
    dtype = 0.5 * (convolution.dtype == "bf16")
    return np.array([0.8 * math.log2(convolution.batch), *map(math.log2, sizes), *channels, aligned, dtype])


def _sizes(convolution: Convolution) -> dict[str, int]:
    """Return the bytes of what can be copied: x, y and w, with channels padded, w in float32."""
    item = convolution.item
    x, y, w = convolution.elements()
    inputs, outputs, per_group = convolution.inputs, convolution.outputs, convolution.inputs // convolution.groups
    padded = [-(-n // (16 // item)) * (16 // item) for n in (inputs, outputs, per_group)]
    return {
        "x": x * item,
        "x padded": x // inputs * padded[0] * item,
        "y": y * item,
        "y padded": y // outputs * padded[1] * item,
        "w": w * item,
        "w padded": padded[1] * padded[2] * math.prod(convolution.kernel) * item,
        "w32": w * 4,
    }


_CHOICES = [
    chosen
    for count in range(4)
    for names in itertools.combinations((("x", "x padded"), ("y", "y padded"), ("w", "w padded", "w32")), count)
    for chosen in itertools.product(*names)
]


def _take_apart(convolution: Convolution, workspace: int) -> _Parts | None:
    """Take a workspace apart: copies alone if they explain it, else with partial weight gradients."""
    if workspace <= _LEAST:
        return _Parts((), 0, workspace)
    sizes = _sizes(convolution)
    best = None
    for copies in _CHOICES:
        left = workspace - sum(sizes[name] for name in copies)
        if 0 <= left <= _LEAST:
            return _Parts(copies, 0, left)
        partials, rest = divmod(left, sizes["w32"])
        if 0 < partials <= _MOST_PARTIALS and rest <= _LEAST and (best is None or rest < best.rest):
            best = _Parts(copies, partials, rest)
    return best
