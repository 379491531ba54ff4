"""What cuDNN's convolutions take as workspace: a recorded table, and a rule for what is not in it.

Which of its engines cuDNN takes is its own heuristics'. The table holds what ``aten::convolution`` and its backward
asked an H200's allocator for (torch 2.11+cu130, cuDNN 9.19), recorded by ``scripts/convolution_grid.py``. Outside of it
`memprof.simulate.convolution_rule` guesses from the nearest neighbour.
"""

from __future__ import annotations

import gzip
import json
import math
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import lru_cache
from pathlib import Path

__all__ = ["Convolution", "Pass", "recorded", "table"]

_FILE = Path(__file__).parent / "data/cudnn_convolutions_h200.json.gz"


class Pass(IntEnum):
    """Which of the three computations of a convolution."""

    FORWARD = 0
    INPUT_GRADIENT = 1
    WEIGHT_GRADIENT = 2


_MIRRORED = {
    Pass.FORWARD: Pass.INPUT_GRADIENT,
    Pass.INPUT_GRADIENT: Pass.FORWARD,
    Pass.WEIGHT_GRADIENT: Pass.WEIGHT_GRADIENT,
}
"""The same computation in the mirrored convolution: 445 that were recorded both ways took the same bytes in all."""


@dataclass(frozen=True, slots=True)
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
        )
        return mirror if mirror.output_spatial() == self.spatial else None

    def output_spatial(self) -> tuple[int, ...]:
        """Return the sizes of the output's spatial dimensions."""
        rows = zip(self.spatial, self.kernel, self.stride, self.padding, self.dilation, strict=True)
        if self.transposed:
            return tuple((size - 1) * step - 2 * pad + hole * (k - 1) + 1 for size, k, step, pad, hole in rows)
        return tuple((size + 2 * pad - hole * (k - 1) - 1) // step + 1 for size, k, step, pad, hole in rows)

    def elements(self) -> tuple[int, int, int]:
        """Return the number of elements of input, output and weight."""
        return (
            self.batch * self.inputs * math.prod(self.spatial),
            self.batch * self.outputs * math.prod(self.output_spatial()),
            self.outputs * self.inputs // self.groups * math.prod(self.kernel),
        )


def recorded(convolution: Convolution, which: Pass) -> int | None:
    """Return the recorded workspace in bytes; None if this convolution was not recorded."""
    found = table().get(convolution)
    if found is not None:
        return found[which]
    mirror = convolution.mirrored()
    found = None if mirror is None else table().get(mirror)
    return None if found is None else found[_MIRRORED[which]]


@lru_cache(maxsize=1)
def table() -> dict[Convolution, tuple[int | None, int | None, int | None]]:
    """Return the workspaces of every recorded convolution, in the order of `Pass`.

    A figure is None where more than one temporary was taken.
    """
    found: dict[Convolution, tuple[int | None, int | None, int | None]] = {}
    for shape, variants in json.loads(gzip.decompress(_FILE.read_bytes()))["shapes"]:
        inputs, spatial, outputs, kernel, stride, padding, dilation, groups, transposed = shape
        for variant, batches in variants.items():
            dtypes, layout = variant.split()
            first = Convolution(
                batch=0,
                inputs=inputs,
                spatial=tuple(spatial),
                outputs=outputs,
                kernel=tuple(kernel),
                stride=tuple(stride),
                padding=tuple(padding),
                dilation=tuple(dilation),
                groups=groups,
                transposed=bool(transposed),
                dtype="",
                channels_last=layout == "cl",
            )
            for dtype in dtypes.split("+"):
                for batch, workspaces in batches:
                    found[replace(first, batch=batch, dtype=dtype)] = tuple(workspaces)
    return found
