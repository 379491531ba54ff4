"""``memprof sweep``: many captures, one after the other, and what is finished stays finished."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed, wait
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from memprof.analysis.growth import measure_growth
from memprof.analysis.sweep import Point, point_of
from memprof.analysis.sweep_folder import AXES, SWEEP_FILE, differences, plan
from memprof.atomic import write_whole
from memprof.commands.growth import read_watched
from memprof.commands.simulated import card_to_simulate
from memprof.commands.sweep_children import FreshChildren, WarmChildren
from memprof.errors import CaptureError, MemprofError, UsageError
from memprof.options import RECIPE_DEFAULTS
from memprof.recipes.registry import settings_for
from memprof.report.as_json import to_text
from memprof.report.growth_json import growth_json
from memprof.report.sweep_progress import sweep_progress
from memprof.simulate.cards import card_named
from memprof.trace import load

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from concurrent.futures import Future
    from pathlib import Path

    from memprof.analysis.growth import Growth
    from memprof.analysis.sweep_folder import Planned
    from memprof.commands.sweep_children import Children
    from memprof.report.sweep_progress import SweepProgress

__all__ = ["run"]

SOURCE_OF_DEVICE = {"cuda": "recorded", "cpu": "profiled"}
MOST_JOBS = 4
"""Simulated captures at the same time, unless more are asked for: each takes most of a gigabyte of host memory."""


def run(
    varied: Mapping[str, str],
    fixed: Mapping[str, Any],
    recorder: Mapping[str, Any],
    *,
    folder: Path,
    force: bool,
    jobs: int | None,
    as_json: bool,
) -> None:
    """Capture every combination of `varied` into `folder`, and say what came of it.

    Parameters
    ----------
    varied
        Values of `memprof.analysis.sweep_folder.AXES`, with commas between.
    fixed
        The recipe's settings that all points share.
    recorder
        The recorder's options.
    folder
        Made if it is not there. What is finished in it is kept, unless `force`.
    jobs
        Captures at the same time. None for one where a device is measured, and one for each of a few cores where it is
        simulated.

    Raises
    ------
    MemprofError
        If the plan is wrong, a file of another sweep is in the way, the sweep was interrupted, or every point failed.

    """
    planned = plan(varied, {"recipe": fixed["recipe"], **settings_for(fixed, RECIPE_DEFAULTS)})
    card = card_to_simulate(recorder["device"], recorder["simulate"], as_json=as_json)
    recorder = {**recorder, "simulate": card}
    made = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CaptureError(f"-o {folder}: cannot be made: {error.strerror}") from None
    known = _known(folder)
    wanted = [each for each in planned if force or not _finished(each, known, recorder, folder)]
    for each in wanted:
        known.pop(each.file, None)
    try:
        interrupted = _capture_all(
            wanted,
            recorder,
            known,
            folder=folder,
            jobs=jobs or (min(len(os.sched_getaffinity(0)), MOST_JOBS) if card else 1),
            total=len(planned),
        )
    except UsageError:
        if made:
            folder.rmdir()
        raise
    if interrupted:
        if known:
            _write(known, folder)
        done = sum(each.file in known for each in planned)
        raise CaptureError(
            f"interrupted after {done} of {len(planned)} points; the same command goes on from there ({folder})"
        )
    growth = _write(known, folder)
    _print(growth, folder, new=len(wanted), as_json=as_json)
    mine = [known[each.file] for each in planned]
    if all(point.status == "failed" for point in mine):
        raise CaptureError(f"every point failed; the first with: {mine[0].reason}")


def _known(folder: Path) -> dict[str, Point]:
    """Read what the folder has; a file that is half or damaged counts as not there."""
    return {point.file: point for point in read_watched(folder).points if point.file is not None}


def _finished(planned: Planned, known: Mapping[str, Point], recorder: Mapping[str, Any], folder: Path) -> bool:
    point = known.get(planned.file)
    if point is None or point.status == "failed":
        return False
    card = recorder["simulate"]
    wrong = differences(
        planned,
        point,
        source=SOURCE_OF_DEVICE.get(str(recorder["device"])) if card is None else "simulated",
        labels=recorder["labels"] != "none",
        card=None if card is None else card_named(card).name,
    )
    if wrong is not None:
        raise CaptureError(
            f"{folder / planned.file} was made with {wrong}: give another directory, or --force to replace it"
        )
    return True


def _capture_all(
    wanted: Sequence[Planned],
    recorder: Mapping[str, Any],
    known: dict[str, Point],
    *,
    folder: Path,
    jobs: int,
    total: int,
) -> bool:
    """Capture what is wanted, adding to `known`; return whether it was interrupted."""
    children = _children(wanted, recorder)
    with (
        sweep_progress(total, done=total - len(wanted)) as progress,
        _interruptible(),
        ThreadPoolExecutor(jobs) as pool,
    ):
        futures: dict[Future[Point], Planned] = {}
        try:
            _check_values(wanted, children)
            for each in wanted:
                futures[pool.submit(_capture, each, recorder, folder, children, progress)] = each
            for future in as_completed(futures):
                known[futures[future].file] = future.result()
                _write(known, folder)
        except KeyboardInterrupt:
            children.end()
            wait([future for future in futures if not future.cancel()])
            for future, each in futures.items():
                if not future.cancelled() and future.result().status != "failed":
                    known[each.file] = future.result()
            return True
        finally:
            children.end()
    return False


def _children(wanted: Sequence[Planned], recorder: Mapping[str, Any]) -> Children:
    if recorder["simulate"] is None or not wanted:
        return FreshChildren()
    first = wanted[0].config
    quants = sorted({str(each.config["quant"]) for each in wanted})
    return WarmChildren(
        recorder["simulate"], {"recipe": first["recipe"], "quants": quants, "optimizer": first["optimizer"]}
    )


def _check_values(wanted: Sequence[Planned], children: Children) -> None:
    """Refuse a value of an axis with which no point is possible, before anything runs.

    A combination that a recipe refuses, of values that it takes in others, becomes a point that failed.
    """
    if not wanted:
        return
    configs = [{name: value for name, value in each.config.items() if name != "recipe"} for each in wanted]
    try:
        said = children.refusals(str(wanted[0].config["recipe"]), configs)
    except UsageError:
        raise
    except MemprofError:
        return  # what is missing or broken here is told by the points
    for axis in (*AXES, "fix"):
        reasons: dict[Any, list[str | None]] = {}
        for config, reason in zip(configs, said, strict=True):
            reasons.setdefault(config.get(axis), []).append(reason)
        for given in reasons.values():
            if all(given):
                raise UsageError(str(given[0]))


def _capture(
    planned: Planned, recorder: Mapping[str, Any], folder: Path, children: Children, progress: SweepProgress
) -> Point:
    """Capture one point; whatever goes wrong becomes a point that says so."""
    path = folder / planned.file
    progress.begins(planned.file)
    began = time.monotonic()
    reason = children.capture(path, {**planned.config, **recorder})
    point = None
    if reason is None:
        try:
            point = point_of(load(path), planned.file)
        except MemprofError as error:
            reason = str(error)
    if point is None:
        path.unlink(missing_ok=True)  # of an earlier sweep: it is not what came of this one
        point = Point(config=planned.as_recorded(), file=planned.file, status="failed", reason=reason)
    if not children.ended:
        progress.ended(point, time.monotonic() - began)
    return point


@contextmanager
def _interruptible() -> Iterator[None]:
    """Make a request to end (SIGTERM) what Ctrl-C is, so that no capture is left running."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _write(known: Mapping[str, Point], folder: Path) -> Growth:
    growth = measure_growth([known[file] for file in sorted(known)])
    document = to_text(growth_json(growth)) + "\n"
    write_whole(folder / SWEEP_FILE, lambda file: file.write(document.encode()))
    return growth


def _print(growth: Growth, folder: Path, *, new: int, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(to_text(growth_json(growth)) + "\n")
        return
    from memprof.report.console import make_console
    from memprof.report.sweep import sweep_report

    make_console().print(sweep_report(growth, folder=str(folder), new=new))
