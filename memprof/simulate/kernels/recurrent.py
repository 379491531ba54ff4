"""Recurrent networks through cuDNN, and the cells of those that it does not take.

Sources: ``ATen/native/cudnn/RNN.cpp``, ``ATen/cudnn/AutocastRNN.cpp``, ``ATen/native/RNN.cpp`` and
``ATen/native/cuda/RNN.cu``. How much cuDNN wants is in `memprof.simulate.recurrent`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from memprof.simulate.kernels.reductions import reduce
from memprof.simulate.kernels.registry import kernel
from memprof.simulate.recurrent import Call, Network, Space, dropout_state_bytes
from memprof.simulate.storages import contiguous_strides

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memprof.simulate.device import Device

    Optional = torch.Tensor | None

__all__ = ["flat_views"]


def _empty(device: Device, size: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    return device.empty(size, contiguous_strides(size), dtype)


def flat_views(buffer: torch.Tensor, weights: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return tensors of the weights' sizes in one buffer: matrices first, then biases, as cuDNN has them."""
    views: dict[int, torch.Tensor] = {}
    offset = 0
    for rows in (range(2, 9), range(2)):
        for place, weight in enumerate(weights):
            if weight.dim() in rows:
                # Not a view that autograd knows of, as in ``get_parameters``.
                fresh = torch.empty(0, dtype=buffer.dtype, device=buffer.device)
                strides = contiguous_strides(weight.size())
                views[place] = fresh.set_(buffer, offset, tuple(weight.size()), strides)  # type: ignore[call-overload]
                offset += weight.numel()
    return [views[place] for place in range(len(weights))]


@kernel("_cudnn_rnn_flatten_weight")
def _flatten(  # noqa: PLR0917  # torch's signature
    device: Device,
    _op: object,
    /,
    weights: list[torch.Tensor],
    _stride: int,
    input_size: int,
    mode: int,
    hidden: int,
    proj: int,
    layers: int,
    _batch_first: bool,  # noqa: FBT001
    bidirectional: bool,  # noqa: FBT001
) -> torch.Tensor:
    """Move all weights into one buffer."""
    first = weights[0]
    network = Network(
        mode=mode,
        inputs=input_size,
        hidden=hidden,
        projected=proj,
        layers=layers,
        directions=2 if bidirectional else 1,
        dtype=first.dtype,
    )
    buffer = _empty(device, (network.weights,), first.dtype)
    for weight, view in zip(weights, flat_views(buffer, weights), strict=True):
        view.copy_(weight)
        weight.set_(view)  # type: ignore[call-overload]
    return buffer


@kernel("_cudnn_init_dropout_state")
def _dropout_state(device: Device, _op: object, /, *_args: Any, **_named: Any) -> torch.Tensor:
    return _empty(device, (dropout_state_bytes(device.card.multiprocessors),), torch.uint8)


@kernel("_cudnn_rnn")
def _rnn(  # noqa: PLR0917  # torch's signature
    device: Device,
    _op: object,
    /,
    source: torch.Tensor,
    weights: list[torch.Tensor],
    _stride: int,
    buffer: Optional,
    hx: torch.Tensor,
    cx: Optional,
    mode: int,
    hidden: int,
    proj: int,
    layers: int,
    batch_first: bool,  # noqa: FBT001
    dropout: float,
    train: bool,  # noqa: FBT001
    bidirectional: bool,  # noqa: FBT001
    batch_sizes: list[int],
    _state: Optional = None,
) -> tuple[torch.Tensor, ...]:
    network = Network.of(source, mode, hidden, proj, layers, bidirectional=bidirectional)
    turned = batch_first and not batch_sizes
    source = source.transpose(0, 1) if turned else source
    copy = device.temporary(_copy_bytes(source))
    width = (proj or hidden) * network.directions
    output = _empty(device, (*source.shape[:-1], width), source.dtype)
    hy = _empty(device, hx.shape, hx.dtype)
    cy = _empty(device, (0,) if cx is None else cx.shape, hx.dtype)
    if buffer is None:
        buffer = _empty(device, (network.weights,), source.dtype)
        for weight, view in zip(weights, flat_views(buffer, weights), strict=True):
            view.copy_(weight)
    needed = _space(device, network, source, batch_sizes, dropout, train=train)
    workspace = device.temporary(needed.workspace)
    reserve = _empty(device, (needed.reserve if train else 0,), torch.uint8)
    workspace.free()
    copy.free()
    return output.transpose(0, 1) if turned else output, hy, cy, reserve, buffer


