"""`memprof.record`: records any training loop."""

from __future__ import annotations

import gc
import os
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from torch.optim import Optimizer

from memprof.atomic import check_output
from memprof.capture.automatic import Follower
from memprof.capture.devices import MAX_ENTRIES
from memprof.capture.pens import MutedPen
from memprof.capture.ranks import own_file
from memprof.capture.recorded_steps import RecordedSteps
from memprof.capture.session import Session, choose_device, ran_out
from memprof.errors import CaptureError, MemprofError
from memprof.trace.facts import read_made_by

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    import torch

    from memprof.capture.devices import RecordedDevice
    from memprof.capture.session import CaptureResult
    from memprof.capture.step_profilers import ProfiledSteps

__all__ = ["Recording", "record"]


def record(
    output: str | Path,
    *,
    model: torch.nn.Module | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    device: str | RecordedDevice = "auto",
    steps: int | str | None = None,
    labels: bool | str = True,
    stacks: str = "python",
    max_entries: int = MAX_ENTRIES,
    profile: ProfiledSteps | None = None,
    absolute_paths: bool = False,
    made_by: dict[str, Any] | None = None,
) -> Recording:
    """Record everything that happens in the block, and write it to `output` when it ends.

    >>> with memprof.record("run.pickle") as recording:  # doctest: +SKIP
    ...     for batch in batches:
    ...         train(batch)
    ...         recording.step()

    Parameters
    ----------
    output
        The file; it appears when it is complete, and never half. Where several processes train together, each writes
        its own, with its rank in the name.
    model, optimizer
        Looked at from the beginning; without them they are found when they first run.
    device
        ``cuda``, ``cpu`` or ``auto`` (CUDA where there is one).
    steps
        Recording ends and the file is written after so many steps; what follows runs as if it were not recorded.
        ``"10-12"`` records only these, counted from 0: what came before stands in the file as memory that was there.
    labels
        True or ``"full"``; ``"light"``, which disturbs less and leaves more to the rules (CUDA only); False or
        ``"none"`` makes a plain recording, as ``_record_memory_history`` alone would.
    stacks
        ``python``, or ``all`` for C++ frames too (CUDA only).
    max_entries
        Size of the history's ring buffer.
    profile
        Steps to profile, from 1 on, into a trace of its own beside the file.
    absolute_paths
        Keep file names as they are instead of relative to site-packages or the working directory.
    made_by
        What else the file is to say of the run: plain values.

    Raises
    ------
    UsageError
        If an option has a value that it cannot have.
    CaptureError
        If something is already being recorded, or this torch cannot record what was asked for.
    OutputError
        If the file cannot be written.
    InputError
        If `made_by` is not made of plain values, or names a setting that memprof calculates with and is no number.
    """
    return Recording(
        Session(choose_device(device), labels=labels, stacks=stacks, max_entries=max_entries, profile=profile),
        check_output(output),
        model=model,
        optimizer=optimizer,
        steps=RecordedSteps.read(steps),
        absolute_paths=absolute_paths,
        made_by=read_made_by(made_by, "made_by") or {},  # what the reader would refuse is told before the run
    )


