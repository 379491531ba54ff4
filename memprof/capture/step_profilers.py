"""The profilers of a recording, one after the other.

torch's profiler writes whole sessions, and only some steps are to be in the profile. Outside of them it records what
labels need; in them also what devices do. Together they are one record: `read_timeline` takes all of them.
"""

from __future__ import annotations

import re
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch.profiler import ProfilerActivity, record_function

from memprof.capture.profiler import profiled
from memprof.capture.trace_file import ExportedTrace
from memprof.errors import UsageError

if TYPE_CHECKING:
    from torch.profiler import profile

__all__ = ["ProfiledSteps", "StepProfilers", "chosen_steps"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledSteps:
    """Which steps are profiled, and how."""

    first: int
    last: int
    stacks: bool = False
    """Record Python's calls (``with_stack``): four fifths of the trace, and most of the time that profiling takes."""


def chosen_steps(text: str | None, steps: int | None, *, stacks: bool) -> ProfiledSteps:
    """Read ``N`` or ``N-M``; without it take the last of a run of so many `steps`.

    Of a run whose number of steps nobody knows (None) it is step 1: where step 0 begins is not known either.

    Raises
    ------
    UsageError
        If it is neither, or the run has no such step.
    """
    if text is None:
        step = 1 if steps is None else steps - 1
        return ProfiledSteps(first=step, last=step, stacks=stacks)
    match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", text)
    if match is None or int(match[1]) > int(match[2] or match[1]):
        raise UsageError(f"--profile-steps {text}: give a step, such as 1, or a range, such as 1-3, counted from 0")
    chosen = ProfiledSteps(first=int(match[1]), last=int(match[2] or match[1]), stacks=stacks)
    if steps is None:
        if not chosen.first:
            raise UsageError(f"--profile-steps {text}: where step 0 begins is not known; begin with 1 or later")
    elif chosen.last >= steps:
        raise UsageError(f"--profile-steps {text}: the run has steps 0 to {steps - 1}")
    return chosen


class StepProfilers:
    """Enter it to begin, leave it to end; `finished` then holds what was recorded, in order.

    Parameters
    ----------
    throughout
        Record ops and memory outside the chosen steps too.
    tensors
        Record which tensors ops are given.
    gpu
        Follow what a real CUDA device does in the chosen steps.
    chosen
        Steps to profile; None for none.
    """

    def __init__(self, *, throughout: bool, tensors: bool, gpu: bool, chosen: ProfiledSteps | None) -> None:
        self.finished: list[profile] = []
        self.traced: ExportedTrace | None = None
        """The profile of the chosen steps, once they are over."""
        self._throughout = throughout
        self._tensors = tensors
        self._activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if gpu else [])]
        self._chosen = chosen
        self._step: int | None = None
        """The step that is being profiled."""
        self._open: profile | None = None
        self._around = ExitStack()
        self._range = ExitStack()

    def __enter__(self) -> StepProfilers:  # noqa: PYI034 - typing.Self is newer than Python 3.10
        """Begin to record."""
        self._begin_plain()
        return self

    def __exit__(self, *error: object) -> None:
        """End whatever is being recorded."""
        self._end()

    def step_begins(self, step: int) -> None:
        """Say that `step` begins, or goes on."""
        chosen = self._chosen
        if chosen is None or self.traced is not None or step == self._step or not chosen.first <= step <= chosen.last:
            return
        if self._step is None:
            self._end()
            self._open = self._around.enter_context(
                profiled(tensors=True, activities=self._activities, stacks=chosen.stacks)
            )
        self._range.close()
        # What Holistic Trace Analysis, TensorBoard and Perfetto know a step by.
        self._range.enter_context(record_function(f"ProfilerStep#{step}"))
        self._step = step

    def step_ended(self, step: int) -> None:
        """Say that `step` is over; the next begins, for all that is known."""
        if self._step is not None and self._chosen is not None and step >= self._chosen.last:
            self._end()
            self._begin_plain()
        elif step >= 0:
            self.step_begins(step + 1)

    def _begin_plain(self) -> None:
        if self._throughout:
            self._open = self._around.enter_context(profiled(tensors=self._tensors))

    def _end(self) -> None:
        self._range.close()
        self._around.close()
        if self._open is not None:
            self.finished.append(self._open)
            if self._step is not None:
                self.traced = ExportedTrace(self._open)
        self._open = self._step = None
