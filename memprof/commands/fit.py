"""``memprof fit``: the largest micro-batch or sequence that fits a card, without the card."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from memprof.analysis.fit_search import CardFit, search
from memprof.analysis.fit_search_need import Answer, Need
from memprof.commands.simulation_process import Simulations
from memprof.errors import CaptureError, InputError, UsageError
from memprof.options import RECIPE_DEFAULTS
from memprof.recipes.registry import settings_for
from memprof.report.fit_progress import fit_progress
from memprof.simulate.cards import card_named

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memprof.analysis.fit_search import Found
    from memprof.report.fit_progress import FitProgress
    from memprof.simulate.cards import Card

__all__ = ["run"]

FIRST = {"mbs": 1, "seq": 2}
"""What can be searched for, and the smallest that there is: the loss needs a next token."""


def run(settings: Mapping[str, Any], *, cards: str, over: str, up_to: int | None, as_json: bool) -> None:
    """Find the largest `over` that fits each of `cards`, and print it.

    Parameters
    ----------
    settings
        The recipe's; the one that is searched for is None.
    cards
        Names, with commas between.
    over
        ``mbs`` or ``seq``.
    up_to
        Largest size to look at; None for as far as the recipe goes.

    Raises
    ------
    UsageError
        If an option has a wrong value.
    MemprofError
        If the runs cannot be simulated here, or one of them fails.

    """
    chosen = _cards(cards)
    recipe, fixed, first = _checked(settings, over, up_to)
    with Simulations() as simulations, fit_progress() as progress:
        progress.says("loading torch")
        loaded = simulations.ask("load", recipe=recipe, quants=[settings["quant"]], optimizer=settings["optimizer"])
        most = int(simulations.ask("limit", recipe=recipe, settings=fixed, over=over, first=first)["limit"])
        limited_by = "the recipe takes no more" if up_to is None or most < up_to else "--up-to"
        most = most if up_to is None else min(most, up_to)
        fits = []
        for card in chosen:
            measure = _Measure(simulations, progress, card, over=over, recipe=recipe, settings=fixed)
            found = search(measure, first=first, limit=most)
            best = min(found.needs) if found.fits is None else found.fits
            fits.append(_card_fit(card, found, measure.caveats[best], limited_by))
    shown = {"recipe": recipe, **{name: value for name, value in fixed.items() if name != over}}
    _print(fits, over, shown, torch=loaded["torch"], alloc_conf=loaded["alloc_conf"], as_json=as_json)


class _Measure:
    """Says what a size needs on a card: one simulated run each."""

    def __init__(
        self,
        simulations: Simulations,
        progress: FitProgress,
        card: Card,
        *,
        over: str,
        recipe: str,
        settings: Mapping[str, Any],
    ) -> None:
        self._simulations = simulations
        self._progress = progress
        self._card = card
        self._over = over
        self._recipe = recipe
        self._settings = settings
        self.caveats: dict[int, tuple[Mapping[str, Any], ...]] = {}
        """By size."""

    def __call__(self, at: int) -> Need:
        self._progress.says(f"{self._card.key}: {self._over} {at}")
        try:
            answer = self._simulations.ask(
                "need", card=self._card.key, recipe=self._recipe, settings={**self._settings, self._over: at}
            )
        except CaptureError as error:
            raise CaptureError(f"--card {self._card.key}, {self._over} {at}: {error}") from None
        values = answer["need"]
        low, high = values["reserved_range"]
        need = Need(**{**values, "answer": Answer(values["answer"]), "reserved_range": (low, high)})
        self.caveats[at] = tuple(answer["caveats"])
        self._progress.ended(self._card.key, self._over, at, need, float(answer["seconds"]))
        return need


def _cards(names: str) -> list[Card]:
    try:
        cards = {card.key: card for card in (card_named(name) for name in names.split(",") if name.strip())}
    except InputError as error:
        raise UsageError(f"--card: {error}") from None
    if not cards:
        raise UsageError(f"--card {names!r} names no card: give one or more, with commas between")
    return list(cards.values())


def _checked(settings: Mapping[str, Any], over: str, up_to: int | None) -> tuple[str, dict[str, Any], int]:
    """Return the recipe, its settings, and the smallest size."""
    if over not in FIRST:
        raise UsageError(f"--max {over}: unknown; it can be {' or '.join(FIRST)}")
    if settings[over] is not None:
        raise UsageError(f"--{over} {settings[over]}: is what --max {over} searches for; leave one of them out")
    if int(settings["cycles"]) < 2:
        raise UsageError(
            f"--cycles {settings['cycles']}: the first step has no optimizer state and later ones have; give at least 2"
        )
    first = FIRST[over]
    if up_to is not None and up_to < first:
        raise UsageError(f"--up-to {up_to}: must be at least {first}")
    other = {"mbs": 1, "seq": 1037}
    filled = {name: other[name] if name in other and value is None else value for name, value in settings.items()}
    return str(settings["recipe"]), settings_for({**filled, over: first}, RECIPE_DEFAULTS), first


def _card_fit(card: Card, found: Found, caveats: tuple[Mapping[str, Any], ...], limited_by: str) -> CardFit:
    return CardFit(
        key=card.key,
        name=card.name,
        measured=card.measured,
        total=card.total_bytes,
        outside=card.context_bytes,
        total_source=card.total_source,
        outside_source=card.context_source,
        found=found,
        limited_by=limited_by,
        caveats=caveats,
    )


def _print(
    fits: list[CardFit], over: str, config: Mapping[str, Any], *, torch: str, alloc_conf: str, as_json: bool
) -> None:
    if as_json:
        from memprof.report.as_json import to_text
        from memprof.report.fit_json import fit_json

        document = fit_json(fits, over=over, config=config, torch=torch, alloc_conf=alloc_conf)
        sys.stdout.write(to_text(document) + "\n")
        return
    from memprof.report.console import make_console
    from memprof.report.fit import fit_report

    make_console().print(fit_report(fits, over=over, config=config, torch=torch, alloc_conf=alloc_conf))