class Recording:
    """What `record` returns: enter it to begin, leave it to end and write."""

    def __init__(
        self,
        session: Session,
        path: Path,
        *,
        model: torch.nn.Module | None,
        optimizer: torch.optim.Optimizer | None,
        steps: RecordedSteps,
        absolute_paths: bool,
        made_by: dict[str, Any],
    ) -> None:
        self.result: CaptureResult | None = None
        """What was written, once it is."""
        self._session = session
        self._path = path
        self._model = model
        self._optimizer = optimizer
        self._steps = steps
        self._absolute_paths = absolute_paths
        self._made_by = made_by if steps.first is None else {"recorded_steps": str(steps), **made_by}
        self._waits = steps.first is not None
        """Steps are only counted yet; of others the recording begins with the block."""
        self._follower = Follower(self._step_ended, self._at_rest, MutedPen() if self._waits else session.pen)
        self._hooks = ExitStack()
        self._running = False
        self._last_step = -1
        self._process = os.getpid()

    def __enter__(self) -> Recording:  # noqa: PYI034 - typing.Self is newer than Python 3.10
        """Begin recording."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End recording, write the file if the run ended by itself, by Ctrl-C or because memory ran out."""
        self.finish(error)

    def start(self, *, counts_steps: bool = False) -> None:
        """Begin recording, for where a block is not to be had, such as callbacks.

        `counts_steps`: `step` will be called, so nothing else ends a step.
        """
        if _active:
            raise CaptureError("a recording runs already in this process; end it before you begin another")
        if not self._waits:
            self._session.start()
        _active.append(self)
        self._running = True
        if counts_steps:
            self._follower.expect_steps()
        try:
            if self._session.labels or self._steps.last is not None:
                self._hooks.enter_context(self._follower.hooks())
                if self._model is not None:
                    self._follower.adopt(self._model)
                known = _optimizers() if self._optimizer is None else [self._optimizer]
                for optimizer in known:
                    self._follower.follow(optimizer)
        except BaseException:
            self.abandon()
            raise
        self._model = self._optimizer = None

    def step(self) -> None:
        """End a step. Without any call, steps are counted by their forwards and backwards."""
        if self._running:
            if not self._follower.told and not self._waits:
                self._session.forget_figures()
            self._follower.end_step()

    def finish(self, error: BaseException | None = None) -> None:
        """End recording and write the file; `error` is what ended the run.

        After an error that is neither memory running out, nor Ctrl-C, nor an exit, nothing is written.
        """
        if not self._running or os.getpid() != self._process:  # a fork leaves the file to its parent
            return
        if ran_out(error):
            self._end("oom", error)
        elif error is None or isinstance(error, SystemExit):
            self._end("ok", error)
        elif isinstance(error, KeyboardInterrupt):
            self._end("interrupted", error)
        else:
            self.abandon()

    def abandon(self) -> None:
        """End recording and drop it."""
        self._switch_off()
        self._session.abandon()

    def _step_ended(self, step: int) -> None:
        self._last_step = step
        if not self._waits:
            self._session.read_figures(step, self._follower.managed_bytes())

    def _at_rest(self) -> None:
        if not self._running:
            return
        if self._waits and self._steps.first is not None and self._follower.step >= self._steps.first:
            self._waits = False
            self._session.start()
            if self._session.labels:
                self._follower.write_with(self._session.pen)
        elif self._steps.last is not None and self._last_step >= self._steps.last:
            self._end("ok", None)

    def _end(self, status: str, error: BaseException | None) -> None:
        if self._waits:
            self._switch_off()
            lacking = CaptureError(
                f"--steps {self._steps}: the run ended in step {self._follower.step}; nothing was recorded"
            )
            self._tell_or_raise(lacking, error)
            return
        try:
            if self._session.labels:
                self._follower.look()
            self._session.read_figures(self._follower.step, self._follower.managed_bytes())
            self._switch_off()
            self._session.stop()
        except BaseException:
            self.abandon()
            raise
        try:
            self.result = self._session.write(
                own_file(self._path),
                status=status,
                reason=str(error).splitlines()[0] if status == "oom" else None,
                absolute_paths=self._absolute_paths,
                made_by={
                    **self._made_by,
                    **({"gradient_checkpointing_asked": True} if self._follower.checkpointing_asked else {}),
                },
            )
        except MemprofError as failure:
            self._tell_or_raise(failure, error)
            return
        if status == "oom":
            _tell_what_held(self.result)

    @staticmethod
    def _tell_or_raise(failure: MemprofError, error: BaseException | None) -> None:
        if error is None or (isinstance(error, SystemExit) and not error.code):
            raise failure
        # The run's own error is on its way, and is the one to be seen.
        sys.stderr.write(f"memprof: {failure}\n")

    def _switch_off(self) -> None:
        self._running = False
        if self in _active:
            _active.remove(self)
        self._hooks.close()


_active: list[Recording] = []
"""The recording that runs, if there is one."""


def _optimizers() -> list[torch.optim.Optimizer]:
    """Return the optimizers that there are: their state may have been made before the recording, and never step in it.

    By their types, because asking an object for its class may run code of it.
    """
    return [found for found in gc.get_objects() if issubclass(type(found), Optimizer)]


def _tell_what_held(result: CaptureResult) -> None:
    """Print what the memory was for when it ran out, on stderr."""
    from memprof.analysis.breakdown import break_down
    from memprof.report.console import breakdown_report, make_console
    from memprof.trace import load

    console = make_console(stderr=True)
    console.print(f"memprof: out of memory: {result.reason}", highlight=False, markup=False)
    trace = load(str(result.path))
    try:
        found = break_down(trace, at="oom", top=5)
    except MemprofError:  # the CPU has no event for it: the recording ended there
        found = break_down(trace, at="end", top=5)
    console.print(breakdown_report(found))
    console.print(f"memprof: wrote {result.path}", highlight=False, markup=False)
