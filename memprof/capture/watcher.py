"""Writes what it sees into the stream of the profiler's op ranges, as ranges whose names begin with `marks.MARK`.

Each is at its exact place among the allocations, and the profiler stores address, dtype and shape of a tensor that is
given to it. No tensor is kept.
"""

from __future__ import annotations

import threading
import weakref
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch._C._profiler import _RecordFunctionFast
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from memprof.capture.marks import NO_GRAD, TRAINING, module_mark, saved_mark, seen_mark, sight_mark
from memprof.capture.sights import local, model_tensors, plain_name, state_tensors, tensors_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["Watcher"]


class Watcher:
    """Marks modules, what autograd saves, and which tensor is what."""

    def __init__(self) -> None:
        self._modules: dict[int, tuple[weakref.ref[torch.nn.Module], str]] = {}
        self._parameters: dict[int, str] = {}
        self._threads = threading.local()

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
        mark = sight_mark(category, finer, name)
        for tensor in tensors:
            with _RecordFunctionFast(mark, (tensor,)):
                pass

    def see_model(self, model: torch.nn.Module, prefix: str = "") -> None:
        """Look at all that a model holds."""
        before = f"{prefix}." if prefix else ""
        for finer, tensor, name in model_tensors(model):
            self.see("weights", finer, (tensor,), plain_name(before + name))
        for name, parameter in model.named_parameters():
            self._parameters[id(parameter)] = plain_name(before + name)

    def see_gradients(self, parameters: Iterable[torch.Tensor]) -> None:
        """Look at the gradients that parameters have now."""
        for parameter in parameters:
            if parameter.grad is not None:
                name = self._parameters.get(id(parameter), "")
                self.see("gradients", "parameter", (local(parameter.grad),), name)

    def see_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Look at all that an optimizer keeps."""
        for key, tensor, parameter in state_tensors(optimizer):
            self.see("optimizer_state", key, (tensor,), self._parameters.get(id(parameter), ""))

    def enter(self, module: torch.nn.Module, _inputs: object) -> None:
        """Begin the range of a module: the global forward pre-hook."""
        if torch.compiler.is_compiling():
            return  # a graph is traced: a mark in it would break it in two
        name = self.name_of(module)
        mode = NO_GRAD if not torch.is_grad_enabled() else TRAINING if module.training else ""
        mark = _RecordFunctionFast(module_mark(type(module).__name__ if name is None else name, mode))
        mark.__enter__()
        self._open().append((module, mark))

    def leave(self, module: torch.nn.Module, _inputs: object, output: object) -> None:
        """End the range of a module, and look at what it returned: the global forward hook."""
        if torch.compiler.is_compiling():
            return
        tensors = tuple(tensors_in(output))
        if tensors:
            with _RecordFunctionFast(seen_mark(), tensors):
                pass
        opened = self._open()
        if opened and opened[-1][0] is module:
            opened.pop()[1].__exit__(None, None, None)

    def pack(self, tensor: torch.Tensor) -> torch.Tensor:
        """Look at what autograd saves."""
        with _RecordFunctionFast(saved_mark(), (tensor,)):
            pass
        return tensor

    def unpack(self, tensor: torch.Tensor) -> torch.Tensor:
        """Give back what autograd saved, in backward."""
        return tensor

    def _open(self) -> list[tuple[torch.nn.Module, Any]]:
        opened: list[tuple[torch.nn.Module, Any]] | None = getattr(self._threads, "open", None)
        if opened is None:
            opened = self._threads.open = []
        return opened

    def _close_modules(self) -> None:
        opened = self._open()
        while opened:
            opened.pop()[1].__exit__(None, None, None)
