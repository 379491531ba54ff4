"""The process that simulates for ``memprof fit``: torch is loaded once, and every run is a fork of it.

A simulated device is for a process's whole life, and loading torch takes longer than a small run: so this process
loads what runs need, installs nothing, and forks. It answers requests, one line of JSON each, until stdin ends.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import select
import signal
import sys
import time
import traceback
import warnings
from dataclasses import asdict, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from memprof.errors import CaptureError, MemprofError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["main"]

ENDLESS = 1 << 46
"""Bytes of memory of the card that runs are simulated on, so that each shows all that it needs."""
LIMITS = {"mbs": 1 << 20, "seq": 1 << 24}
"""Sizes beyond which nobody searches."""
PATIENCE = 600.0
"""Seconds that a run may take."""
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
    work = _limit if do == "limit" else _need
    return _forked(lambda: work(**request))


def _load(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Load what all runs need; autograd must not run here, for its threads do not survive a fork."""
    import torch

    from memprof.simulate.settings import settings_of_environment
    from memprof.simulate.support import check_support

    check_support()
    import_module("memprof.simulate.simulated")
    import_module("memprof.capture.observer")
    if settings["recipe"] in LITGPT:
        import_module("litgpt.lora")
    if settings["quant"] != "none" or settings["optimizer"] not in ("adamw", "sgd"):
        # What bitsandbytes takes long to load. It asks for a CUDA device when it is loaded itself: a run does that.
        import_module("torch._inductor.compile_fx")
    if "bitsandbytes" in sys.modules:
        raise CaptureError("bitsandbytes was loaded before there was a simulated device; memprof fit cannot run here")
    return {"torch": torch.__version__, "alloc_conf": settings_of_environment().conf}


def _limit(recipe: str, settings: Mapping[str, Any], over: str, first: int) -> dict[str, Any]:
    """Return the largest size that the recipe takes."""
    from memprof.recipes.registry import make_recipe

    try:
        make_recipe(recipe, {**settings, over: first})
    except CaptureError as error:
        raise UsageError(str(error)) from None  # nothing ran yet: it is an option's value
    low, high = first, LIMITS[over] + 1
    while high - low > 1:
        middle = (low + high) // 2
        try:
            make_recipe(recipe, {**settings, over: middle})
            low = middle
        except CaptureError:
            high = middle
    return {"limit": low}


def _need(card: str, recipe: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Simulate one run, and say what it needs of the card."""
    import torch

    from memprof.analysis.fit_search_need import need_of
    from memprof.capture.observer import Observer
    from memprof.recipes.registry import make_recipe
    from memprof.simulate import install
    from memprof.simulate.cards import card_named

    known = card_named(card)
    began = time.monotonic()
    simulated = install(replace(known, total_bytes=known.context_bytes + ENDLESS))
    run = make_recipe(recipe, settings)
    device = torch.device("cuda", 0)
    run.check(device)
    gc.collect()
    with Observer(lambda _step: None) as observer:
        alive = run.run(device, observer)
    caveats = simulated.caveats
    need = need_of(
        simulated.recording(),
        simulated.settings,
        capacity=known.total_bytes - known.context_bytes,
        uncertain=sum(caveat.bytes for caveat in caveats),
    )
    del alive
    return {
        "need": {**asdict(need), "answer": need.answer.value},
        "caveats": [asdict(caveat) for caveat in caveats],
        "seconds": time.monotonic() - began,
    }


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


def _forked(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Do `work` in a fork of this process, which may crash or hang without harm."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        with os.fdopen(writing, "w", encoding="utf-8") as answer:
            answer.write(json.dumps(_told(work)))
        os._exit(0)
    os.close(writing)
    deadline = time.monotonic() + PATIENCE
    text = b""
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        while True:
            ready, _, _ = select.select([pipe.fileno(), 0], [], [], max(deadline - time.monotonic(), 0))
            if not ready or 0 in ready:  # time is up, or the process that asked is gone
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                if ready:
                    sys.exit(1)
                return {"error": f"the run did not end within {PATIENCE:.0f} seconds", "kind": "CaptureError"}
            part = pipe.read(1 << 16)
            if not part:
                break
            text += part
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code < 0:
        message = (
            f"the run was ended by {signal.Signals(-code).name}: something in it reads memory of the device, which a "
            "simulation does not have, or the host's memory is too small"
        )
        return {"error": message, "kind": "UnsupportedError"}
    answered: dict[str, Any] = json.loads(text)
    return answered


if __name__ == "__main__":
    main()
