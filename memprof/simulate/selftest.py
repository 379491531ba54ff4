"""Run a small training step before the user's code, to see whether this process behaves as the simulation expects.

The allocations of the step below are known from a recording on an H200 (torch 2.11). If the simulated ones differ,
something in this installation is not what the simulation was made for, and no figure of it could be trusted.
"""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import torch

from memprof.errors import UnsupportedError
from memprof.simulate.support import advice
from memprof.trace.model import Action

if TYPE_CHECKING:
    from memprof.simulate.device import Device

__all__ = ["self_test", "step"]

_WORKSPACE = -1
"""Stands for a cuBLAS workspace, whose size depends on the card."""
_EXPECTED = (
    *(524288, 131072),  # weight and data in float32
    *(262144, 65536, 32768, _WORKSPACE),  # weight in half precision, data in half precision, product
    *(65536, 65536, 4),  # product in float32, its square, their mean
    *(4, 65536, 65536, 65536, 65536, 32768),  # gradients of loss, mean, square (three), product
    *(262144, _WORKSPACE, 524288),  # gradient of the weight, in half precision and in float32; backward has its thread
    524288,  # optimizer
)
"""Allocations of `step` in order; recorded on an H200 where both workspaces existed already."""


def step() -> None:
    """Allocate, run a layer under autocast, go back, and step an optimizer."""
    weight = torch.zeros(256, 512, device="cuda", requires_grad=True)
    data = torch.zeros(64, 512, device="cuda")
    with torch.autocast("cuda", dtype=torch.float16):
        output = torch.nn.functional.linear(data, weight)
        loss = output.float().square().mean()
    loss.backward()  # type: ignore[no-untyped-call]
    gradient = weight.grad
    assert gradient is not None
    with torch.no_grad():
        average = torch._foreach_mul([gradient], 0.1)
        torch._foreach_add_([weight], average, alpha=-0.1)
    weight.grad = None


def self_test(device: Device) -> None:
    """Run the step and compare its allocations with the known ones; the device is as new afterwards.

    Raises
    ------
    UnsupportedError
        They differ, or something is still allocated after the step.
    """
    try:
        # In a thread of its own: nodes of autograd are numbered by thread, and run in that order.
        with ThreadPoolExecutor(1) as thread:
            thread.submit(step).result()
    except Exception as error:
        raise UnsupportedError(f"the simulated device does not work with this torch ({error}); {advice()}") from error
    gc.collect()
    trace = device.memory.allocator.trace
    sizes = tuple(trace.size[row] for row in range(len(trace)) if trace.action[row] == Action.ALLOC)
    workspace = device.card.cublas_workspace_bytes
    sizes = tuple(_WORKSPACE if size == workspace else size for size in sizes)
    if sizes != _EXPECTED:
        raise UnsupportedError(f"a training step allocates {sizes} here and not {_EXPECTED}; {advice()}")
    left = sum(block.size for block in device.memory.allocator.allocated.values())
    if left != 2 * workspace:
        raise UnsupportedError(f"{left} bytes are allocated after a step instead of {2 * workspace}; {advice()}")
    device.reset()
