"""Optimizers: the multi-tensor ops they are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memprof.simulate.kernels.registry import kernel, plain

if TYPE_CHECKING:
    import torch

    from memprof.simulate.device import Device

__all__: list[str] = []

plain("_fused_adamw_", "_fused_adam_", "_fused_sgd_", "_amp_update_scale_")


@kernel("_amp_foreach_non_finite_check_and_unscale_")
def _unscale(
    device: Device,
    _op: object,
    /,
    _gradients: list[torch.Tensor],
    _found: torch.Tensor,
    _inverse_scale: torch.Tensor,
) -> None:
    """Gradients are taken as finite, so that ``GradScaler`` steps: the flag keeps its value."""
    device.caveats.add("value", "gradients are taken as finite, so GradScaler never skips a step")
