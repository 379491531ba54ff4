"""Convolutions through cuDNN: their outputs, copies into the layout that is computed in, and workspaces.

Sources: ``ATen/native/Convolution.cpp`` and ``ATen/native/cudnn/Conv_v8.cpp``. What cuDNN wants as workspace is
recorded (`memprof.simulate.convolutions`); where a convolution is not in that table, or the card is not the one that
was recorded, the workspace is an estimate, and a caveat.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from memprof.simulate.convolution_rule import estimate
from memprof.simulate.convolutions import Convolution, Pass, recorded
from memprof.simulate.kernels.depthwise import computed_by_torch
from memprof.simulate.kernels.reductions import reduce
from memprof.simulate.kernels.registry import kernel
from memprof.simulate.storages import contiguous_strides

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memprof.simulate.device import Device

__all__: list[str] = []

_DTYPES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}
_RECORDED_CARD = "NVIDIA H200"


def _copy_bytes(tensor: torch.Tensor, layout: torch.memory_format) -> int:
    return 0 if tensor.is_contiguous(memory_format=layout) else tensor.numel() * tensor.element_size()


def _format(*tensors: torch.Tensor) -> torch.memory_format:
    """Return the layout that cuDNN computes in (``cudnn_conv_suggest_memory_format``)."""
    return torch.channels_last if any(map(_like_channels_last, tensors)) else torch.contiguous_format


def _like_channels_last(tensor: torch.Tensor) -> bool:
    """Tell by the strides, also where a side is 1 and both layouts are the same (``is_channels_last_strides_2d``)."""
    if tensor.dim() != 4 or tensor.stride(1) == 0:
        return False
    least = 0
    for dim in (1, 3, 2, 0):
        size, stride = tensor.size(dim), tensor.stride(dim)
        if size == 0 or stride < least or (dim == 0 and least == tensor.stride(1)):
            return False
        least = stride * max(size, 1)
    return True


def _describe(source: torch.Tensor, weight: torch.Tensor, options: Sequence[Any]) -> Convolution | None:
    """Return what the table knows a convolution by; None for dtypes that were never recorded."""
    dtype = _DTYPES.get(source.dtype)
    if dtype is None:
        return None
    stride, padding, dilation, transposed, output_padding, groups = options
    dims = source.dim() - 2
    sizes = (stride, padding, dilation, output_padding)
    stride, padding, dilation, output_padding = (tuple(each) * (dims // len(each)) for each in sizes)
    cudnn: Any = torch.backends.cudnn  # untyped in torch
    return Convolution(
        batch=source.size(0),
        inputs=source.size(1),
        spatial=tuple(source.shape[2:]),
        outputs=weight.size(1) * groups if transposed else weight.size(0),
        kernel=tuple(weight.shape[2:]),
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        transposed=transposed,
        dtype=dtype,
        channels_last=_format(source, weight) is torch.channels_last,
        output_padding=output_padding if transposed and any(output_padding) else (),
        tf32=dtype != "f32" or cudnn.allow_tf32,
        deterministic=cudnn.deterministic or torch.are_deterministic_algorithms_enabled(),
    )


def _workspace(device: Device, convolution: Convolution | None, which: Pass) -> None:
    """Take and give back what cuDNN works in."""
    if convolution is None:
        device.caveats.add("library", "cuDNN's workspaces were recorded in float32, float16 and bfloat16 only")
        return
    nbytes = recorded(convolution, which)
    cudnn: Any = torch.backends.cudnn  # untyped in torch
    if nbytes is None or cudnn.benchmark or device.card.name != _RECORDED_CARD:
        nbytes = estimate(convolution, which) if nbytes is None else nbytes
        name = which.name.lower().replace("_", " ")
        device.caveats.add("library", f"cuDNN's workspace for the {name} of a convolution is an estimate", nbytes)
    device.temporary(nbytes).free()


@kernel("convolution")
def _convolution(device: Device, op: Any, /, *args: Any) -> torch.Tensor:
    source, weight = args[:2]
    layout = _format(source, weight)
    shape = device.shapes(op, args, {}).size()
    source_copy = device.temporary(_copy_bytes(source, layout))
    output = _output(device, shape, source.dtype, layout)
    weight_copy = device.temporary(_copy_bytes(weight, layout))
    if not computed_by_torch(source, weight, args[3:], layout):
        _workspace(device, _describe(source, weight, args[3:]), Pass.FORWARD)
    weight_copy.free()
    source_copy.free()
    return output


@kernel("convolution_backward")
def _convolution_backward(
    device: Device,
    _op: Any,
    /,
    gradient: torch.Tensor,
    source: torch.Tensor,
    weight: torch.Tensor,
    *args: Any,
) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
    mask = args[-1]
    layout = _format(source, weight)
    by_torch = computed_by_torch(source, weight, args[1:-1], layout)
    if by_torch:
        return _backward_by_torch(device, gradient, source, weight, mask)
    held = [device.temporary(_copy_bytes(source, layout) if mask[1] else 0)]
    once, gradient_bytes = _gradient_copies(gradient, source, layout, weight_wanted=mask[1], transposed=args[-4])
    held.append(device.temporary(once))
    convolution = _describe(source, weight, args[1:-1])
    results: dict[Pass, torch.Tensor | None] = {Pass.INPUT_GRADIENT: None, Pass.WEIGHT_GRADIENT: None}
    passes = [(Pass.INPUT_GRADIENT, source, mask[0]), (Pass.WEIGHT_GRADIENT, weight, mask[1])]
    for which, tensor, wanted in passes:
        if not wanted:
            continue
        before = gradient_bytes if which is Pass.WEIGHT_GRADIENT else 0
        copies = [device.temporary(before)]
        results[which] = _output(device, tensor.size(), tensor.dtype, layout)
        if which is Pass.INPUT_GRADIENT:
            copies.append(device.temporary(_copy_bytes(weight, layout)))
        copies.append(device.temporary(gradient_bytes - before))
        _workspace(device, convolution, which)
        for temporary in reversed(copies):
            temporary.free()
    bias = _bias_gradient(device, gradient) if mask[2] else None
    for temporary in reversed(held):
        temporary.free()
    return results[Pass.INPUT_GRADIENT], results[Pass.WEIGHT_GRADIENT], bias


def _gradient_copies(
    gradient: torch.Tensor,
    source: torch.Tensor,
    layout: torch.memory_format,
    *,
    weight_wanted: bool,
    transposed: bool,
) -> tuple[int, int]:
    """Return the bytes of the gradient's copy for both passes, and of the copy that each pass makes for itself."""
    first = layout if weight_wanted else _format(source)
    if transposed:  # ``cudnn_convolution_transpose_backward`` makes it dense in the input's layout before both
        once = _copy_bytes(gradient, first)
        return once, 0 if first is layout else gradient.numel() * gradient.element_size()
    # ``cudnn_convolution_backward`` gives it the input's layout, without making it dense: each pass does.
    # In one dimension it is a row of an image by then, and of channels last where the channels are dense.
    image = gradient.unsqueeze(2) if gradient.dim() == 3 else gradient
    moved = _like_channels_last(image) != (first is torch.channels_last)
    nbytes = _copy_bytes(gradient, layout)
    return (nbytes, 0) if moved else (0, nbytes)