@kernel("_cudnn_rnn_backward")
def _rnn_backward(  # noqa: PLR0917  # torch's signature
    device: Device,
    _op: object,
    /,
    source: torch.Tensor,
    weights: list[torch.Tensor],
    stride: int,
    buffer: torch.Tensor,
    hx: torch.Tensor,
    cx: Optional,
    output: torch.Tensor,
    gradient: Optional,
    hy_gradient: Optional,
    cy_gradient: Optional,
    mode: int,
    hidden: int,
    proj: int,
    layers: int,
    batch_first: bool,  # noqa: FBT001
    dropout: float,
    _train: bool,  # noqa: FBT001
    bidirectional: bool,  # noqa: FBT001
    batch_sizes: list[int],
    _state: Optional,
    _reserve: torch.Tensor,
    mask: Sequence[bool],
) -> tuple[Any, ...]:
    if gradient is None and hy_gradient is None and cy_gradient is None:
        return None, None, None, [None] * len(weights)
    network = Network.of(source, mode, hidden, proj, layers, bidirectional=bidirectional)
    gradient = _empty(device, output.shape, output.dtype) if gradient is None else gradient
    hy_gradient = _empty(device, hx.shape, hx.dtype) if hy_gradient is None else hy_gradient
    if cx is not None and cy_gradient is None:
        cy_gradient = _empty(device, cx.shape, cx.dtype)
    turned = batch_first and not batch_sizes
    if turned:
        source, gradient = source.transpose(0, 1), gradient.transpose(0, 1)
    needed = _space(device, network, source, batch_sizes, dropout, train=True, backward=True)
    copies = [device.temporary(_copy_bytes(each)) for each in (source, gradient)]
    dx = _empty(device, source.shape, source.dtype)
    copies += [device.temporary(_copy_bytes(each)) for each in (hy_gradient, cy_gradient) if each is not None]
    dhx = _empty(device, hx.shape, hx.dtype)
    dcx = None if cx is None else _empty(device, cx.shape, cx.dtype)
    workspace = device.temporary(needed.workspace)
    workspace.free()
    for each in reversed(copies):
        each.free()
    gradients: list[Any] = []
    if mask[3]:
        gradients = _weight_gradients(device, source, weights, stride, buffer, needed, proj=proj)
    return dx.transpose(0, 1) if turned else dx, dhx, dcx, gradients


def _weight_gradients(  # noqa: PLR0917  # what backward has
    device: Device,
    source: torch.Tensor,
    weights: list[torch.Tensor],
    stride: int,
    buffer: torch.Tensor,
    needed: Space,
    *,
    proj: int,
) -> list[torch.Tensor]:
    """Return parts of one buffer where cuDNN has biases as torch has them; copies where the network has none."""
    copy = device.temporary(_copy_bytes(source))
    found = _empty(device, buffer.shape, buffer.dtype)
    workspace = device.temporary(needed.workspace)
    if stride == (5 if proj else 4):
        gradients = flat_views(found, weights)
    else:
        gradients = [_empty(device, weight.shape, weight.dtype) for weight in weights]
    workspace.free()
    copy.free()
    return gradients


def _space(
    device: Device,
    network: Network,
    source: torch.Tensor,
    batch_sizes: list[int],
    dropout: float,
    *,
    train: bool,
    backward: bool = False,
) -> Space:
    if batch_sizes:
        steps, batch = len(batch_sizes), batch_sizes[0]
    else:
        steps, batch = source.shape[:2]
    call = Call(
        network=network,
        card=device.card,
        steps=steps,
        batch=batch,
        rows=source.numel() // source.size(-1),
        dropped=dropout > 0,
        packed=bool(batch_sizes),
    )
    return call.space(train=train, backward=backward)


def _copy_bytes(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_contiguous() else tensor.numel() * tensor.element_size()


def _like(device: Device, tensor: torch.Tensor) -> torch.Tensor:
    return _empty(device, tensor.shape, tensor.dtype)


@kernel("_thnn_fused_lstm_cell")
def _lstm_cell(
    device: Device,
    _op: object,
    /,
    gates: torch.Tensor,
    _hidden: torch.Tensor,
    cx: torch.Tensor,
    *_biases: Any,
    **_n: Any,
) -> tuple[torch.Tensor, ...]:
    workspace = _like(device, gates)
    return _like(device, cx), _like(device, cx), workspace


@kernel("_thnn_fused_lstm_cell_backward_impl")
def _lstm_cell_backward(
    device: Device,
    _op: object,
    /,
    _hy: Optional,
    _cy: Optional,
    cx: torch.Tensor,
    _new: torch.Tensor,
    workspace: torch.Tensor,
    has_bias: bool,  # noqa: FBT001
) -> tuple[Optional, ...]:
    gates, state = _like(device, workspace), _like(device, cx)
    return gates, state, _bias(device, gates) if has_bias else None


@kernel("_thnn_fused_gru_cell")
def _gru_cell(
    device: Device,
    _op: object,
    /,
    _gates: torch.Tensor,
    _hidden: torch.Tensor,
    hx: torch.Tensor,
    *_biases: Any,
    **_n: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    workspace = _empty(device, (hx.size(0), 5 * hx.size(1)), hx.dtype)
    return _like(device, hx), workspace


@kernel("_thnn_fused_gru_cell_backward")
def _gru_cell_backward(
    device: Device,
    _op: object,
    /,
    gradient: torch.Tensor,
    workspace: torch.Tensor,
    has_bias: bool,  # noqa: FBT001
) -> tuple[Optional, ...]:
    size = (workspace.size(0), workspace.size(1) // 5 * 3)
    gates, hidden = (_empty(device, size, workspace.dtype) for _ in range(2))
    state = _like(device, gradient)
    biases = [_bias(device, each) if has_bias else None for each in (gates, hidden)]
    return gates, hidden, state, *biases


def _bias(device: Device, gradient: torch.Tensor) -> torch.Tensor:
    """Sum over the batch."""
    output = _empty(device, (gradient.size(1),), gradient.dtype)
    reduce(device, gradient.size(), gradient.stride(), (0,), 4)
    return output
