# ruff: noqa: E402  # torch may not be there
"""Which depthwise convolutions are torch's own: they were recorded to take no workspace, and some of cuDNN's do."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from memprof.simulate.convolutions import COLUMNS, Convolution, convolution_of, load
from memprof.simulate.kernels.depthwise import computed_by_torch

pytestmark = pytest.mark.torch

_DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


def by_torch(each: Convolution) -> bool:
    source = torch.empty(each.batch, each.inputs, *each.spatial, dtype=_DTYPES[each.dtype], device="meta")
    weight = torch.empty(each.outputs, 1, *each.kernel, device="meta")
    options = (each.stride, each.padding, each.dilation, each.transposed, (0,), each.groups)
    layout = torch.channels_last if each.channels_last else torch.contiguous_format
    return computed_by_torch(source, weight, options, layout)


def test_what_torch_computes_took_no_workspace() -> None:
    # given the depthwise convolutions that were recorded on an H200
    rows = load().rows
    inputs, outputs, groups, choice = (
        rows[:, COLUMNS.index(each)] for each in ("inputs", "outputs", "groups", "choice")
    )
    places = np.flatnonzero((inputs == groups) & (groups > 1) & (outputs % groups == 0) & (choice == 0))
    depthwise = {convolution_of(rows[place].tolist()): load().workspaces[place].clip(0).tolist() for place in places}
    mine = {each for each in depthwise if by_torch(each)}
    # then those of torch's kernels took nothing, in any of the three passes
    assert len(mine) > 1000
    assert {each: depthwise[each] for each in mine if any(depthwise[each])} == {}
    # and what took something in the usual layout is half precision
    others = [each for each in depthwise if any(depthwise[each]) and not each.channels_last]
    assert others
    assert {each.dtype for each in others} == {"f16"}
