"""What ``memprof fit`` asks of a simulating process: how far a recipe goes, and what one run of it needs of a card."""

from __future__ import annotations

import gc
import time
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from memprof.errors import CaptureError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["limit", "need"]

ENDLESS = 1 << 46
"""Bytes of memory of the card that runs are simulated on, so that each shows all that it needs."""
LIMITS = {"mbs": 1 << 20, "seq": 1 << 24}
"""Sizes beyond which nobody searches."""


def limit(recipe: str, settings: Mapping[str, Any], over: str, first: int) -> dict[str, Any]:
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


def need(card: str, recipe: str, settings: Mapping[str, Any]) -> dict[str, Any]:
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
    needed = need_of(
        simulated.recording(),
        simulated.settings,
        capacity=known.total_bytes - known.context_bytes,
        uncertain=sum(caveat.bytes for caveat in caveats),
    )
    del alive
    return {
        "need": {**asdict(needed), "answer": needed.answer.value},
        "caveats": [asdict(caveat) for caveat in caveats],
        "seconds": time.monotonic() - began,
    }
