"""What a recipe tells the recorder while it runs: phases, the model, and tensors whose role it knows.

A recipe calls an `Observer` at the places where memory changes its meaning. The plain one only reads the allocator's
own figures, so that a recording without labels runs the same code. `LabellingObserver` also writes what it sees into
the stream of the profiler's op ranges, as ranges whose names begin with `MARK`: each is at its exact place among the
allocations, and the profiler stores address, dtype and shape of a tensor that is given to it. No tensor is kept.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch._C._profiler import _RecordFunctionFast
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.profiler import record_function

from memprof.capture.marks import module_mark, phase_mark, saved_mark, seen_mark, sight_mark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["LabellingObserver", "Observer", "Recipe"]


class Recipe(Protocol):
    """A training run that can be recorded: a frozen configuration that knows how to run itself."""

    @property
    def recipe(self) -> str:
        """Name of the recipe, such as ``lit_gpt_2023``."""

    @property
    def micro_steps(self) -> int:
        """How many steps the run has in all."""

    def settings(self) -> dict[str, Any]:
        """Return the configuration as plain values, as the file stores it."""

    def check(self, device: torch.device) -> None:
        """Raise `CaptureError` if the run cannot work on `device`."""

    def run(self, device: torch.device, observer: Observer) -> object:
        """Build everything and train, telling `observer` what happens; return what is to be alive at the end."""


class Observer:
    """Follows a run without looking at it: phases are not recorded, steps are counted, figures are read.

    Parameters
    ----------
    read_figures
        Called with the step's number at the end of every step.
    """

    def __init__(self, read_figures: Callable[[int], None]) -> None:
        self._read_figures = read_figures

    @contextmanager
    def phase(self, name: str, step: int) -> Iterator[None]:  # noqa: ARG002 - the labelling observer needs both
        """Run one phase (init, forward, backward, optimizer, eval or between) of micro-step `step` (-1: before any)."""
        yield

    @contextmanager
    def step(self, step: int) -> Iterator[None]:
        """Run micro-step `step`; the allocator's figures are read when it ends without an error."""
        with record_function(f"## step {step} ##"):
            yield

    def end_step(self, step: int) -> None:
        """Read the allocator's figures after micro-step `step`."""
        self._read_figures(step)

    def see(self, category: str, finer: str, tensors: Iterable[torch.Tensor], name: str = "") -> None:
        """Say that `tensors` are of `category` and `finer` (and are called `name`)."""

    def watch(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer | None = None) -> None:
        """Name the model and its optimizer, whose tensors are looked at now and when phases end."""