def _backward_by_torch(
    device: Device, gradient: torch.Tensor, source: torch.Tensor, weight: torch.Tensor, mask: Sequence[bool]
) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
    """Make the weight's gradient, then the input's (``conv_depthwise2d_backward_cuda_out``, ``DepthwiseConv2d.cu``).

    Over one dimension the input is copied before all of it (``convolution_backward``).
    """
    flat = source.dim() == 3
    source_bytes = _copy_bytes(source, torch.contiguous_format)
    source_copy = device.temporary(source_bytes if flat else 0)
    gradient_copy = device.temporary(_copy_bytes(gradient, torch.contiguous_format))
    weight_gradient = input_gradient = None
    if mask[1]:
        copy = device.temporary(0 if flat else source_bytes)
        weight_gradient = _output(device, weight.size(), weight.dtype, torch.contiguous_format)
        copy.free()
    if mask[0]:
        copy = device.temporary(_copy_bytes(weight, torch.contiguous_format))
        input_gradient = _output(device, source.size(), source.dtype, torch.contiguous_format)
        copy.free()
    gradient_copy.free()
    bias = _bias_gradient(device, gradient) if mask[2] else None
    source_copy.free()
    return input_gradient, weight_gradient, bias


def _bias_gradient(device: Device, gradient: torch.Tensor) -> torch.Tensor:
    """Sum the gradient, in its own layout, over all but the channels."""
    output = device.empty((gradient.size(1),), (1,), gradient.dtype)
    reduce(device, gradient.size(), gradient.stride(), (0, *range(2, gradient.dim())), 4)
    return output


def _output(device: Device, size: Sequence[int], dtype: torch.dtype, layout: torch.memory_format) -> torch.Tensor:
    if layout is torch.channels_last:
        meta = torch.empty(size, dtype=dtype, device="meta", memory_format=layout)
        return device.empty(size, meta.stride(), dtype)
    return device.empty(size, contiguous_strides(size), dtype)
