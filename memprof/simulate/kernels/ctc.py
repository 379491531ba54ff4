"""The loss of connectionist temporal classification, as PyTorch's own CUDA kernels take it; cuDNN's is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from memprof.errors import UnsupportedError
from memprof.simulate.kernels.registry import kernel
from memprof.simulate.storages import contiguous_strides

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memprof.simulate.device import Device

__all__: list[str] = []

_LARGE = 450
"""Size from which the gradient comes from whole-tensor ops (``is_large`` in ``ATen/native/cuda/LossCTC.cu``)."""


@kernel("_use_cudnn_ctc_loss", "_use_cudnn_ctc_loss.Tensor")
def _use_cudnn(
    _device: Device, _op: object, /, log_probs: torch.Tensor, targets: torch.Tensor, *_lengths: Any, blank: int = 0
) -> bool:
    """Refuse what cuDNN may take (``ATen/native/cudnn/LossCTC.cpp``): its workspace is not known."""
    blank = _lengths[2] if len(_lengths) > 2 else blank
    wanted = targets.dtype == torch.int32 and targets.dim() == 1 and log_probs.dtype == torch.float32
    if wanted and blank == 0 and torch._C._get_cudnn_enabled():
        raise UnsupportedError(
            "ctc_loss with cuDNN cannot be simulated: its workspace is not known; "
            "give 64-bit targets or use torch.backends.cudnn.flags(enabled=False)"
        )
    return False


@kernel("_use_miopen_ctc_loss", "_use_miopen_ctc_loss.Tensor")
def _use_miopen(_device: Device, _op: object, /, *_args: Any, **_kwargs: Any) -> bool:
    return False


def _lengths_on_device(device: Device, batch: int) -> list[Any]:
    """Return lengths of targets, lengths of inputs and offsets of targets, in the order in which they are freed."""
    targets, inputs, offsets = (device.temporary(batch * 8) for _ in range(3))
    return [inputs, targets, offsets]


@kernel("_ctc_loss")
def _ctc_loss(
    device: Device,
    _op: object,
    /,
    log_probs: torch.Tensor,
    _targets: torch.Tensor,
    _input_lengths: Sequence[int],
    target_lengths: Sequence[int],
    *_options: Any,
    **_named: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Take a table of all steps by all states (``ctc_loss_gpu_template``)."""
    steps, batch, _ = log_probs.size()
    held = _lengths_on_device(device, batch)
    size = (batch, steps, 2 * max(target_lengths, default=0) + 1)
    table = device.empty(size, contiguous_strides(size), log_probs.dtype)
    losses = device.empty((batch,), (1,), log_probs.dtype)
    for each in held:
        each.free()
    return losses, table


@kernel("_ctc_loss_backward")
def _ctc_loss_backward(  # noqa: PLR0917  # torch's signature
    device: Device,
    _op: object,
    /,
    gradient: torch.Tensor,
    log_probs: torch.Tensor,
    _targets: torch.Tensor,
    _input_lengths: Sequence[int],
    _target_lengths: Sequence[int],
    losses: torch.Tensor,
    table: torch.Tensor,
    blank: int,
    zero_infinity: bool = False,  # noqa: FBT001, FBT002  # torch's signature
) -> torch.Tensor:
    """Take the same table backwards (``ctc_loss_backward_gpu_template``)."""
    steps, batch, labels = log_probs.size()
    held = _lengths_on_device(device, batch)
    backwards = device.empty(table.size(), contiguous_strides(table.size()), table.dtype)
    result = device.empty(log_probs.size(), contiguous_strides(log_probs.size()), log_probs.dtype)
    if 2 * steps + 24 * batch // 10 + 2 * labels // 10 > _LARGE:
        _subtract_blanks(result.narrow(2, blank, 1), log_probs.narrow(2, blank, 1), losses, table, backwards)
        result *= gradient.view(1, batch, 1)
        if zero_infinity:
            infinite = losses.view(1, batch, 1) == float("inf")
            result = torch.where(infinite, torch.zeros((), dtype=result.dtype, device=result.device), result)
            del infinite
    del backwards
    for each in held:
        each.free()
    return result


def _subtract_blanks(
    result: torch.Tensor, log_probs: torch.Tensor, losses: torch.Tensor, table: torch.Tensor, backwards: torch.Tensor
) -> None:
    """Compute the part of blanks, which are every other state, with ops on whole tensors, as the C++ does."""
    blanks = ((table[:, :, ::2] + backwards[:, :, ::2]).logsumexp(2, keepdim=True)).permute(1, 0, 2)
    result.sub_(blanks.add_(losses.view(1, -1, 1)).sub_(log_probs).exp_())
