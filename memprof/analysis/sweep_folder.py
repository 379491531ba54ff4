"""A sweep's directory: its plan, the points that are in it, and what of the plan is finished."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memprof.analysis.sweep import Point, point_of
from memprof.errors import InputError, MemprofError, UsageError
from memprof.trace import load

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["SWEEP_FILE", "Folder", "Planned", "differences", "plan", "read_folder"]

SWEEP_FILE = "sweep.json"
ENDINGS = (".pickle", ".pickle.gz")
AXES = ("model", "precision", "quant", "seq", "mbs")
"""What a sweep varies, from the slowest to the fastest; also the parts of a point's file name."""
NUMBERS = ("mbs", "seq")
PATHS = ("checkpoint_dir", "data", "tokenizer_dir")
MOST_POINTS = 10_000
_SAFE = re.compile(r"[^A-Za-z0-9.+-]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One point that a sweep is to have: its file, and the settings that the file has to have been made with."""

    file: str
    config: Mapping[str, Any]

    def as_recorded(self) -> dict[str, Any]:
        """Return the settings as a capture writes them: of paths the last part only."""
        return {
            name: Path(value).name if name in PATHS and value is not None else value
            for name, value in self.config.items()
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """What is in a directory."""

    points: tuple[Point, ...]
    notes: tuple[str, ...]
    """Files that are no points, and why."""


def plan(varied: Mapping[str, str], fixed: Mapping[str, Any]) -> tuple[Planned, ...]:
    """Lay out every combination of `varied`.

    Parameters
    ----------
    varied
        For each of `AXES` the values, with commas between; also, if wanted, for ``fix``, where ``none`` is none.
    fixed
        The settings that all points share.

    Raises
    ------
    UsageError
        If an axis has no value, or one that should be a number is none.

    """
    values = [_values(axis, varied[axis]) for axis in AXES]
    fixes = _values("fix", varied.get("fix", "none"))
    points = []
    for fix, *combination in itertools.product(fixes, *values):
        chosen = dict(zip(AXES, combination, strict=True))
        name = "{model}_{precision}_{quant}_seq{seq}_mbs{mbs}".format(
            **{axis: _SAFE.sub("-", str(value)) for axis, value in chosen.items()}
        )
        if fix != "none":
            name += f"_fix-{_SAFE.sub('-', fix)}"
            chosen["fix"] = fix
        points.append(Planned(file=f"{name}.pickle", config={**chosen, **fixed}))
    if len(points) > MOST_POINTS:
        raise UsageError(f"a sweep of {len(points):,} points is more than {MOST_POINTS:,}: give fewer values")
    return tuple(points)


def _values(axis: str, text: str) -> list[Any]:
    parts = list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not parts:
        raise UsageError(f"--{axis} {text!r} names no value: give one or more, with commas between")
    if axis not in NUMBERS:
        return parts
    for part in parts:
        if not re.fullmatch(r"\d{1,9}", part) or int(part) < 1:
            raise UsageError(f"--{axis} {text}: {part!r} is no whole number from 1 on")
    return sorted({int(part) for part in parts})


def differences(
    planned: Planned, point: Point, *, source: str | None, labels: bool, card: str | None = None
) -> str | None:
    """Say in what a file differs from what is planned; None if it is what the plan asks for.

    Parameters
    ----------
    source
        What the file's source has to be; None if any will do.
    labels
        Whether the plan asks for labels.
    card
        The card that it has to be of, as CUDA names it; None if any will do.

    """
    found = (point.environment or {}).get("card")
    wrong = [
        f"{name} {point.config.get(name)!r} instead of {value!r}"
        for name, value in planned.as_recorded().items()
        if point.config.get(name) != value
    ]
    if source is not None and point.source != source:
        wrong.append(f"source {point.source} instead of {source}")
    if card is not None and found != card:
        wrong.append(f"card {found} instead of {card}")
    if point.labelled is not labels:
        wrong.append("labels" if point.labelled else "no labels")
    return ", ".join(wrong) or None


def read_folder(folder: Path, *, progress: Callable[[int, int], None] | None = None) -> Folder:
    """Read every capture in `folder`, and what `sweep.json` says of points that have no file.

    Raises
    ------
    InputError
        If there is no such directory, or `sweep.json` in it is none.

    """
    if not folder.is_dir():
        raise InputError(f"{folder} is not a directory: give one with captures, such as memprof sweep writes")
    files = sorted(path for path in folder.iterdir() if path.name.endswith(ENDINGS) and not path.name.startswith("."))
    points: list[Point] = []
    notes: list[str] = []
    for number, path in enumerate(files):
        if progress:
            progress(number, len(files))
        try:
            points.append(point_of(load(path), path.name))
        except MemprofError as error:
            notes.append(str(error))
    have = {path.name for path in files}
    points += [point for point in _without_file(folder / SWEEP_FILE) if point.file not in have]
    return Folder(points=tuple(points), notes=tuple(notes))


def _without_file(path: Path) -> Sequence[Point]:
    """Return the points of `sweep.json` that failed; every other point is read from its file."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}; remove it, the captures beside it are enough") from None
    try:
        document = json.loads(text)
        over = str(document["over"])
        return [
            Point(
                config={**group["config"], over: int(point["at"])},
                file=str(point["file"]),
                status="failed",
                reason=str(point["reason"]),
            )
            for group in document["groups"]
            for point in group["points"]
            if point["status"] == "failed"
        ]
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        raise InputError(f"{path} is not a sweep.json: remove it, the captures beside it are enough") from None
