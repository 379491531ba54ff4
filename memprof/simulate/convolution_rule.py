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

from memprof.simulate.convolutions import (
    COLUMNS,
    STRICT,
    Convolution,
    Pass,
    convolution_of,
    load,
    plain,
    recorded,
    row_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Neighbours", "estimate"]

_LEAST = 1024
"""Bytes up to which a rest is alignment, and not a part."""
_MOST_PARTIALS = 512
_FEW_GROUPS = 8
"""Groups of a convolution that are computed one by one, with copies of all and alignment of each."""
_MANY_PARTIALS = 64
"""Partial gradients that are believed only where fewer do not explain a workspace."""
_LARGEST = 1 << 25
"""Bytes of all partial gradients of a grouped convolution of kernel 1; more is something else."""
_MULTIPROCESSORS = 132
_TILES = ((128, 128), (256, 128), (128, 256), (64, 64), (64, 128), (128, 64))
"""Rows and columns of a tile."""
_TRIED = 20
"""Neighbours that are looked at."""
_FEW = 40
"""Neighbours of the same kernel, stride and dilation that are too few, so that those of others are asked too."""
_VOTES = 7
"""Neighbours that are asked."""

_THREE = ("spatial", "kernel", "stride", "padding", "dilation")
_FOUR = ("batch", "inputs", "outputs", "groups")
_MEASURES = (
    *("batch", "inputs", "outputs", "groups", "input pixels", "taps", "taps and inputs", "input", "output"),
    *("inputs of 4", "inputs of 8", "inputs of 64", "outputs of 4", "outputs of 8", "outputs of 64"),
    *("pixels of 4", "pixels of 8", "padding", "bfloat16"),
)
_WEIGHTS = {
    Pass.FORWARD: (0.3, 1, 1, 2.5, 1, 1, 0, 0.5, 0, 1.9, 0, 1.8, 4, 3, 0, 1.25, 0, 0, 0.5),
    Pass.INPUT_GRADIENT: (0.3, 1, 1, 2.5, 1, 1, 0, 0.5, 0, 1.9, 0, 1.8, 4, 3, 0, 1.25, 0, 0, 0.5),
    Pass.WEIGHT_GRADIENT: (0.8, 0, 3, 0, 0, 0.3, 1.8, 1, 0.3, 0.5, 5, 0, 0.3, 2.6, 0, 0, 1.5, 1.8, 0.5),
}
"""How much each of `_MEASURES` counts: what met most of what was held out."""
_AT = {name: at for at, name in enumerate(COLUMNS)}


@lru_cache(maxsize=1 << 14)
def estimate(convolution: Convolution, which: Pass) -> int:
    """Return a guess at the workspace in bytes."""
    convolution, which = plain(convolution, which)
    if convolution.deterministic:  # which mostly takes what any other engine does
        usual = replace(convolution, deterministic=False)
        nbytes = recorded(usual, which)
        return estimate(usual, which) if nbytes is None else nbytes
    return _neighbours(tf32=convolution.tf32).estimate(convolution, which)


@lru_cache(maxsize=2)
def _neighbours(*, tf32: bool) -> Neighbours:
    known = load()
    choice = known.rows[:, _AT["choice"]]
    chosen = choice == (0 if tf32 else STRICT)
    if not tf32:
        chosen |= (choice == 0) & (known.same & STRICT > 0)
    if not chosen.any():
        return _neighbours(tf32=True)
    rows = known.rows[chosen]
    rows[:, _AT["choice"]] = 0 if tf32 else STRICT
    return Neighbours(rows, known.workspaces[chosen])


@dataclass(frozen=True, slots=True)
class _Parts:
    """A workspace taken apart."""

    copies: tuple[str, ...]
    partials: int
    """Gradients of the weight in float32 that are added up."""
    unit: str
    """The size of one."""
    rest: int


class Neighbours:
    """Recorded convolutions, found by likeness; their rows and workspaces as `load` has them."""

    def __init__(self, rows: np.ndarray[Any, Any], workspaces: np.ndarray[Any, Any]) -> None:
        self._rows = rows
        self._workspaces = workspaces
        self._places = _places(rows)
        self._kinds = _kinds(rows)
        self._members: dict[tuple[int, bytes], np.ndarray[Any, Any]] = {}

    def estimate(self, convolution: Convolution, which: Pass) -> int:
        """Return a guess at the workspace in bytes.

        What the other half precision takes; what the next smaller and the next larger batch agree on; or else what most
        of the nearest say, or the nearest.
        """
        known = [(each, int(found[which])) for each, found in self._nearest(convolution, which) if found[which] >= 0]
        batches: dict[int, int] = {}
        for neighbour, workspace in known:
            if replace(neighbour, dtype=convolution.dtype) == convolution:  # float16 for bfloat16, at the most
                return workspace
            if replace(neighbour, batch=convolution.batch) == convolution:
                batches[neighbour.batch] = _transferred(workspace, neighbour, convolution, which)
        around = [max((n for n in batches if n < convolution.batch), default=0)]
        around.append(min((n for n in batches if n > convolution.batch), default=0))
        if all(around) and batches[around[0]] == batches[around[1]]:
            return batches[around[0]]
        if not known:
            return _without_neighbours(convolution, which)
        votes = [_transferred(workspace, neighbour, convolution, which) for neighbour, workspace in known[:_VOTES]]
        most, count = Counter(votes).most_common(1)[0]
        return most if count > 1 else votes[0]

    def _nearest(self, convolution: Convolution, which: Pass) -> Iterator[tuple[Convolution, Sequence[int]]]:
        row = np.array([row_of(convolution)], dtype=self._rows.dtype)
        for narrowness, kind in enumerate(_kinds(row)):
            members = self._of_kind(narrowness, kind)
            if len(members) < (1 if narrowness else _FEW):
                continue
            weights = np.array(_WEIGHTS[which], dtype=np.float32)
            distances = np.abs(self._places[members] - _places(row)) @ weights
            for each in members[np.argsort(distances, kind="stable")[:_TRIED]]:
                yield convolution_of(self._rows[each].tolist()), self._workspaces[each]
            return

    def _of_kind(self, narrowness: int, kind: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        key = narrowness, kind.tobytes()
        if key not in self._members:
            self._members[key] = np.flatnonzero((self._kinds[narrowness] == kind).all(1))
        return self._members[key]


def _transferred(workspace: int, neighbour: Convolution, convolution: Convolution, which: Pass) -> int:
    """Return a neighbour's workspace with the sizes of another convolution."""
    parts = _take_apart(neighbour, workspace, which)
    if parts is None:
        scale = sum(convolution.elements()) * convolution.item / (sum(neighbour.elements()) * neighbour.item)
        return int(workspace * scale)
    sizes = _sizes(convolution)
    partials = _partials(parts, neighbour, convolution)
    rest = parts.rest
    if 1 < neighbour.groups <= _FEW_GROUPS and rest % neighbour.groups == 0:  # alignment of each group
        rest = rest // neighbour.groups * convolution.groups
    return sum(sizes[name] for name in parts.copies) + partials * sizes[parts.unit] + rest


def _partials(parts: _Parts, neighbour: Convolution, convolution: Convolution) -> int:
    """Return how many partial gradients there are.

    One a sample where it was so; as many as fill the card with tiles where it was so; else fewer for a larger weight.
    """
    if not parts.partials:
        return 0
    if not parts.copies and parts.partials == neighbour.batch:
        return convolution.batch
    for was, now in zip(_waves(neighbour), _waves(convolution), strict=True):
        if was and parts.partials in (was, was + 1):
            return max(now + parts.partials - was, 0)
    smaller = min(1.0, neighbour.elements()[2] / convolution.elements()[2])
    return max(1, round(parts.partials * smaller))


def _waves(convolution: Convolution) -> list[int]:
    """Return how often the tiles of the weight's gradient fit on the card's multiprocessors, for sizes of a tile."""
    rows = convolution.outputs
    columns = convolution.inputs // convolution.groups * math.prod(convolution.kernel)
    return [_MULTIPROCESSORS // (-(-rows // high) * -(-columns // wide)) for high, wide in _TILES]


def _without_neighbours(convolution: Convolution, which: Pass) -> int:
    """Take channels-last copies of input and output, which is what most convolutions do that want anything.

    Grouped ones of length-1 kernels (lit-gpt's LoRA) were recorded in training: nothing in half precision forward, and
    32 bytes more backward.
    """
    if convolution.channels_last or (which is Pass.FORWARD and convolution.item == 2):
        return 0
    sizes = _sizes(convolution)
    return sizes["x"] + sizes["y"] + 32


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
    """Return where convolutions stand in `_MEASURES`: sizes by their logarithm, and what tensor cores like."""
    spatial, kernel, stride, padding, dilation = (_three(rows, name) for name in _THREE)
    batch, inputs, outputs, groups = (rows[:, _AT[name]].astype(np.int64) for name in _FOUR)
    pixels = ((spatial + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1).prod(1)
    each, taps = inputs // groups, kernel.prod(1)
    per_group = outputs // groups
    sizes = (
        *(batch, inputs, outputs, groups, spatial.prod(1), taps, each * taps),
        *(batch * inputs * spatial.prod(1), batch * outputs * pixels),
    )
    parts = [n % by == 0 for n, most in ((each, 64), (per_group, 64), (pixels, 8)) for by in (4, 8, 64) if by <= most]
    others = (np.minimum(padding.max(1), 3), rows[:, _AT["dtype"]] == 2)
    return np.column_stack([*map(np.log2, sizes), *parts, *others]).astype(np.float32)


def _sizes(convolution: Convolution) -> dict[str, int]:
    """Return the bytes of what can be copied: x, y and w, with channels padded, w in float32."""
    item = convolution.item
    x, y, w = convolution.elements()
    inputs, outputs, per_group = convolution.inputs, convolution.outputs, convolution.inputs // convolution.groups
    padded = [-(-n // (16 // item)) * (16 // item) for n in (inputs, outputs, per_group)]
    w_padded = padded[1] * padded[2] * math.prod(convolution.kernel)
    return {
        "x": x * item,
        "x padded": x // inputs * padded[0] * item,
        "y": y * item,
        "y padded": y // outputs * padded[1] * item,
        "w": w * item,
        "w padded": w_padded * item,
        "w32": w * 4,
        "w32 padded": w_padded * 4,
        "w32 padded in": outputs * padded[2] * math.prod(convolution.kernel) * 4,
    }


_CHOICES = [
    chosen
    for count in range(4)
    for names in itertools.combinations((("x", "x padded"), ("y", "y padded"), ("w", "w padded", "w32")), count)
    for chosen in itertools.product(*names)
]


def _take_apart(convolution: Convolution, workspace: int, which: Pass) -> _Parts | None:
    """Take a workspace apart: copies alone if they explain it, else with partial weight gradients.

    Where a weight is small, as LoRA's are, much is a multiple of it: then a gradient of each sample alone is believed,
    or in groups the fewest beside copies.
    """
    if workspace <= _LEAST:
        return _Parts((), 0, "w32", workspace)
    sizes = _sizes(convolution)
    small = math.prod(convolution.kernel) == 1
    grouped = small and 1 < convolution.groups <= _FEW_GROUPS
    least, most = (_LEAST * convolution.groups, 2 * _MOST_PARTIALS) if grouped else (_LEAST, _MOST_PARTIALS)
    if which is Pass.WEIGHT_GRADIENT and convolution.groups == 1 and small:
        partials, rest = divmod(workspace, sizes["w32"])
        if partials == convolution.batch and rest <= _LEAST:
            return _Parts((), partials, "w32", rest)
    found = []
    for copies in _CHOICES:
        left = workspace - sum(sizes[name] for name in copies)
        if 0 <= left <= least:
            return _Parts(copies, 0, "w32", left)
        for unit in ("w32", "w32 padded", "w32 padded in"):
            partials, rest = divmod(left, sizes[unit])
            if 0 < partials <= most and rest <= least and not (grouped and left > _LARGEST):
                found.append(_Parts(copies, partials, unit, rest))
    if grouped:
        return min(found, key=lambda parts: (parts.partials > _MANY_PARTIALS, parts.partials, parts.rest), default=None)
    return min(found, key=lambda parts: (parts.partials > _MANY_PARTIALS, parts.rest), default=None)
