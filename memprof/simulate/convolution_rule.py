"""A guess at the workspace of a convolution that was not recorded: what its nearest recorded neighbours do.

cuDNN's workspaces are mostly sums of few parts: channels-last copies of input, output and weight (their channels
padded, or the weight in float32), partial weight gradients in float32 that are added up at the end, and some bytes of
alignment. So a neighbour's workspace is taken apart, and put together again with the sizes of the one asked for.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from memprof.simulate.convolutions import COLUMNS, Convolution, Pass, convolution_of, load, plain, recorded, row_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Neighbours", "estimate"]

_LEAST = 1024
"""Bytes up to which a rest is alignment, and not a part."""
_MOST_PARTIALS = 512
_TRIED = 20
"""Neighbours that are looked at before there is no answer."""
_VOTES = 5
"""Neighbours that are asked."""

_THREE = ("spatial", "kernel", "stride", "padding", "dilation")
_AT = {name: at for at, name in enumerate(COLUMNS)}


@lru_cache(maxsize=1 << 14)
def estimate(convolution: Convolution, which: Pass) -> int:
    """Return a guess at the workspace in bytes."""
    default = replace(convolution, tf32=True, deterministic=False)
    if default != convolution and (nbytes := recorded(default, which)) is not None:
        return nbytes
    return _all_neighbours().estimate(*plain(convolution, which))


@lru_cache(maxsize=1)
def _all_neighbours() -> Neighbours:
    known = load()
    return Neighbours(known.rows, known.workspaces)


@dataclass(frozen=True, slots=True)
class _Parts:
    """A workspace taken apart."""

    copies: tuple[str, ...]
    partials: int
    """Copies of the weight in float32."""
    rest: int


class Neighbours:
    """Recorded convolutions, found by likeness; their rows and workspaces as `load` has them."""

    def __init__(self, rows: np.ndarray[Any, Any], workspaces: np.ndarray[Any, Any]) -> None:
        self._rows = rows
        self._workspaces = workspaces
        self._places = _places(rows)
        self._kinds = [_grouped(kinds) for kinds in _kinds(rows)]

    def estimate(self, convolution: Convolution, which: Pass) -> int:
        """Return a guess at the workspace in bytes: what most of the nearest say, or else the nearest."""
        votes: list[int] = []
        for neighbour, workspaces in self._nearest(convolution):
            workspace = int(workspaces[which])
            if workspace < 0:
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

    def _nearest(self, convolution: Convolution) -> Iterator[tuple[Convolution, Sequence[int]]]:
        row = np.array([row_of(convolution)], dtype=self._rows.dtype)
        for kinds, kind in zip(self._kinds, _kinds(row), strict=True):
            members = kinds.get(kind.tobytes())
            if members is None:
                continue
            distances = np.abs(self._places[members] - _places(row)).sum(1)
            for each in members[np.argsort(distances, kind="stable")[:_TRIED]]:
                yield convolution_of(self._rows[each].tolist()), self._workspaces[each]
            return


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


def _grouped(kinds: np.ndarray[Any, Any]) -> dict[bytes, np.ndarray[Any, Any]]:
    """Return the rows of each kind."""
    found, kind_of = np.unique(kinds, axis=0, return_inverse=True)
    order = np.argsort(kind_of.ravel(), kind="stable")
    ends = np.cumsum(np.bincount(kind_of.ravel(), minlength=len(found)))
    parts = np.split(order, ends[:-1])
    # of nothing, split makes one part
    return {kind.tobytes(): part for kind, part in zip(found, parts, strict=False)}


def _kinds(rows: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return the kinds that convolutions are of, the narrower and the wider; each int32, (n, numbers)."""
    inputs, groups = rows[:, _AT["inputs"]], rows[:, _AT["groups"]]
    grouping = np.where(groups == 1, 0, np.where(groups == inputs, 2, 1))
    shared = [rows[:, _AT["dims"]], rows[:, _AT["dtype"]] == 0, rows[:, _AT["channels_last"]], grouping]
    kernel, stride, dilation = (_three(rows, name) for name in ("kernel", "stride", "dilation"))
    narrow = np.column_stack([*shared, kernel, stride, dilation])
    wide = np.column_stack([*shared, kernel.prod(1) == 1, stride.max(1) == 1])
    return np.ascontiguousarray(narrow, dtype=np.int32), np.ascontiguousarray(wide, dtype=np.int32)


def _three(rows: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
    """Return the columns of the three dimensions."""
    return rows[:, _AT[f"{name}0"] : _AT[f"{name}0"] + 3].astype(np.int64)


def _places(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return where convolutions stand: sizes by their logarithm, and what tensor cores can be used with."""
    spatial, kernel, stride, padding, dilation = (_three(rows, name) for name in _THREE)
    inputs, outputs = rows[:, _AT["inputs"]], rows[:, _AT["outputs"]]
    pixels = ((spatial + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1).prod(1)
    sizes = [np.log2(n) for n in (inputs, outputs, spatial.prod(1), kernel.prod(1))]
    channels = [3.0 * (n % 8 == 0) + 1.6 * (n % 4 == 0) for n in (inputs, outputs)]
    aligned = 2.0 * (pixels % 8 == 0) + 1.0 * (pixels % 4 == 0)
    dtype = 0.5 * (rows[:, _AT["dtype"]] == 2)
    return np.column_stack([0.8 * np.log2(rows[:, _AT["batch"]]), *sizes, *channels, aligned, dtype])


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
