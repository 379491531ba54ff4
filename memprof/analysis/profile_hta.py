"""Holistic Trace Analysis on a profile: what the GPU did with its time, and on which kernels.

Everything is imported on use: HTA is an extra, and brings pandas and plotly.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memprof.errors import InputError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memprof.analysis.profile import ProfileSummary

__all__ = ["Agreement", "HtaResult", "analyze"]

_ROUNDING = "HTA_DISABLE_NS_ROUNDING"
"""Switch of HTA's that keeps times as they are instead of whole microseconds (``hta/configs/env_options.py``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """One figure that both HTA and memprof have. Nanoseconds."""

    what: str
    hta: int
    memprof: int

    @property
    def same(self) -> bool:
        """Whether the two are equal but for rounding: HTA keeps times as floating-point microseconds.

        At 5e12 of them, a machine that has run for two months, a double's last digit is a nanosecond.
        """
        return abs(self.hta - self.memprof) * 1_000_000 <= self.memprof


@dataclass(frozen=True, slots=True, kw_only=True)
class HtaResult:
    """HTA's figures of one rank. Times are nanoseconds."""

    idle: int
    compute: int
    non_compute: int
    """Copies, sets and communication that no computation covers."""
    span: int
    """From the first kernel to the end of the last; the sum of the three."""
    kinds: tuple[tuple[str, int], ...]
    """Kind of kernel as HTA names it, and its time."""
    kernels: tuple[tuple[str, str, int], ...]
    """Kind, name and time of the kernels that took most."""
    agreements: tuple[Agreement, ...]


def analyze(summary: ProfileSummary, *, top: int = 10) -> HtaResult:
    """Run HTA's temporal and kernel breakdown on the file of `summary`.

    Raises
    ------
    UnsupportedError
        HTA is not installed.
    InputError
        HTA fails on the file; says how.
    """
    try:
        with _quiet():
            from hta.trace_analysis import TraceAnalysis
    except ModuleNotFoundError as error:
        raise UnsupportedError(
            f"Holistic Trace Analysis needs {error.name}, which is not installed: pip install 'memprof[hta]'"
        ) from error
    path = summary.profile.path
    rank = summary.profile.rank or 0
    try:
        with _quiet():
            # It reads a plain file only by its name.
            analysis = TraceAnalysis(trace_files={rank: str(Path(path).resolve())}, include_last_profiler_step=True)
            temporal = analysis.get_temporal_breakdown(visualize=False)
            kinds, kernels = analysis.get_gpu_kernel_breakdown(visualize=False, num_kernels=top, duration_ratio=1.0)
    except Exception as error:
        fact = str(error).splitlines()[0][:200] if str(error) else "no reason given"
        raise InputError(f"{path}: Holistic Trace Analysis fails on it ({type(error).__name__}: {fact})") from error
    row = temporal.iloc[0]
    idle, compute, non_compute, span = (
        _nanoseconds(row[name])
        for name in ("idle_time(us)", "compute_time(us)", "non_compute_time(us)", "kernel_time(us)")
    )
    by_kind = tuple((str(each["kernel_type"]), _nanoseconds(each["sum"])) for _, each in kinds.iterrows())
    listed = kernels.sort_values("sum (us)", ascending=False)
    return HtaResult(
        idle=idle,
        compute=compute,
        non_compute=non_compute,
        span=span,
        kinds=by_kind,
        kernels=tuple(
            (str(each["kernel_type"]), str(each["name"]), _nanoseconds(each["sum (us)"]))
            for _, each in listed.iterrows()
        )[:top],
        agreements=(
            Agreement(what="time in which the GPU is busy", hta=span - idle, memprof=summary.busy),
            Agreement(
                what="time of all kernels, copies and sets, summed",
                hta=sum(_nanoseconds(time) for time in listed["sum (us)"]),
                memprof=summary.kernel_time,
            ),
        ),
    )


def _nanoseconds(microseconds: Any) -> int:
    return round(float(microseconds) * 1000)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep HTA's progress lines off the terminal, and its times in nanoseconds."""
    before, disabled = os.environ.get(_ROUNDING), logging.root.manager.disable
    os.environ[_ROUNDING] = "1"
    logging.disable(logging.CRITICAL)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(disabled)
        if before is None:
            os.environ.pop(_ROUNDING, None)
        else:
            os.environ[_ROUNDING] = before
