"""Finds the tensors that a model, an optimizer or a call hold, and what they are for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["local", "managed_bytes", "model_tensors", "plain_name", "state_tensors", "tensors_in"]


def model_tensors(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor, str]]:
    """Yield (finer category, tensor, name) of all that a model holds: its weights."""
    for name, parameter in model.named_parameters():
        yield from parameter_tensors(name, parameter)
    for name, buffer in model.named_buffers():
        yield "buffer", buffer, name
    for name, module in model.named_modules():
        prefix = f"{name}." if name else ""
        for finer, tensor, attribute in int8_tensors(module):
            yield finer, tensor, prefix + attribute
        for attribute, value in vars(module).items():
            if isinstance(value, torch.Tensor) and value.grad_fn is None:
                yield "buffer", value, prefix + attribute


def plain_name(name: str) -> str:
    """Return a module's or tensor's name without what ``torch.compile`` puts around a module."""
    return name.replace("_orig_mod.", "").removesuffix("_orig_mod").removesuffix(".")


def parameter_tensors(name: str, parameter: torch.Tensor) -> list[tuple[str, torch.Tensor, str]]:
    """Return (finer category, tensor, name) of a parameter and, if it is quantized, of its quantization state."""
    state = getattr(parameter, "quant_state", None)
    if state is None:
        finer = "adapter" if parameter.requires_grad else "base"
        if not parameter.is_floating_point():
            finer = "quantized"  # Linear8bitLt without float16 weights stores int8 in the parameter itself
        return [(finer, local(parameter), name)]
    # bitsandbytes.functional.QuantState: absmax, code, and with double quantization offset and a nested state2.
    found = [("quantized", parameter, name)]
    for prefix, holder in (("", state), ("state2.", getattr(state, "state2", None))):
        for attribute in ("absmax", "code", "offset"):
            tensor = getattr(holder, attribute, None)
            if isinstance(tensor, torch.Tensor):
                found.append(("quant_state", tensor, f"{name}.{prefix}{attribute}"))
    return found


def int8_tensors(module: torch.nn.Module) -> list[tuple[str, torch.Tensor, str]]:
    """Return (finer category, tensor, attribute) of what a bitsandbytes Linear8bitLt holds beside its parameters."""
    found = []
    for holder in (getattr(module, "state", None), getattr(module, "weight", None)):
        for attribute, finer in (("CB", "quantized"), ("SCB", "quant_state")):
            tensor = getattr(holder, attribute, None)
            if isinstance(tensor, torch.Tensor):
                found.append((finer, tensor, attribute))
    return found


def state_tensors(optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """Yield (state's name, tensor, parameter) of all that an optimizer keeps."""
    for parameter, state in optimizer.state.items():
        for key, value in state.items() if isinstance(state, dict) else ():
            for tensor in tensors_in(value):
                yield str(key), local(tensor), parameter


def managed_bytes(optimizer: torch.optim.Optimizer) -> int:
    """Sum the state of a paged optimizer of bitsandbytes: memory that the driver moves and no allocator knows."""
    # get_paged in bitsandbytes/functional.py sets is_paged.
    pages = (tensor for _, tensor, _ in state_tensors(optimizer) if getattr(tensor, "is_paged", False))
    return sum({id(tensor): tensor.nbytes for tensor in pages}.values())


def tensors_in(value: object, depth: int = 3) -> Iterator[torch.Tensor]:
    """Yield the tensors in `value`, in lists, tuples and dicts down to `depth`."""
    if isinstance(value, torch.Tensor):
        yield value
    elif depth and isinstance(value, (list, tuple)):
        for part in value:
            yield from tensors_in(part, depth - 1)
    elif depth and isinstance(value, dict):
        yield from tensors_in(list(value.values()), depth)


def local(tensor: torch.Tensor) -> torch.Tensor:
    """Return this process's part of a distributed tensor; any other tensor as it is."""
    part = getattr(tensor, "_local_tensor", None)
    return part if isinstance(part, torch.Tensor) else tensor