class LabellingObserver(Observer):
    """Writes marks into the profiler's stream: phases, modules, what autograd saves, and which tensor is what.

    Parameters
    ----------
    read_figures
        As of `Observer`.
    """

    def __init__(self, read_figures: Callable[[int], None]) -> None:
        super().__init__(read_figures)
        self._model: torch.nn.Module | None = None
        self._optimizer: torch.optim.Optimizer | None = None
        self._names: dict[int, str] = {}
        self._open_modules: list[Any] = []
        self._hooks = ExitStack()

    def __enter__(self) -> LabellingObserver:  # noqa: PYI034 - typing.Self is newer than Python 3.10
        """Register the global hooks."""
        with ExitStack() as hooks:
            hooks.callback(self._close_modules)
            # always_call: the range ends also when the forward raises, and an OOM is the case that matters most.
            pre = register_module_forward_pre_hook(self._enter_module)
            hooks.callback(pre.remove)
            post = register_module_forward_hook(self._leave_module, always_call=True)
            hooks.callback(post.remove)
            hooks.enter_context(saved_tensors_hooks(_pack, _unpack))
            self._hooks = hooks.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        """Remove every hook and forget the model."""
        self._hooks.close()
        self._model = self._optimizer = None
        self._names = {}

    @contextmanager
    def phase(self, name: str, step: int) -> Iterator[None]:
        """Run one phase inside a mark, and look at the tensors that the model and the optimizer hold at its ends."""
        with _RecordFunctionFast(phase_mark(name, step)):
            yield
            if name in ("init", "forward"):
                # After forward: int8 layers make their quantized weight there.
                self._see_model()
            if name == "backward":
                self._see_gradients()
            if name == "optimizer":
                self._see_gradients()
                self._see_optimizer()
                self._see_model()

    def see(self, category: str, finer: str, tensors: Iterable[torch.Tensor], name: str = "") -> None:
        """Write one mark per tensor."""
        mark = sight_mark(category, finer, name)
        for tensor in tensors:
            with _RecordFunctionFast(mark, (tensor,)):
                pass

    def watch(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer | None = None) -> None:
        """Name the modules of `model`, and look at everything that both hold, now and from now on."""
        self._model, self._optimizer = model, optimizer
        self._names = {id(module): name for name, module in model.named_modules()}
        self._see_model()

    def _enter_module(self, module: torch.nn.Module, _inputs: object) -> None:
        name = self._names.get(id(module))
        if name is None:
            name = type(module).__name__
        mark = _RecordFunctionFast(module_mark(name))
        mark.__enter__()
        self._open_modules.append((module, mark))

    def _leave_module(self, module: torch.nn.Module, _inputs: object, output: object) -> None:
        tensors = tuple(tensors_in(output))
        if tensors:
            with _RecordFunctionFast(seen_mark(), tensors):
                pass
        if self._open_modules and self._open_modules[-1][0] is module:
            self._open_modules.pop()[1].__exit__(None, None, None)

    def _close_modules(self) -> None:
        while self._open_modules:
            self._open_modules.pop()[1].__exit__(None, None, None)

    def _see_model(self) -> None:
        if self._model is None:
            return
        for name, parameter in self._model.named_parameters():
            for category, finer, tensor, full_name in parameter_tensors(name, parameter):
                self.see(category, finer, (tensor,), full_name)
        for name, buffer in self._model.named_buffers():
            self.see("weights", "buffer", (buffer,), name)
        for name, module in self._model.named_modules():
            for finer, tensor, attribute in int8_tensors(module):
                self.see("weights", finer, (tensor,), f"{name}.{attribute}".removeprefix("."))

    def _see_gradients(self) -> None:
        if self._model is None:
            return
        for name, parameter in self._model.named_parameters():
            if parameter.grad is not None:
                self.see("gradients", "parameter", (parameter.grad,), name)

    def _see_optimizer(self) -> None:
        if self._optimizer is None or self._model is None:
            return
        names = {id(parameter): name for name, parameter in self._model.named_parameters()}
        for parameter, state in self._optimizer.state.items():
            for key, value in state.items():
                if isinstance(value, torch.Tensor):
                    self.see("optimizer_state", str(key), (value,), names.get(id(parameter), ""))


def parameter_tensors(name: str, parameter: torch.Tensor) -> list[tuple[str, str, torch.Tensor, str]]:
    """Return (category, finer, tensor, name) of a parameter and, if it is quantized, of its quantization state."""
    state = getattr(parameter, "quant_state", None)
    if state is None:
        finer = "adapter" if parameter.requires_grad else "base"
        if not parameter.is_floating_point():
            finer = "quantized"  # Linear8bitLt without float16 weights stores int8 in the parameter itself
        return [("weights", finer, parameter, name)]
    # bitsandbytes.functional.QuantState: absmax, code, and with double quantization offset and a nested state2.
    found = [("weights", "quantized", parameter, name)]
    for prefix, holder in (("", state), ("state2.", getattr(state, "state2", None))):
        for attribute in ("absmax", "code", "offset"):
            tensor = getattr(holder, attribute, None)
            if isinstance(tensor, torch.Tensor):
                found.append(("weights", "quant_state", tensor, f"{name}.{prefix}{attribute}"))
    return found


def int8_tensors(module: torch.nn.Module) -> list[tuple[str, torch.Tensor, str]]:
    """Return (finer, tensor, attribute) of what a bitsandbytes Linear8bitLt holds beside its parameters."""
    found = []
    for holder in (getattr(module, "state", None), getattr(module, "weight", None)):
        for attribute, finer in (("CB", "quantized"), ("SCB", "quant_state")):
            tensor = getattr(holder, attribute, None)
            if isinstance(tensor, torch.Tensor):
                found.append((finer, tensor, attribute))
    return found


def tensors_in(value: object, depth: int = 3) -> Iterator[torch.Tensor]:
    """Yield the tensors in `value`, in lists, tuples and dicts down to `depth`."""
    if isinstance(value, torch.Tensor):
        yield value
    elif depth and isinstance(value, (list, tuple)):
        for part in value:
            yield from tensors_in(part, depth - 1)
    elif depth and isinstance(value, dict):
        yield from tensors_in(list(value.values()), depth)


def _pack(tensor: torch.Tensor) -> torch.Tensor:
    with _RecordFunctionFast(saved_mark(), (tensor,)):
        pass
    return tensor


def _unpack(tensor: torch.Tensor) -> torch.Tensor:
    return tensor
