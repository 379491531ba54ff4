"""The largest size that fits a card: found by looking at few sizes, each a run of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memprof.analysis.fit_search_need import Answer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from memprof.analysis.fit_search_need import Need

__all__ = ["CardFit", "Found", "search"]

FURTHEST = 64
"""The next size that is tried is at most so many times the last."""
PATIENCE = 3
"""So many guesses may leave more than half of a gap; after that it is halved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a search came to.

    Larger sizes are taken to need more. Where memory is short that is not always so, since whether fragments serve a
    request is a matter of luck: then `fits` and `tight` are those before the first that was seen to go wrong, and
    `fails` comes after the last that might go well.
    """

    fits: int | None
    """Largest size whose answer is `Answer.YES`; None if not even the smallest has it."""
    tight: int | None
    """Largest size that is served all the same, if memory may be short; None if that is `fits`, or there is none."""
    fails: int | None
    """Smallest size that surely does not fit; None if there was none up to the limit."""
    needs: Mapping[int, Need]
    """Every size that was looked at, smallest first."""
    first: int
    """Smallest size that could be looked at."""
    limit: int | None
    """Largest size that could be looked at, if it may fit."""

    @property
    def close(self) -> tuple[int, int] | None:
        """Smallest and largest size for which it is too close to say; None if there is none."""
        served = self.tight if self.tight is not None else self.fits
        first = self.first if served is None else served + 1
        last = self.limit if self.fails is None else self.fails - 1
        return None if last is None or last < first else (first, last)


@dataclass(frozen=True, slots=True, kw_only=True)
class CardFit:
    """The answer for one card."""

    key: str
    name: str
    """As CUDA has it."""
    measured: bool
    """False where nobody compared the simulation with such a card: the answer is a bound."""
    total: int
    """Bytes of the card, as ``cudaMemGetInfo`` has it."""
    outside: int
    """Of those, what a process takes outside of the allocator."""
    total_source: str
    outside_source: str
    found: Found
    limited_by: str
    """What set `Found.limit`, in words."""
    caveats: tuple[Mapping[str, Any], ...]
    """Of the run closest to the border: kind, what, where, count, bytes."""

    @property
    def capacity(self) -> int:
        """What the allocator can get."""
        return self.total - self.outside


def search(measure: Callable[[int], Need], *, first: int = 1, limit: int) -> Found:
    """Find the largest sizes that fit, and the smallest that does not.

    Sizes are doubled, or taken further where a line through the last two says so, until one does not fit. Then each
    border is closed in upon by bisection, at the place where a line through its ends has it.

    Parameters
    ----------
    measure
        Says what a size needs.
    first
        Smallest size.
    limit
        Largest size.

    """
    needs: dict[int, Need] = {}

    def look(at: int) -> Need:
        if at not in needs:
            needs[at] = measure(at)
        return needs[at]

    at, step = first, 1
    while look(at).answer is not Answer.NO and at < limit:
        guess = _guess(needs)
        step = 1 if guess > at + step else step * 2
        at = min(max(guess, at + step), at * FURTHEST, limit)
    easy = _close_in(look, needs, (Answer.YES,), lambda need: need.margin - need.uncertain)
    served = _close_in(look, needs, (Answer.YES, Answer.TIGHT), None)
    _close_in(look, needs, (Answer.YES, Answer.TIGHT, Answer.CLOSE), lambda need: need.room, last=True)
    maybe = max((size for size, need in needs.items() if need.answer is not Answer.NO), default=0)
    return Found(
        fits=easy,
        tight=served if served != easy else None,
        fails=min((size for size in needs if size > maybe), default=None),
        needs=dict(sorted(needs.items())),
        first=first,
        limit=limit if limit in needs and needs[limit].answer is not Answer.NO else None,
    )


def _guess(needs: Mapping[int, Need]) -> int:
    """Return where a line through the two largest sizes so far meets what surely does not fit; twice the first."""
    *before, last = sorted(needs)
    slope = (needs[last].allocated - needs[before[-1]].allocated) / (last - before[-1]) if before else 0
    if slope <= 0:
        return last * 2
    return last + int(needs[last].room / slope)


def _close_in(
    look: Callable[[int], Need],
    needs: Mapping[int, Need],
    passing: tuple[Answer, ...],
    value: Callable[[Need], int] | None,
    *,
    last: bool = False,
) -> int | None:
    """Look at sizes until one with an answer in `passing` and one without are neighbours, and return the first.

    Parameters
    ----------
    look, needs
        Looks at a size; what was looked at.
    passing
        Answers below the border.
    value
        Something that is 0 near the border, above 0 below it; None if nothing is known to be.
    last
        Where answers are not in order, close in on the last border instead of the first.

    """
    patience, width = PATIENCE, 0
    while True:
        good = [size for size, need in needs.items() if need.answer in passing]
        bad = [size for size, need in needs.items() if need.answer not in passing]
        if last:
            low = max(good, default=None)
            high = min((size for size in bad if low is not None and size > low), default=None)
        else:
            high = min(bad, default=None)
            low = max((size for size in good if high is None or size < high), default=None)
        if low is None or high is None or high == low + 1:
            return low
        if width and 2 * (high - low) > width + 1:
            patience = max(patience - 1, 0)
        width = high - low
        left, right = (0, 0) if value is None else (value(needs[low]), value(needs[high]))
        guessed = patience and left > 0 >= right
        place = low + int(width * left / (left - right)) if guessed else low + width // 2
        look(min(max(place, low + 1), high - 1))
