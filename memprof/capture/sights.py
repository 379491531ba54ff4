"""Finds the tensors that a model, an optimizer or a call hold, and what they are for."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "local",
    "managed_bytes",
    "model_tensors",
    "modules_of",
    "parameters_of",
    "plain_name",
    "state_tensors",
    "tensors_in",
]


def model_tensors(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor, str]]:
    """Yield (finer category, tensor, name) of all that a model holds: its weights."""
    modules = list(modules_of(model))
    for name, parameter in _members(modules, "_parameters"):
        yield from parameter_tensors(name, parameter)
    for name, buffer in _members(modules, "_buffers"):
        yield "buffer", buffer, name
    for name, module in modules:
        prefix = f"{name}." if name else ""
        for finer, tensor, attribute in int8_tensors(module):
            yield finer, tensor, prefix + attribute
        own = [(key, value) for key, value in vars(module).items() if _is_tensor_type(type(value))]  # type: ignore[arg-type]  # a type can be hashed
        for attribute, tensor in own:
            if tensor.grad_fn is None:
                yield "buffer", tensor, prefix + attribute


@lru_cache(1 << 12)
def _is_tensor_type(kind: type) -> bool:
    """Tell a kind of tensor; asking every attribute of every module with isinstance takes twice as long."""
    return issubclass(kind, torch.Tensor)


def parameters_of(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield what ``named_parameters`` yields."""
    return _members(list(modules_of(model)), "_parameters")


def modules_of(model: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """Yield what ``named_modules`` yields, in its order; that one resumes a generator for every level of nesting."""
    seen: set[int] = set()
    pending = [("", model)]
    while pending:
        name, module = pending.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        yield name, module
        prefix = f"{name}." if name else ""
        children = [(prefix + key, child) for key, child in module._modules.items() if child is not None]
        pending.extend(reversed(children))


def _members(modules: list[tuple[str, torch.nn.Module]], of: str) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield name and tensor of all parameters, or buffers, each once, under its first name."""
    seen: set[int] = set()
    for name, module in modules:
        prefix = f"{name}." if name else ""
        for key, tensor in vars(module).get(of, {}).items():
            if tensor is not None and id(tensor) not in seen:
                seen.add(id(tensor))
                yield prefix + key, tensor


@lru_cache(1 << 14)
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
    # Not getattr: a module's own is slow where there is nothing, as in nearly all of them.
    holders = vars(module).get("state"), vars(module).get("_parameters", {}).get("weight")
    for holder in holders:
        if holder is None:
            continue
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
