"""Losses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memprof.simulate.kernels.registry import temporaries

if TYPE_CHECKING:
    from memprof.simulate.device import Device

__all__: list[str] = []


@temporaries("nll_loss_backward", "nll_loss2d_backward")
def _nll_loss_backward(device: Device, _op: object, /, _outputs: Any, args: Any, _kwargs: Any) -> None:
    """Make the incoming gradient contiguous: an expanded scalar, under ``reduction='none'`` and a sum."""
    gradient = args[0]
    if not gradient.is_contiguous():
        device.temporary(gradient.numel() * gradient.element_size()).free()
