"""The process that simulates for ``memprof fit`` and ``memprof sweep``: torch is loaded once, and every run is a fork.

A simulated device is for a process's whole life, and loading torch takes longer than a small run: so this process
loads what runs need, installs nothing, and forks. It answers requests, one line of JSON each, until stdin ends.
"""

from __future__ import annotations

import faulthandler
import json
import os
import select
import signal
import sys
import time
import traceback
import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

from memprof.commands import fit_runs
from memprof.commands.simulated import MARK, how_it_died
from memprof.errors import CaptureError, MemprofError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["main"]

PATIENCE = 600.0
"""Seconds that a run of ``memprof fit`` may take."""
LITGPT = ("lit_gpt_2023", "litgpt")
"""Recipes that use the package of that name."""


def main() -> None:
    """Answer requests from stdin on stdout until stdin ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no answer
    faulthandler.enable()
    warnings.filterwarnings("ignore")
    for line in iter(sys.stdin.buffer.readline, b""):
        request = json.loads(line)
        answers.write(json.dumps(_told(lambda: _answer(request))) + "\n")  # noqa: B023 - called at once
        answers.flush()


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    do = request.pop("do")
    if do == "load":
        return _load(**request)
    if do == "capture":
        return _forked(lambda: _capture(**request), None)
    work: Callable[..., dict[str, Any]] = getattr(fit_runs, do)
    return _forked(lambda: work(**request), PATIENCE)


def _load(recipe: str, quants: Sequence[str], optimizer: str) -> dict[str, Any]:
    """Load what all runs need; autograd must not run here, for its threads do not survive a fork."""
    import torch

    from memprof.simulate.settings import settings_of_environment
    from memprof.simulate.support import check_support

    check_support()
    for name in ("simulate.simulated", "capture.recorder", "recipes.registry", "commands.capture", "report.capture"):
        import_module(f"memprof.{name}")
    import_module("memprof.simulate.convolutions").load()
    _command("capture").make_context("capture", [])  # what parsing loads
    if recipe in LITGPT:
        import_module("litgpt.lora")
        import_module(f"memprof.recipes.{recipe}")
    if set(quants) != {"none"} or optimizer not in ("adamw", "sgd"):
        # What bitsandbytes takes long to load. It asks for a CUDA device when it is loaded itself: a run does that.
        import_module("torch._inductor.compile_fx")
    if "bitsandbytes" in sys.modules:
        raise CaptureError("bitsandbytes was loaded before there was a simulated device; nothing can be simulated here")
    return {"torch": torch.__version__, "alloc_conf": settings_of_environment().conf}


def _command(name: str) -> Any:
    """Return one of our commands."""
    import typer

    from memprof.cli import app

    group: Any = typer.main.get_command(app)
    return group.commands[name]


def _capture(card: str, words: Sequence[str]) -> dict[str, Any]:
    """Run ``memprof capture`` with these options, as its child process would."""
    from memprof.cli import app

    os.environ[MARK] = card
    sys.argv = ["memprof", "capture", *words]
    try:
        app(["capture", *words], standalone_mode=False)
    except SystemExit as end:
        if end.code:
            raise CaptureError(f"ended with status {end.code}") from None
    return {}


def _told(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return what `work` returns, or the error that it raised, as plain values."""
    try:
        return work()
    except ModuleNotFoundError as error:
        message = f"a simulated run needs {error.name}, which is not installed: pip install 'memprof[capture]'"
        return {"error": message, "kind": "CaptureError"}
    except MemprofError as error:
        return {"error": str(error), "kind": type(error).__name__}
    except Exception as error:  # noqa: BLE001 - the recipe's own code ran: whatever it raises is the answer
        traceback.print_exc()
        return {"error": f"the run failed with {type(error).__name__}: {error}", "kind": "CaptureError"}


def _forked(work: Callable[[], dict[str, Any]], patience: float | None) -> dict[str, Any]:
    """Do `work` in a fork of this process, which may crash or hang without harm."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        with os.fdopen(writing, "w", encoding="utf-8") as answer:
            answer.write(json.dumps(_told(work)))
        os._exit(0)
    os.close(writing)
    deadline = None if patience is None else time.monotonic() + patience
    text = b""
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        while True:
            left = None if deadline is None else max(deadline - time.monotonic(), 0)
            ready, _, _ = select.select([pipe.fileno(), 0], [], [], left)
            if not ready or 0 in ready:  # time is up, or the process that asked is gone
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                if ready:
                    sys.exit(1)
                return {"error": f"the run did not end within {patience:.0f} seconds", "kind": "CaptureError"}
            part = pipe.read(1 << 16)
            if not part:
                break
            text += part
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code < 0:
        return {"error": f"the run was {how_it_died(code)}", "kind": "UnsupportedError"}
    answered: dict[str, Any] = json.loads(text)
    return answered


if __name__ == "__main__":
    main()
