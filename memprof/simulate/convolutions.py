"""What cuDNN's convolutions take as workspace: a table, and a rule for what is not in it.

Which of its engines cuDNN takes is its own heuristics'. The table holds what ``aten::convolution`` and its backward
asked an H200's allocator for (torch 2.11+cu130, cuDNN 9.19), recorded by ``scripts/convolution_grid.py``, and what
cuDNN's heuristics answered on that card when they were asked for a plan that was not run
(``scripts/convolution_widened.py`` and ``convolution_models.py``: 99.6 % of what was recorded is answered to the byte).
Outside of it `memprof.simulate.convolution_rule` guesses from the nearest neighbours.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "COLUMNS",
    "DETERMINISTIC",
    "STRICT",
    "Convolution",
    "Pass",
    "Recorded",
    "convolution_of",
    "load",
    "plain",
    "recorded",
    "row_of",
    "table",
]

_FILE = Path(__file__).parent / "data/cudnn_convolutions_h200.npz"
_DTYPES = ("f32", "f16", "bf16")
STRICT, DETERMINISTIC = 1, 2
"""Choices of engines, as bits: without TF32, deterministic ones only."""
_FLAT = {"spatial": 1, "kernel": 1, "stride": 1, "padding": 0, "dilation": 1}
"""What a dimension that is not there is filled with."""
COLUMNS = (
    *("dims", "inputs", "outputs", "groups"),
    *(f"{name}{dim}" for name in _FLAT for dim in range(3)),
    *("channels_last", "choice", "batch", "dtype"),
)
"""The table's columns beside the three workspaces: a convolution of `dims` dimensions, never a transposed one."""
_CHOICE = COLUMNS.index("choice")
_ROW = struct.Struct(f"<{len(COLUMNS)}i")


class Pass(IntEnum):
    """Which of the three computations of a convolution."""

    FORWARD = 0
    INPUT_GRADIENT = 1
    WEIGHT_GRADIENT = 2


