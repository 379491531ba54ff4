"""Which depthwise convolutions torch's own kernels compute, which take no workspace; cuDNN has the others.

``use_cudnn_depthwise`` and ``check_cudnn_depthwise_workload_with_filter`` in ``ATen/native/Convolution.cpp``. Of 1,904
depthwise convolutions that were recorded on an H200, all that this gives to torch took no workspace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["computed_by_torch"]

_FEWEST_CHANNELS = 32
_NARROWEST = 7


def computed_by_torch(
    source: torch.Tensor, weight: torch.Tensor, options: Sequence[Any], layout: torch.memory_format
) -> bool:
    """Tell whether a convolution is depthwise and cuDNN does not compute it.

    `options` are stride, padding, dilation, whether it is transposed, output padding and groups.
    """
    stride, _, dilation, transposed, _, groups = options
    depthwise = not transposed and source.size(1) == groups > 1 and weight.size(0) % groups == 0
    if not depthwise or layout is not torch.contiguous_format:
        return False
    if source.dim() == 5 or source.dtype != torch.float16:
        return True
    flat = source.dim() == 3 or source.size(2) == 1  # one dimension is taken as one row of an image
    one_step = flat or stride[0] == stride[-1]
    plain = max(dilation) == 1 and one_step and groups >= _FEWEST_CHANNELS
    return not (plain and _worth_it(source, weight, stride[-1], flat=flat))


def _worth_it(source: torch.Tensor, weight: torch.Tensor, stride: int, *, flat: bool) -> bool:
    if flat and stride == 1:
        return True
    width, side = source.size(-1), weight.size(-1)
    square = weight.dim() == 4 and weight.size(2) == side
    if not square or side not in (1, 3, 5) or width < _NARROWEST or stride not in (1, 2):
        return False
    batch, channels = source.size(0), source.size(1)
    if stride == 1:
        return True
    if batch == 1:
        return side > 1 or width <= 28
    if side == 1:
        return batch <= 16 and channels >= 128 and width <= 7
    return channels >= 512 or (channels >= 256 and width >= 28)
