"""Follows a run that tells nothing: models, optimizers and steps are found through torch's global hooks."""

from __future__ import annotations

import weakref
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from memprof.capture.looks import addresses
from memprof.capture.marks import TOLD, step_mark
from memprof.capture.sights import managed_bytes
from memprof.capture.watcher import Watcher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from memprof.capture.pens import Pen

__all__ = ["Follower"]


class Follower(Watcher):
    """Marks what a `Watcher` marks, in any training loop, and counts its steps.

    A step begins with the first forward that has autograd on after a backward, so each micro-batch of an accumulated
    gradient is one; once `end_step` was called, only it ends steps, and what was counted before was the first. A model
    is found when its first forward begins, an optimizer when it first steps.

    Parameters
    ----------
    step_ended
        Called with the step's number when a step ended.
    at_rest
        Called after that, when no op runs and nobody's hooks for what autograd saves lie above the follower's: the
        hooks may be removed then.
    pen
        What it writes with.
    """

    def __init__(self, step_ended: Callable[[int], None], at_rest: Callable[[], None], pen: Pen) -> None:
        super().__init__(pen)
        self._step_ended = step_ended
        self._at_rest = at_rest
        self._models: list[tuple[weakref.ref[torch.nn.Module], str]] = []
        self._optimizers: dict[int, weakref.ref[torch.optim.Optimizer]] = {}
        self._gradient_hooks = ExitStack()
        self._fresh: set[int] = set()
        """Models that did not finish a forward yet."""
        self.told = False
        """The run counts its steps itself."""
        self._backward = False
        self._ended = False
        self._stepping: list[Any] = []
        """Ranges of the optimizer steps that run, one inside the other, and where gradients lay before each."""
        self.step = -1
        """Number of the step that runs; -1 before the first."""

    @contextmanager
    def hooks(self) -> Iterator[None]:
        """Follow everything until the end of the block."""
        with ExitStack() as hooks:
            hooks.callback(self._gradient_hooks.close)
            hooks.callback(self._end)
            hooks.callback(register_optimizer_step_pre_hook(self._before_step).remove)
            hooks.callback(register_optimizer_step_post_hook(self._after_step).remove)
            hooks.enter_context(super().hooks())
            yield

    def adopt(self, model: torch.nn.Module) -> None:
        """Name a model and look at it, now and after every optimizer step; its gradients when they appear."""
        inside = {id(module) for module in model.modules()}
        self._models = [(known, name) for known, name in self._models if id(known()) not in inside and known()]
        taken = {name for _, name in self._models}
        prefix = type(model).__name__ if "" in taken else ""
        number = 2
        while prefix in taken:
            prefix, number = f"{type(model).__name__}_{number}", number + 1
        self._models.append((weakref.ref(model), prefix))
        self._fresh.add(id(model))
        self.name(model, prefix)
        self.see_model(model, prefix)
        for parameter in model.parameters():
            if parameter.requires_grad and parameter.is_leaf:
                hook = parameter.register_post_accumulate_grad_hook(self._accumulated)  # type: ignore[no-untyped-call]  # torch's
                self._gradient_hooks.callback(hook.remove)

    def follow(self, optimizer: torch.optim.Optimizer) -> None:
        """Look at an optimizer whose step may have been missed."""
        self._optimizers[id(optimizer)] = weakref.ref(optimizer)
        self.see_optimizer(optimizer)

    def look(self) -> None:
        """Look at everything that is known."""
        self.forget()
        for model, prefix in self._models:
            if (found := model()) is not None:
                self.see_model(found, prefix)
                self.see_gradients(found.parameters())
        for optimizer in self._known_optimizers():
            self.see_gradients(_trained(optimizer))
            self.see_optimizer(optimizer)

    def managed_bytes(self) -> int | None:
        """Return what the optimizers have of managed memory; None where there is none."""
        found = self._known_optimizers()
        return sum(map(managed_bytes, found)) if found else None

    def write_with(self, pen: Pen) -> None:
        """Begin to write with `pen`, in the middle of the run: the step that runs, and everything that is there."""
        self._pen = pen
        self._mark_step()
        self.look()

    def expect_steps(self) -> None:
        """Know from the beginning that the run counts its steps."""
        self.told = True

    def end_step(self) -> None:
        """Count a step because the run says so."""
        if not self.told:
            self.told = True
            self.step = min(self.step, 0)
        self._next_step()
        self._rest()

    def enter(self, module: torch.nn.Module, _inputs: object) -> None:
        """Begin the range of a module; an outermost one may begin a step, and be new."""
        if torch.compiler.is_compiling():
            return
        if not self.depth() and not _in_backward():
            if torch.is_grad_enabled():
                self._forward_begins()
            self._rest()
            if self._ended:
                return
            if self.name_of(module) is None:
                self.adopt(module)
        super().enter(module, _inputs)

    def leave(self, module: torch.nn.Module, _inputs: object, output: object) -> None:
        """End the range of a module."""
        if torch.compiler.is_compiling():
            return
        super().leave(module, _inputs, output)
        if id(module) in self._fresh:
            # int8 layers make their quantized weight in the first forward.
            self._fresh.discard(id(module))
            prefix = self.name_of(module)
            if prefix is not None:
                self.see_model(module, prefix)

    def pack(self, tensor: torch.Tensor) -> torch.Tensor:
        """Look at what autograd saves; outside modules it may begin a step."""
        if not self.depth() and not _in_backward():
            self._forward_begins()
        return super().pack(tensor)

    def unpack(self, tensor: torch.Tensor) -> torch.Tensor:
        """Give back what autograd saved: a backward runs."""
        self._backward = True
        return super().unpack(tensor)

    def _forward_begins(self) -> None:
        if self.step < 0 or (self._backward and not self.told):
            self._next_step()

    def _rest(self) -> None:
        top = torch._C._autograd._top_saved_tensors_default_hooks(True)
        if top is not None and top[0] == self.pack:
            self._at_rest()

    def _end(self) -> None:
        self._ended = True

    def _next_step(self) -> None:
        if self.step >= 0:
            self._step_ended(self.step)
        self.step += 1
        self._backward = False
        self._mark_step()

    def _mark_step(self) -> None:
        self._pen.look(step_mark(self.step, TOLD if self.told else ""), ())

    def _accumulated(self, parameter: torch.Tensor) -> None:
        self._backward = True
        self.see_gradients((parameter,))

    def _before_step(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        self._optimizers.setdefault(id(optimizer), weakref.ref(optimizer))
        trained = _trained(optimizer)
        self.see_gradients(trained)
        self._stepping.append((self._pen.optimizer_begins(), _gradient_addresses(trained)))

    def _after_step(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        begun, places = self._stepping.pop() if self._stepping else (None, None)
        self._pen.end(begun)
        self.see_optimizer(optimizer)
        if places != _gradient_addresses(_trained(optimizer)):
            self.see_gradients(_trained(optimizer))
        for model, prefix in self._models:
            if (found := model()) is not None:
                self.see_model(found, prefix)
        for parameter in _trained(optimizer):
            if id(parameter) not in self._parameters:
                self.see("weights", "adapter", (parameter,))

    def _known_optimizers(self) -> list[torch.optim.Optimizer]:
        return [found for known in self._optimizers.values() if (found := known()) is not None]


def _trained(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _gradient_addresses(parameters: list[torch.Tensor]) -> list[int]:
    return addresses(parameter.grad for parameter in parameters)


def _in_backward() -> bool:
    return bool(torch._C._current_graph_task_id() != -1)
