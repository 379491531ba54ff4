"""One recording: history, profiler and figures from start to end, labels after it, one file out of it."""

from __future__ import annotations

import gc
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from memprof import __version__
from memprof.capture.assemble import add_labels, peak_of
from memprof.capture.choices import check_device, check_labels, check_max_entries, check_stacks
from memprof.capture.devices import CpuDevice, CudaDevice
from memprof.capture.environment import describe_environment
from memprof.capture.notes import NotePen, timeline_of
from memprof.capture.paths import command_line, shorten_paths
from memprof.capture.pens import ProfilerPen
from memprof.capture.profiler import read_timeline
from memprof.capture.step_profilers import StepProfilers
from memprof.capture.trace_file import ExportedTrace, trace_path
from memprof.trace.writer import write_snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from memprof.capture.devices import RecordedDevice
    from memprof.capture.pens import Pen
    from memprof.capture.step_profilers import ProfiledSteps
    from memprof.capture.timeline import Timeline

__all__ = ["CaptureResult", "Session", "choose_device", "ran_out"]

VERSION = 1
"""Of the ``memprof`` dict in the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureResult:
    """What a capture made."""

    path: Path
    source: str
    """recorded (CUDA), simulated or profiled (CPU)."""
    device: str
    status: str
    """ok; oom where the run ended because memory did, or interrupted: the file is complete up to then."""
    reason: str | None
    """torch's message where the run ended in an OOM."""
    entries: int
    """Trace entries in the file."""
    labelled: int
    """Allocations that have a label."""
    unmatched: int
    """Memory events of the profiler that the history does not have: 0, or its oldest entries were lost."""
    peak_allocated_bytes: int
    """torch's own ``max_memory_allocated``; on the CPU the highest sum of live bytes that the recording knows of."""
    max_reserved_bytes: int | None
    device_used_bytes: int | None
    seconds: float
    """Of the run itself, without writing the file."""
    profile: Path | None = None
    """The profiler's trace of the chosen steps; None where none were chosen, or none of them came."""
    notes: tuple[str, ...] = ()
    """What was asked for and not given, a line each."""
    caveats: tuple[dict[str, Any], ...] = ()
    """What a simulated run did not know, as the file's environment has it."""


