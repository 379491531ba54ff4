"""Ops on images whose CUDA kernels work on contiguous tensors only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memprof.simulate.kernels.registry import copied, temporaries

if TYPE_CHECKING:
    from memprof.simulate.device import Device

__all__: list[str] = []


@temporaries("adaptive_max_pool2d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa")
def _into_contiguous(device: Device, _op: object, outputs: Any, args: Any, _kwargs: Any) -> None:
    """Write into contiguous tensors that are copied (``AdaptiveMaxPooling2d.cu``, ``UpSampleBilinear2d.cu``)."""
    written = outputs if isinstance(outputs, (list, tuple)) else (outputs,)
    copied(device, *written, args[0])


@temporaries("adaptive_max_pool2d_backward")
def _adaptive_max_backward(device: Device, _op: object, output: Any, args: Any, _kwargs: Any) -> None:
    gradient, indices = args[0], args[2]
    copied(device, gradient, indices, output)


@temporaries(
    "_upsample_bilinear2d_aa_backward", "_upsample_bicubic2d_aa_backward", "upsample_bicubic2d_backward",
    "reflection_pad1d", "reflection_pad2d", "reflection_pad1d_backward", "reflection_pad2d_backward",
)  # fmt: skip
def _from_contiguous(device: Device, _op: object, _output: Any, args: Any, _kwargs: Any) -> None:
    copied(device, args[0])
