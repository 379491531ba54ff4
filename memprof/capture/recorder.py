"""Records one run: history, profiler and observer around it, labels after it, one file out of it."""

from __future__ import annotations

import gc
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from memprof import __version__
from memprof.capture.assemble import add_labels, peak_of
from memprof.capture.devices import MAX_ENTRIES, CpuDevice, CudaDevice
from memprof.capture.environment import describe_environment
from memprof.capture.observer import LabellingObserver, Observer
from memprof.capture.paths import command_line, shorten_paths
from memprof.capture.profiler import profiled, read_timeline
from memprof.errors import CaptureError
from memprof.trace.writer import write_snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

    from memprof.capture.devices import RecordedDevice
    from memprof.capture.observer import Recipe
    from memprof.capture.timeline import Timeline

__all__ = ["CaptureResult", "capture"]

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
    """ok, or oom where the run ended because memory did; the file is complete up to then."""
    reason: str | None
    """torch's message where the run ended in an OOM."""
    entries: int
    """Trace entries in the file."""
    labelled: int
    """Allocations that have a label."""
    unmatched: int
    """Memory events of the profiler that the history does not have: 0, or its oldest entries were lost."""
    peak_allocated_bytes: int
    """torch's own ``max_memory_allocated``; on the CPU the highest sum of live bytes since the recording began."""
    max_reserved_bytes: int | None
    device_used_bytes: int | None
    seconds: float
    """Of the run itself, without writing the file."""


def capture(
    config: Recipe,
    *,
    output: str | Path,
    device: str | RecordedDevice = "auto",
    labels: bool = True,
    stacks: str = "python",
    max_entries: int = MAX_ENTRIES,
    absolute_paths: bool = False,
    progress: Callable[[str, int, int], None] | None = None,
) -> CaptureResult:
    """Run `config` on a device, record every allocation, and write it all to `output`.

    Parameters
    ----------
    config
        A recipe, such as `memprof.recipes.lit_gpt_2023.LitGpt2023`.
    output
        The file; it appears when it is complete, and never half.
    device
        ``cuda``, ``cpu`` or ``auto`` (CUDA where there is one); or a device that is neither, such as a simulated one.
    labels
        False makes a plain recording, as ``_record_memory_history`` alone would.
    stacks
        ``python``, or ``all`` for C++ frames too. Only CUDA has stacks; the CPU's frames are ops and modules.
    max_entries
        Size of the history's ring buffer.
    absolute_paths
        Keep file names as they are instead of relative to site-packages or the working directory.
    progress
        Called with what is being done, the number of steps done, and of all steps.

    Raises
    ------
    CaptureError
        If the run cannot work as asked, or the file cannot be written.
    """
    if stacks not in ("python", "all"):
        raise CaptureError(f"--stacks {stacks}: unknown; it can be python or all")
    if max_entries < 1:
        raise CaptureError(f"--max-entries {max_entries}: must be at least 1")
    path = Path(output)
    if path.is_dir() or not path.parent.is_dir():
        raise CaptureError(f"-o {output}: give the name of a file in a directory that exists")
    recorded = _choose(device) if isinstance(device, str) else device
    config.check(recorded.device)
    tell = progress or (lambda _text, _done, _total: None)
    run = _Run(config, recorded, labels=labels, tell=tell)
    gc.collect()  # a collection in the middle of the run would free what the same run elsewhere does not
    started = time.perf_counter()
    recorded.start(stacks=stacks, max_entries=max_entries)
    try:
        run.go()
        seconds = time.perf_counter() - started
        tell("reading the recording", config.micro_steps, config.micro_steps)
        timeline = run.timeline()
        snapshot = recorded.stop(timeline)
    except BaseException:
        recorded.abandon()
        raise
    finally:
        run.release()
    number = recorded.device.index or 0
    snapshot["memprof"] = {
        "version": VERSION,
        "source": recorded.source,
        "made_by": {
            "memprof": __version__,
            "command": command_line(),
            "recipe": config.recipe,
            "config": config.settings(),
            "labels": labels,
            "stacks": stacks if recorded.source != "profiled" else "ops",
            "status": "oom" if run.reason else "ok",
            "implied_frees": timeline.implied if timeline is not None else 0,
        },
        "environment": describe_environment(recorded.describe()),
        "stats": [{"device": number, "step": step, **figures} for step, figures in run.figures],
    }
    labelled = unmatched = 0
    if labels and timeline is not None:
        tell("labelling", config.micro_steps, config.micro_steps)
        labelled, unmatched = add_labels(snapshot, timeline, number)
    if not absolute_paths:
        shorten_paths(snapshot)
    tell("writing", config.micro_steps, config.micro_steps)
    write_snapshot(snapshot, path)
    last = run.figures[-1][1]
    peak = last["max_allocated_bytes"]
    return CaptureResult(
        path=path,
        source=recorded.source,
        device=str(recorded.device),
        status="oom" if run.reason else "ok",
        reason=run.reason,
        entries=len(snapshot["device_traces"][number]),
        labelled=labelled,
        unmatched=unmatched,
        peak_allocated_bytes=peak if peak is not None else peak_of(timeline),
        max_reserved_bytes=last["max_reserved_bytes"],
        device_used_bytes=last["device_used_bytes"],
        seconds=seconds,
    )


def _ran_out(error: RuntimeError) -> bool:
    # The CPU's allocator has no exception of its own (c10/core/impl/alloc_cpu.cpp).
    return isinstance(error, torch.OutOfMemoryError) or "DefaultCPUAllocator: can't allocate memory" in str(error)


def _choose(device: str) -> RecordedDevice:
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda":
        return CudaDevice()
    if device == "cpu":
        return CpuDevice()
    raise CaptureError(f"--device {device}: unknown; it can be auto, cuda or cpu")


class _Run:
    """The run itself: what is switched on around it, and what it leaves."""

    def __init__(
        self, config: Recipe, recorded: RecordedDevice, *, labels: bool, tell: Callable[[str, int, int], None]
    ) -> None:
        self._config = config
        self._recorded = recorded
        self._labels = labels
        self._tell = tell
        self._profiler: Any = None
        self._alive: Any = None
        self.figures: list[tuple[int, dict[str, int | None]]] = []
        self.reason: str | None = None

    def go(self) -> None:
        """Run it; the profiler and every hook are off again afterwards, however it ends."""
        self._read_figures(-1)
        with ExitStack() as around:
            if self._labels or self._recorded.source == "profiled":
                self._profiler = around.enter_context(profiled(tensors=self._labels))
            observer = Observer(self._end_step)
            if self._labels:
                observer = around.enter_context(LabellingObserver(self._end_step))
            self._tell("building the model", 0, self._config.micro_steps)
            try:
                # What it returns is what is alive when it ends, and stays so until the snapshot is taken.
                self._alive = self._config.run(self._recorded.device, observer)
            except RuntimeError as error:
                if not _ran_out(error):
                    raise
                # The traceback keeps the frames alive, and so the memory as it was when it ran out.
                self._alive = error
                self.reason = str(error).splitlines()[0]
        if self.reason:
            self._read_figures(len(self.figures) - 1)

    def timeline(self) -> Timeline | None:
        """Read the profiler's record, if there is one."""
        return None if self._profiler is None else read_timeline(self._profiler, self._recorded.device)

    def release(self) -> None:
        """Let go of the run's memory and of the profiler's record."""
        self._alive = self._profiler = None

    def _end_step(self, step: int) -> None:
        self._read_figures(step)
        self._tell("training", step + 1, self._config.micro_steps)

    def _read_figures(self, step: int) -> None:
        self.figures.append((step, self._recorded.figures()))
