"""What is asked of a simulating process: which settings a recipe takes, how far, and what one run needs of a card."""

from __future__ import annotations

import gc
import time
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from memprof.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["limit", "need", "refusals"]

ENDLESS = 1 << 46
"""Bytes of memory of the card that runs are simulated on, so that each shows all that it needs."""
LIMITS = {"mbs": 1 << 20, "seq": 1 << 24}
"""Sizes beyond which nobody searches."""


def limit(recipe: str, settings: Mapping[str, Any], over: str, first: int) -> dict[str, Any]:
    """Return the largest size that the recipe takes."""
    from memprof.recipes.registry import make_recipe

    make_recipe(recipe, {**settings, over: first})
    low, high = first, LIMITS[over] + 1
    while high - low > 1:
        middle = (low + high) // 2
        try:
            make_recipe(recipe, {**settings, over: middle})
            low = middle
        except UsageError:
            high = middle
    return {"limit": low}


def refusals(recipe: str, points: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Say of each point, which is settings of the recipe, why the recipe does not take it; None where it does."""
    from memprof.recipes.registry import make_recipe

    said: list[str | None] = []
    for point in points:
        try:
            make_recipe(recipe, point)
            said.append(None)
        except UsageError as error:  # noqa: PERF203 - each point has its own
            said.append(str(error))
    return {"refusals": said}


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
