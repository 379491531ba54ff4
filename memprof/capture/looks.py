"""Remembers what was looked at, so that what has not changed since needs no second look."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["ModelLook", "addresses"]


class ModelLook:
    """What a model held: how many things each of its modules had, where its tensors lay, and which are trained.

    It keeps neither the model nor a tensor, nor weak references to tensors, with which torch would not swap them
    (``torch.utils.swap_tensors``).

    Parameters
    ----------
    modules
        All modules of the model, the model first.
    """

    def __init__(self, modules: Iterable[torch.nn.Module]) -> None:
        self._modules = [(weakref.ref(module), *_held(module)) for module in modules]

    def still(self, model: torch.nn.Module) -> bool:
        """Tell whether `model` is that model, and holds what it held, in the same places.

        Memory that was freed and taken again at the same address for the same tensor is not told from what it was; nor
        is what an object inside a module holds, so that a layer with such is never the same.
        """
        if self._modules[0][0]() is not model:
            return False
        for reference, count, places in self._modules:
            module = reference()
            if module is None or places is None:
                return False
            if (count, places) != _held(module):
                return False
        return True


def _held(module: torch.nn.Module) -> tuple[int, list[int] | None]:
    """Return how much a module holds itself, and where, with what of it is trained; None if an 8-bit layer's state."""
    own = vars(module)
    parameters, buffers = own.get("_parameters", {}), own.get("_buffers", {})
    if "state" in own:
        return 0, None
    count = len(own) + len(parameters) + len(buffers) + len(own.get("_modules", ()))
    tensors = [value for value in own.values() if type(value) is torch.Tensor]
    # A parameter that is frozen is another kind of weight from then on.
    trained = [int(parameter is not None and parameter.requires_grad) for parameter in parameters.values()]
    return count, [*trained, *addresses([*parameters.values(), *buffers.values(), *tensors])]


def addresses(tensors: Iterable[Any]) -> list[int]:
    """Return where tensors lie; 0 for what is none, or has no memory of its own."""
    found = []
    for tensor in tensors:
        tensor = getattr(tensor, "_local_tensor", tensor)  # noqa: PLW2901 - the part of this process
        try:
            found.append(0 if tensor is None else tensor.data_ptr())
        except RuntimeError:
            found.append(0)
    return found
