"""Run a program on a simulated card in a child process, and learn how it ended: nothing it does can harm the parent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["SimulatedRun", "run_simulated"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedRun:
    """How a simulated program ended."""

    status: str
    """``ok``; ``oom``: it asked for more than the card has; ``refused``: something that cannot be simulated;
    ``failed``: it raised or returned an error; ``crashed``: the process died; ``timeout``."""
    message: str
    """The error's text, one line of it where it is ours; empty for ``ok``."""
    figures: Mapping[str, int] = field(default_factory=dict)
    """`SimulatedDevice.figures`; empty if the process died or the device was refused."""
    reserved_range: tuple[int, int] = (0, 0)
    """`SimulatedDevice.reserved_range`."""
    device: Mapping[str, Any] = field(default_factory=dict)
    """`SimulatedDevice.describe`, with the caveats."""
    output: str = ""
    """What the program wrote to standard output; empty unless `capture` was asked for."""


def run_simulated(
    program: Sequence[str],
    *,
    card: str,
    alloc_conf: str | None = None,
    timeout: float | None = None,
    capture: bool = False,
) -> SimulatedRun:
    """Run a program (a file or ``-m`` and a module, with its arguments) on a simulated card.

    Parameters
    ----------
    alloc_conf
        ``PYTORCH_ALLOC_CONF``; None takes the environment's.
    timeout
        Seconds after which the program is ended.
    capture
        Keep what it writes instead of letting it through.
    """
    with tempfile.TemporaryDirectory(prefix="memprof-") as folder:
        path = Path(folder) / "status.json"
        command = [sys.executable, "-m", "memprof.simulate", "--card", card, "--status", str(path)]
        command += [] if alloc_conf is None else ["--alloc-conf", alloc_conf]
        pipe = subprocess.PIPE if capture else None
        try:
            done = subprocess.run(  # noqa: S603  # the user's own program
                [*command, *program],
                stdout=pipe,
                stderr=pipe,
                text=True,
                errors="replace",
                timeout=timeout,
                check=False,
                env=_environment(),
            )
        except subprocess.TimeoutExpired:
            return SimulatedRun(status="timeout", message=f"not finished after {timeout:g} seconds")
        if not path.exists():
            what = f"signal {-done.returncode}" if done.returncode < 0 else f"exit status {done.returncode}"
            tail = (done.stderr or "").strip().splitlines()[-1:]
            return SimulatedRun(status="crashed", message=": ".join([f"the process ended with {what}", *tail]))
        found = json.loads(path.read_text(encoding="utf-8"))
    return SimulatedRun(
        status=found["status"],
        message=found["message"],
        figures=found.get("figures", {}),
        reserved_range=tuple(found.get("reserved_range", (0, 0))),
        device=found.get("device", {}),
        output=done.stdout or "",
    )


def _environment() -> dict[str, str]:
    """Let the child find this package, also where it is not installed."""
    root = str(Path(__file__).parents[2])
    path = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": root if not path else f"{root}{os.pathsep}{path}"}
