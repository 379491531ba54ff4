"""The captures of a sweep: each in a process of its own, and none left behind.

A real device gets a fresh Python for each capture. A simulated one gets a fork of a process that has loaded torch
already (`memprof.commands.simulation_server`): one such process for each capture that runs at the same time.
"""

from __future__ import annotations

import glob
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any, Protocol

from memprof.commands.simulated import how_it_died
from memprof.commands.simulation_process import Simulations
from memprof.errors import MemprofError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["Children", "FreshChildren", "WarmChildren", "arguments"]

PATIENCE = 10.0
"""Seconds that a child has to clean up after an interrupt before it is killed."""


def arguments(settings: Mapping[str, Any]) -> list[str]:
    """Write settings as options of ``memprof capture``."""
    words: list[str] = []
    for name, value in settings.items():
        option = name.replace("_", "-")
        if value is None:
            continue
        if value is True:
            words.append(f"--{option}")
        elif value is False:
            words.append(f"--no-{option}")
        else:
            words += [f"--{option}", str(value)]
    return words


class Children(Protocol):
    """Runs captures, several at the same time if asked by several threads, and can end them all."""

    ended: bool
    """Set when no capture may begin any more, and those that ran were ended."""

    def capture(self, file: Path, settings: Mapping[str, Any]) -> str | None:
        """Run one capture to its end; return None if it wrote `file`, else the reason in one line."""

    def refusals(self, recipe: str, points: Sequence[Mapping[str, Any]]) -> list[str | None]:
        """Say of each point, which is settings of `recipe`, why the recipe does not take it; None where it does."""

    def end(self) -> None:
        """End every capture that runs, start no more, and leave no half file of them. Harmless when nothing runs."""


class FreshChildren:
    """Each capture is a Python of its own."""

    def __init__(self) -> None:
        self._running: dict[int, tuple[subprocess.Popen[bytes], Path]] = {}
        self._lock = threading.Lock()
        self.ended = False

    def capture(self, file: Path, settings: Mapping[str, Any]) -> str | None:
        """Run one capture to its end; return None if it wrote `file`, else the reason in one line."""
        command = [sys.executable, "-m", "memprof", "capture", *_words(file, settings)]
        with self._lock:
            if self.ended:
                return "interrupted"
            # A session of its own: Ctrl-C reaches this process, which then ends the child in good order.
            process = subprocess.Popen(  # noqa: S603 - our own program; the options are the user's
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
            self._running[process.pid] = (process, file)
        try:
            _, errors = process.communicate()
        finally:
            with self._lock:
                self._running.pop(process.pid, None)
        if process.returncode == 0:
            return None
        if self.ended:
            return "interrupted"
        return _reason(process.returncode, errors.decode("utf-8", "replace"))

    def refusals(self, recipe: str, points: Sequence[Mapping[str, Any]]) -> list[str | None]:
        """Say of each point why the recipe does not take it. In a process that ends: torch may take memory of a GPU."""
        with Simulations() as process:
            return _refusals(process, recipe, points)

    def end(self) -> None:
        """End every capture that runs, start no more, and leave no half file of them."""
        with self._lock:
            self.ended = True
            running = list(self._running.values())
        for process, _ in running:
            process.send_signal(signal.SIGINT)  # no error where it ended meanwhile
        for process, file in running:
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            _remove_parts(file)


class WarmChildren:
    """Each capture is a fork of a process that is kept.

    Parameters
    ----------
    card
        What is simulated.
    load
        What the processes load: recipe, quants and optimizer.

    """

    def __init__(self, card: str, load: Mapping[str, Any]) -> None:
        self._card = card
        self._load = load
        self._waiting: list[Simulations] = []
        self._running: dict[Simulations, Path] = {}
        self._lock = threading.Lock()
        self.ended = False

    def capture(self, file: Path, settings: Mapping[str, Any]) -> str | None:
        """Run one capture to its end; return None if it wrote `file`, else the reason in one line."""
        with self._lock:
            if self.ended:
                return "interrupted"
            known = bool(self._waiting)
            process = self._waiting.pop() if known else Simulations()
            self._running[process] = file
        try:
            if not known:
                process.ask("load", **self._load)
            process.ask("capture", card=self._card, words=_words(file, settings))
        except MemprofError as error:
            return "interrupted" if self.ended else str(error)[:400]
        finally:
            with self._lock:
                del self._running[process]
                if process.alive:
                    self._waiting.append(process)
        return None

    def refusals(self, recipe: str, points: Sequence[Mapping[str, Any]]) -> list[str | None]:
        """Say of each point why the recipe does not take it; the process that says so then waits for the captures."""
        process = Simulations()
        self._waiting.append(process)
        process.ask("load", **self._load)
        return _refusals(process, recipe, points)

    def end(self) -> None:
        """End every process, start no more, and leave no half file of them."""
        with self._lock:
            self.ended = True
            running, waiting = dict(self._running), list(self._waiting)
        for process in [*running, *waiting]:
            process.kill()
        for file in running.values():
            _remove_parts(file)


def _refusals(process: Simulations, recipe: str, points: Sequence[Mapping[str, Any]]) -> list[str | None]:
    return list(process.ask("refusals", recipe=recipe, points=points)["refusals"])


def _words(file: Path, settings: Mapping[str, Any]) -> Sequence[str]:
    return ["--json", "--output", str(file), *arguments(settings)]


def _remove_parts(file: Path) -> None:
    """Remove what a capture had written of `file`, under the name that `memprof.atomic` gives it meanwhile."""
    for part in file.parent.glob(f".{glob.escape(file.name)}.*.part"):
        part.unlink(missing_ok=True)


def _reason(code: int, errors: str) -> str:
    if code < 0:
        return how_it_died(code, simulated=False)
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    return lines[-1].removeprefix("memprof: ")[:400] if lines else f"ended with status {code} and said nothing"