class Session:
    """Records what happens between `start` and `stop`, and writes it.

    Parameters
    ----------
    device
        Where allocations are recorded.
    labels
        True (or ``full``), ``light``, which needs no profiler and leaves to the rules what it does not see, or False
        (or ``none``) for a plain recording, as ``_record_memory_history`` alone would make. The CPU, whose record is
        the profiler's, has no lighter one than the full one.
    stacks
        ``python``, or ``all`` for C++ frames too. Only CUDA has stacks; the CPU's frames are ops and modules.
    max_entries
        Size of the history's ring buffer.
    profile
        Steps to profile, into a file of their own.

    Raises
    ------
    UsageError
        If an option has a value that it cannot have.
    CaptureError
        If this torch cannot record light labels.
    """

    def __init__(
        self,
        device: RecordedDevice,
        *,
        labels: bool | str,
        stacks: str,
        max_entries: int,
        profile: ProfiledSteps | None = None,
    ) -> None:
        check_stacks(stacks)
        check_max_entries(max_entries)
        if not isinstance(labels, bool):
            check_labels(labels)
        self.device = device
        self.labels = labels not in (False, "none")
        """Whether there are any."""
        self._asked_light = labels == "light"
        self.light = self._asked_light and device.source != "profiled"
        self.pen: Pen = NotePen() if self.light else ProfilerPen()
        """What a `Watcher` writes with."""
        self._stacks = stacks
        self._max_entries = max_entries
        self._around = ExitStack()
        throughout = (self.labels and not self.light) or device.source == "profiled"
        self._profilers = StepProfilers(
            throughout=throughout, tensors=self.labels, gpu=device.source == "recorded", chosen=profile
        )
        self._profile = profile
        self._traced: ExportedTrace | None = None
        self._timeline: Timeline | None = None
        self._snapshot: dict[str, Any] | None = None
        self._figures: list[tuple[int, dict[str, int | None]]] = []
        self._begun = 0.0
        self._seconds = 0.0

    @property
    def _number(self) -> int:
        return self.device.device.index or 0

    def start(self) -> None:
        """Begin recording."""
        gc.collect()  # a collection in the middle of the run would free what the same run elsewhere does not
        self._begun = time.perf_counter()
        self.device.start(stacks=self._stacks, max_entries=self._max_entries)
        try:
            self.read_figures(-1)
            self._around.enter_context(self._profilers)
        except BaseException:
            self.abandon()
            raise

    def read_figures(self, step: int, managed: int | None = None) -> None:
        """Read the allocator's figures after `step`; `managed` is what the run has of managed memory."""
        self._figures.append((step, {**self.device.figures(), "managed_bytes": managed}))
        self._profilers.step_ended(step)

    def forget_figures(self) -> None:
        """Drop the figures of the steps so far: they were not the steps that the run counts."""
        del self._figures[1:]

    def phase_begins(self, step: int) -> None:
        """Say that a phase of `step` begins, and with the first of them the step."""
        self._profilers.step_begins(step)

    def stop(self) -> None:
        """End recording and take the snapshot; what is to be in it as live must still be alive."""
        try:
            self._around.close()
            self._seconds = time.perf_counter() - self._begun
            self.device.settle()
            if self._profilers.finished:
                self._timeline = read_timeline(self._profilers.finished, self.device.device)
            self._traced = self._profilers.traced
            self._snapshot = self.device.stop(self._timeline)
            if isinstance(self.pen, NotePen):
                self.pen.close()
                self._timeline = timeline_of(self.pen.notes, self._snapshot["device_traces"][self._number])
        except BaseException:
            self.device.abandon()
            raise
        finally:
            self._profilers.finished.clear()

    def abandon(self) -> None:
        """End recording and drop what was recorded."""
        try:
            self._around.close()
        finally:
            self.device.abandon()
            if isinstance(self.pen, NotePen):
                self.pen.close()
            self._profilers.finished.clear()

    def write(
        self, path: Path, *, status: str, reason: str | None, absolute_paths: bool, made_by: dict[str, Any]
    ) -> CaptureResult:
        """Label what was recorded and write it; `made_by` says what ran."""
        assert self._snapshot is not None
        snapshot, timeline = self._snapshot, self._timeline
        number = self._number
        environment = describe_environment(self.device.describe())
        snapshot["memprof"] = {
            "version": VERSION,
            "source": self.device.source,
            "made_by": {
                "memprof": __version__,
                "command": command_line(),
                **made_by,
                "labels": "light" if self.light else self.labels,
                "stacks": self._stacks if self.device.source != "profiled" else "ops",
                "status": status,
                "implied_frees": 0 if timeline is None else sum(event.implied for event in timeline.memory),
            },
            "environment": environment,
            "stats": [{"device": number, "step": step, **figures} for step, figures in self._figures],
        }
        labelled = unmatched = 0
        if self.labels and timeline is not None:
            labelled, unmatched = add_labels(snapshot, timeline, number, unfinished=status != "ok", light=self.light)
        if status == "oom":
            entries = len(snapshot["device_traces"][number])
            marks = snapshot["memprof"].setdefault("marks", [])
            marks.append({"device": number, "entry": entries, "name": "out of memory"})
        if not absolute_paths:
            shorten_paths(snapshot)
        write_snapshot(snapshot, path)
        if self._traced is not None:
            self._traced.write(trace_path(path), absolute_paths=absolute_paths)
        last = self._figures[-1][1]
        peak = last["max_allocated_bytes"]
        return CaptureResult(
            path=path,
            source=self.device.source,
            device=str(self.device.device),
            status=status,
            reason=reason,
            entries=len(snapshot["device_traces"][number]),
            labelled=labelled,
            unmatched=unmatched,
            peak_allocated_bytes=peak if peak is not None else peak_of(snapshot, number),
            max_reserved_bytes=last["max_reserved_bytes"],
            device_used_bytes=last["device_used_bytes"],
            seconds=self._seconds,
            profile=None if self._traced is None else trace_path(path),
            notes=tuple(self._not_given()),
            caveats=tuple(environment.get("caveats", ())),
        )

    def _not_given(self) -> Iterator[str]:
        if self._asked_light and not self.light:
            yield "full labels were written: on the CPU the profiler's record is all there is, and has no lighter ones"
        if self._profile is not None and self._traced is None:
            yield f"nothing was profiled: the recording ended before step {self._profile.first} began"


def choose_device(device: str | RecordedDevice) -> RecordedDevice:
    """Return the device called cuda, cpu or auto (CUDA where there is one); any other kind of device as it is."""
    if not isinstance(device, str):
        return device
    if check_device(device) == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    return CudaDevice() if device == "cuda" else CpuDevice()


def ran_out(error: BaseException | None) -> bool:
    """Tell whether an error says that memory ran out."""
    # The CPU's allocator has no exception of its own (c10/core/impl/alloc_cpu.cpp).
    return isinstance(error, torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and "DefaultCPUAllocator: can't allocate memory" in str(error)
    )
