"""What a recipe tells the recorder while it runs: phases, the model, and tensors whose role it knows.

A recipe calls an `Observer` at the places where memory changes its meaning. The plain one only reads the allocator's
own figures, so that a recording without labels runs the same code. `LabellingObserver` also marks what it sees.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from torch.profiler import record_function

from memprof.capture.marks import phase_mark
from memprof.capture.sights import managed_bytes, parameters_of
from memprof.capture.watcher import Watcher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import torch

    from memprof.capture.pens import Pen

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
        self.begun: Callable[[int], None] = lambda _step: None
        """Called with the step's number when a phase begins."""
        self._read_figures = read_figures
        self._optimizer: torch.optim.Optimizer | None = None

    def __enter__(self) -> Observer:  # noqa: PYI034 - typing.Self is newer than Python 3.10
        """Begin to follow a run."""
        return self

    def __exit__(self, *error: object) -> None:
        """Forget the run."""
        self._optimizer = None

    @contextmanager
    def phase(self, name: str, step: int) -> Iterator[None]:  # noqa: ARG002 - the labelling observer needs it
        """Run one phase (init, forward, backward, optimizer, eval or between) of micro-step `step` (-1: before any)."""
        self.begun(step)
        yield

    @contextmanager
    def step(self, step: int) -> Iterator[None]:
        """Run micro-step `step`."""
        with record_function(f"## step {step} ##"):
            yield

    def end_step(self, step: int) -> None:
        """Read the allocator's figures after micro-step `step`."""
        self._read_figures(step)

    def managed_bytes(self) -> int | None:
        """Return what the optimizer has of managed memory; None where there is no optimizer."""
        return None if self._optimizer is None else managed_bytes(self._optimizer)

    def see(self, category: str, finer: str, tensors: Iterable[torch.Tensor], name: str = "") -> None:
        """Say that `tensors` are of `category` and `finer` (and are called `name`)."""

    def watch(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer | None = None) -> None:  # noqa: ARG002 - the labelling observer needs the model
        """Name the model and its optimizer, whose tensors are looked at now and when phases end."""
        self._optimizer = optimizer


class LabellingObserver(Observer):
    """Marks phases, modules, what autograd saves, and which tensor is what.

    Parameters
    ----------
    read_figures
        As of `Observer`.
    pen
        What it writes with.
    """

    def __init__(self, read_figures: Callable[[int], None], pen: Pen) -> None:
        super().__init__(read_figures)
        self._model: torch.nn.Module | None = None
        self._pen = pen
        self._watcher = Watcher(pen)
        self._hooks = ExitStack()

    def __enter__(self) -> LabellingObserver:  # noqa: PYI034 - typing.Self is newer than Python 3.10
        """Register the global hooks."""
        self._hooks.enter_context(self._watcher.hooks())
        return self

    def __exit__(self, *error: object) -> None:
        """Remove every hook and forget the run."""
        self._hooks.close()
        self._model = None
        self._watcher = Watcher(self._pen)
        super().__exit__(*error)

    @contextmanager
    def phase(self, name: str, step: int) -> Iterator[None]:
        """Run one phase inside a mark, and look at the tensors that the model and the optimizer hold at its end."""
        self.begun(step)
        with self._phase(phase_mark(name, step)):
            yield
            if self._model is None:
                return
            if name in ("backward", "optimizer"):
                self._watcher.see_gradients(parameter for _, parameter in parameters_of(self._model))
            if name == "optimizer" and self._optimizer is not None:
                self._watcher.see_optimizer(self._optimizer)
            if name in ("init", "forward", "optimizer"):
                # After forward: int8 layers make their quantized weight there.
                self._watcher.see_model(self._model)

    @contextmanager
    def _phase(self, mark: str) -> Iterator[None]:
        begun = self._pen.begin(mark)
        try:
            yield
        finally:
            self._pen.end(begun)

    def see(self, category: str, finer: str, tensors: Iterable[torch.Tensor], name: str = "") -> None:
        """Write one mark per tensor."""
        self._watcher.see(category, finer, tensors, name)

    def watch(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer | None = None) -> None:
        """Name the modules of `model`, and look at everything that both hold, now and from now on."""
        super().watch(model, optimizer)
        self._model = model
        self._watcher.name(model)
        self._watcher.see_model(model)
