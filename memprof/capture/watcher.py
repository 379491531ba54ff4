"""Writes what it sees, with a pen, among the allocations: as ranges in the profiler's stream, or as notes.

Each is at its exact place, with address, dtype and shape of the tensors that it is about. No tensor is kept.
"""

from __future__ import annotations

import threading
import weakref
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from memprof.capture.looks import ModelLook, addresses
from memprof.capture.marks import NO_GRAD, TRAINING, module_mark, saved_mark, seen_mark, sight_mark
from memprof.capture.sights import (
    local,
    model_tensors,
    modules_of,
    parameters_of,
    plain_name,
    state_tensors,
    tensors_in,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from memprof.capture.pens import Pen

__all__ = ["Watcher"]

SAVED, SEEN = saved_mark(), seen_mark()


class Watcher:
    """Marks modules, what autograd saves, and which tensor is what.

    Parameters
    ----------
    pen
        What it writes with.
    """

    def __init__(self, pen: Pen) -> None:
        self._pen = pen
        self._modules: dict[int, tuple[weakref.ref[torch.nn.Module], str]] = {}
        self._parameters: dict[int, str] = {}
        self._threads = threading.local()
        self._looks: dict[int, ModelLook] = {}
        self._states: dict[int, list[int]] = {}
        """Optimizer -> where its state lay at the last look."""
        self.checkpointing_asked = False
        """Whether a module that was looked at has transformers' switch for gradient checkpointing on."""

    @contextmanager
    def hooks(self) -> Iterator[None]:
        """Follow every module and what autograd saves, until the end of the block."""
        with ExitStack() as hooks:
            hooks.callback(self._close_modules)
            # always_call: the range ends also when the forward raises, and an OOM is the case that matters most.
            hooks.callback(register_module_forward_pre_hook(self.enter).remove)
            hooks.callback(register_module_forward_hook(self.leave, always_call=True).remove)
            hooks.enter_context(saved_tensors_hooks(self.pack, self.unpack))
            yield

    def name(self, model: torch.nn.Module, prefix: str = "") -> None:
        """Give `model` and all modules in it their names."""
        for name, module in model.named_modules():
            self._modules[id(module)] = weakref.ref(module), plain_name(f"{prefix}.{name}".strip("."))

    def name_of(self, module: torch.nn.Module) -> str | None:
        """Return the name of a module; None if it was never named."""
        known, name = self._modules.get(id(module), (None, None))
        return name if known is not None and known() is module else None

    def depth(self) -> int:
        """Return how many modules are running, one inside the other, on this thread."""
        return len(self._open())

    def see(self, category: str, finer: str, tensors: Iterable[torch.Tensor], name: str = "") -> None:
        """Write one mark per tensor."""
        seen = list(tensors)
        self._pen.look_each([sight_mark(category, finer, name)] * len(seen), seen)

    def forget(self) -> None:
        """Look at everything again, when it is to be looked at, also at what has not changed."""
        self._looks.clear()
        self._states.clear()

    def see_model(self, model: torch.nn.Module, prefix: str = "") -> None:
        """Look at all that a model holds, unless it is what it held at the last look."""
        last = self._looks.get(id(model))
        if last is not None and last.still(model):
            return
        self._looks[id(model)] = ModelLook(module for _, module in modules_of(model))
        before = f"{prefix}." if prefix else ""
        marks, tensors = [], []
        for finer, tensor, name in model_tensors(model):
            full = plain_name(before + name)
            marks.append(sight_mark("weights", finer, full))
            tensors.append(tensor)
        self._pen.look_each(marks, tensors)
        for name, parameter in parameters_of(model):
            self._parameters[id(parameter)] = plain_name(before + name)
        switches = (vars(module).get("gradient_checkpointing") for _, module in modules_of(model))
        self.checkpointing_asked |= any(switch is True for switch in switches)

    def see_gradients(self, parameters: Iterable[torch.Tensor]) -> None:
        """Look at the gradients that parameters have now."""
        marks, tensors = [], []
        for parameter in parameters:
            gradient = parameter.grad
            if gradient is not None:
                marks.append(sight_mark("gradients", "parameter", self._parameters.get(id(parameter), "")))
                tensors.append(local(gradient))
        self._pen.look_each(marks, tensors)

    def see_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Look at all that an optimizer keeps, unless it lies where it lay at the last look."""
        marks, tensors = [], []
        for key, tensor, parameter in state_tensors(optimizer):
            marks.append(sight_mark("optimizer_state", key, self._parameters.get(id(parameter), "")))
            tensors.append(tensor)
        places = addresses(tensors)
        if self._states.get(id(optimizer)) != places:
            self._states[id(optimizer)] = places
            self._pen.look_each(marks, tensors)

    def enter(self, module: torch.nn.Module, _inputs: object) -> None:
        """Begin the range of a module: the global forward pre-hook."""
        if torch.compiler.is_compiling():
            return  # a graph is traced: a mark in it would break it in two
        name = self.name_of(module)
        mode = NO_GRAD if not torch.is_grad_enabled() else TRAINING if module.training else ""
        mark = module_mark(type(module).__name__ if name is None else name, mode)
        self._open().append((module, self._pen.begin(mark)))

    def leave(self, module: torch.nn.Module, _inputs: object, output: object) -> None:
        """End the range of a module, and look at what it returned: the global forward hook."""
        if torch.compiler.is_compiling():
            return
        tensors = (output,) if isinstance(output, torch.Tensor) else tuple(tensors_in(output))
        if tensors:
            self._pen.look(SEEN, tensors)
        opened = self._open()
        if opened and opened[-1][0] is module:
            self._pen.end(opened.pop()[1])

    def pack(self, tensor: torch.Tensor) -> torch.Tensor:
        """Look at what autograd saves."""
        self._pen.look(SAVED, (tensor,))
        return tensor

    def unpack(self, tensor: torch.Tensor) -> torch.Tensor:
        """Give back what autograd saved, in backward."""
        self._pen.unpacked()
        return tensor

    def _open(self) -> list[tuple[torch.nn.Module, Any]]:
        opened: list[tuple[torch.nn.Module, Any]] | None = getattr(self._threads, "open", None)
        if opened is None:
            opened = self._threads.open = []
        return opened

    def _close_modules(self) -> None:
        opened = self._open()
        while opened:
            self._pen.end(opened.pop()[1])
