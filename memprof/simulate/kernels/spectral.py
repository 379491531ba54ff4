"""Fourier transforms, which cuFFT computes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memprof.simulate.kernels.registry import temporaries

if TYPE_CHECKING:
    import torch

    from memprof.simulate.device import Device

__all__: list[str] = []

_SMALL_PRIMES = (2, 3, 5, 7)
"""Lengths of these factors were recorded without a workspace (up to 768); one of 43 with one of the output's size."""


@temporaries("_fft_c2c")
def _complex(device: Device, op: Any, output: torch.Tensor, args: Any, _kwargs: Any) -> None:
    _workspace(device, op, output.numel() * output.element_size(), [output.size(dim) for dim in args[1]])


@temporaries("_fft_r2c")
def _from_real(device: Device, op: Any, output: torch.Tensor, args: Any, _kwargs: Any) -> None:
    """Transform the last dimension, then the others between two tensors (``_fft_r2c_cufft``)."""
    nbytes = output.numel() * output.element_size()
    other = device.temporary(nbytes if len(args[1]) > 1 else 0)
    _workspace(device, op, nbytes, [args[0].size(dim) for dim in args[1]])
    other.free()


@temporaries("_fft_c2r")
def _to_real(device: Device, op: Any, output: torch.Tensor, args: Any, _kwargs: Any) -> None:
    """Copy the input, which cuFFT overwrites (``_fft_c2r_cufft``, ``ATen/native/cuda/SpectralOps.cpp``)."""
    nbytes = args[0].numel() * args[0].element_size()
    copy = device.temporary(nbytes)
    _workspace(device, op, nbytes, [output.size(dim) for dim in args[1]])
    copy.free()


def _workspace(device: Device, op: Any, nbytes: int, lengths: list[int]) -> None:
    if all(_is_smooth(length) for length in lengths):
        return
    device.caveats.add("temporaries", op._schema.name, nbytes)
    device.temporary(nbytes).free()


def _is_smooth(length: int) -> bool:
    for prime in _SMALL_PRIMES:
        while length and length % prime == 0:
            length //= prime
    return length <= 1