_MIRRORED = (Pass.INPUT_GRADIENT, Pass.FORWARD, Pass.WEIGHT_GRADIENT)
"""The same computation in the mirrored convolution: 445 that were recorded both ways took the same bytes in all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution:
    """Everything that cuDNN chooses an engine by. Sizes of spatial dimensions are tuples."""

    batch: int
    inputs: int
    """Input channels."""
    spatial: tuple[int, ...]
    outputs: int
    """Output channels."""
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    transposed: bool
    dtype: str
    """``f32``, ``f16`` or ``bf16``."""
    channels_last: bool
    output_padding: tuple[int, ...] = ()
    """Of a transposed one; empty where it is zero."""
    tf32: bool = True
    """Whether float32 may be computed in TF32; true for the other dtypes."""
    deterministic: bool = False
    """Whether only deterministic engines are taken."""

    @property
    def item(self) -> int:
        """Bytes of an element."""
        return 4 if self.dtype == "f32" else 2

    def mirrored(self) -> Convolution | None:
        """Return the convolution that takes this one's output back to its input; None if sizes do not go back.

        A transposed convolution *is* the input gradient of its mirror, and the other way round.
        """
        mirror = replace(
            self,
            transposed=not self.transposed,
            inputs=self.outputs,
            outputs=self.inputs,
            spatial=self.output_spatial(),
            output_padding=(),
        )
        return mirror if mirror.output_spatial() == self.spatial else None

    def output_spatial(self) -> tuple[int, ...]:
        """Return the sizes of the output's spatial dimensions."""
        rows = zip(self.spatial, self.kernel, self.stride, self.padding, self.dilation, strict=True)
        if self.transposed:
            more = self.output_padding or (0,) * len(self.spatial)
            sizes = ((size - 1) * step - 2 * pad + hole * (k - 1) + 1 for size, k, step, pad, hole in rows)
            return tuple(size + extra for size, extra in zip(sizes, more, strict=True))
        return tuple((size + 2 * pad - hole * (k - 1) - 1) // step + 1 for size, k, step, pad, hole in rows)

    def elements(self) -> tuple[int, int, int]:
        """Return the number of elements of input, output and weight."""
        return (
            self.batch * self.inputs * math.prod(self.spatial),
            self.batch * self.outputs * math.prod(self.output_spatial()),
            self.outputs * self.inputs // self.groups * math.prod(self.kernel),
        )


def plain(convolution: Convolution, which: Pass) -> tuple[Convolution, Pass]:
    """Return the convolution that is not transposed, and its computation, that a computation is the same as."""
    if not convolution.transposed:
        return convolution, which
    mirror = convolution.mirrored()
    # A transposed one without a mirror has more output padding than a stride: torch refuses it.
    return (convolution, which) if mirror is None else (mirror, _MIRRORED[which])


def row_of(each: Convolution) -> tuple[int, ...]:
    """Return the numbers in `COLUMNS` of a convolution that is not transposed."""
    dims = len(each.kernel)
    missing = 3 - dims
    sizes = zip((each.spatial, each.kernel, each.stride, each.padding, each.dilation), _FLAT.values(), strict=True)
    places = (number for values, none in sizes for number in (*(none,) * missing, *values))
    choice = STRICT * (not each.tf32) + DETERMINISTIC * each.deterministic
    dtype = _DTYPES.index(each.dtype)
    return dims, each.inputs, each.outputs, each.groups, *places, int(each.channels_last), choice, each.batch, dtype


def convolution_of(row: Sequence[int]) -> Convolution:
    """Return the convolution of a row of `COLUMNS`."""
    dims, inputs, outputs, groups = row[:4]
    spatial, kernel, stride, padding, dilation = (tuple(row[4 + 3 * at + 3 - dims : 7 + 3 * at]) for at in range(5))
    channels_last, choice, batch, dtype = row[19:]
    return Convolution(
        batch=batch,
        inputs=inputs,
        spatial=spatial,
        outputs=outputs,
        kernel=kernel,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        transposed=False,
        dtype=_DTYPES[dtype],
        channels_last=bool(channels_last),
        tf32=not choice & STRICT,
        deterministic=bool(choice & DETERMINISTIC),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """The table, a row a convolution."""

    rows: np.ndarray[Any, Any]
    """Numbers in `COLUMNS`; int32, (n, columns)."""
    workspaces: np.ndarray[Any, Any]
    """Bytes in the order of `Pass`, -1 where more than one temporary was taken; int64, (n, 3)."""
    same: np.ndarray[Any, Any]
    """Choices of engines that take the same as the usual one, which the row is of, and have no row; uint8, (n,)."""
    places: dict[bytes, int] = field(repr=False)
    """Where the row with these bytes is."""


@lru_cache(maxsize=1)
def load() -> Recorded:
    """Read the table."""
    with np.load(_FILE) as columns:
        rows = np.ascontiguousarray(np.stack([columns[name] for name in COLUMNS], axis=1).astype("<i4"))
        workspaces = np.stack([columns[which.name.lower()] for which in Pass], axis=1).astype(np.int64)
        same = columns["same"].astype(np.uint8)
    keys = rows.view(f"V{_ROW.size}").ravel().tolist()
    return Recorded(rows=rows, workspaces=workspaces, same=same, places=dict(zip(keys, range(len(keys)), strict=True)))


def recorded(convolution: Convolution, which: Pass) -> int | None:
    """Return the recorded workspace in bytes; None if this computation was not recorded."""
    convolution, which = plain(convolution, which)
    if convolution.transposed:
        return None
    known = load()
    row = row_of(convolution)
    place = known.places.get(_ROW.pack(*row))
    choice = row[_CHOICE]
    if place is None and choice in (STRICT, DETERMINISTIC):
        usual = known.places.get(_ROW.pack(*row[:_CHOICE], 0, *row[_CHOICE + 1 :]))
        place = usual if usual is not None and known.same[usual] & choice else None
    nbytes = -1 if place is None else int(known.workspaces[place, which])
    return None if nbytes < 0 else nbytes


@lru_cache(maxsize=1)
def table() -> dict[Convolution, tuple[int | None, int | None, int | None]]:
    """Return the workspaces of every recorded convolution, in the order of `Pass`.

    None are transposed. A figure is None where more than one temporary was taken.
    """
    known = load()
    return {
        convolution_of(row): (
            None if output < 0 else output,
            None if source < 0 else source,
            None if weight < 0 else weight,
        )
        for row, (output, source, weight) in zip(known.rows.tolist(), known.workspaces.tolist(), strict=True)
    }
