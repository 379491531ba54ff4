"""Runs a recipe under a recording."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memprof.atomic import check_output
from memprof.capture.devices import MAX_ENTRIES
from memprof.capture.observer import LabellingObserver, Observer
from memprof.capture.session import CaptureResult, Session, choose_device, ran_out

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from memprof.capture.devices import RecordedDevice
    from memprof.capture.observer import Recipe
    from memprof.capture.step_profilers import ProfiledSteps

__all__ = ["CaptureResult", "capture"]


def capture(
    config: Recipe,
    *,
    output: str | Path,
    device: str | RecordedDevice = "auto",
    labels: bool | str = True,
    stacks: str = "python",
    max_entries: int = MAX_ENTRIES,
    profile: ProfiledSteps | None = None,
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
        True or ``"full"``; ``"light"``, which disturbs less and leaves more to the rules (CUDA only); False or
        ``"none"`` makes a plain recording, as ``_record_memory_history`` alone would.
    stacks
        ``python``, or ``all`` for C++ frames too. Only CUDA has stacks; the CPU's frames are ops and modules.
    max_entries
        Size of the history's ring buffer.
    profile
        Steps to profile, into a trace of its own beside the file.
    absolute_paths
        Keep file names as they are instead of relative to site-packages or the working directory.
    progress
        Called with what is being done, the number of steps done, and of all steps.

    Raises
    ------
    UsageError
        If an option has a value that it cannot have.
    CaptureError
        If the run cannot work as asked.
    OutputError
        If the file cannot be written.
    """
    recorded = choose_device(device)
    session = Session(recorded, labels=labels, stacks=stacks, max_entries=max_entries, profile=profile)
    path = check_output(output)
    config.check(recorded.device)
    tell = progress or (lambda _text, _done, _total: None)
    run = _Run(config, session, tell)
    session.start()
    try:
        run.go()
    except BaseException:
        session.abandon()
        raise
    tell("reading the recording", config.micro_steps, config.micro_steps)
    session.stop()
    run.alive = None
    tell("labelling and writing", config.micro_steps, config.micro_steps)
    return session.write(
        path,
        status="oom" if run.reason else "ok",
        reason=run.reason,
        absolute_paths=absolute_paths,
        made_by={"recipe": config.recipe, "config": config.settings()},
    )


class _Run:
    """The run itself: what is switched on around it, and what it leaves."""

    def __init__(self, config: Recipe, session: Session, tell: Callable[[str, int, int], None]) -> None:
        self._config = config
        self._session = session
        self._tell = tell
        labelled = session.labels
        self._observer = LabellingObserver(self._end_step, session.pen) if labelled else Observer(self._end_step)
        self._observer.begun = session.phase_begins
        self._done = -1
        self.alive: Any = None
        """What is to be alive when the snapshot is taken."""
        self.reason: str | None = None
        """torch's message where it ran out of memory."""

    def go(self) -> None:
        """Run it; every hook is off again afterwards, however it ends."""
        self._tell("building the model", 0, self._config.micro_steps)
        with self._observer:
            try:
                self.alive = self._config.run(self._session.device.device, self._observer)
            except RuntimeError as error:
                if not ran_out(error):
                    raise
                # The traceback keeps the frames alive, and so the memory as it was when it ran out.
                self.alive = error
                self.reason = str(error).splitlines()[0]
                self._session.read_figures(self._done, self._observer.managed_bytes())

    def _end_step(self, step: int) -> None:
        self._done = step
        self._session.read_figures(step, self._observer.managed_bytes())
        self._tell("training", step + 1, self._config.micro_steps)
