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
    """What a search came to. More takes more: that is assumed, and what it was looked at says nothing against it."""

    fits: int | None
    """Largest size that fits; None if not even the smallest does."""
    fails: int | None
    """Smallest size that does not fit; None if there was none up to the limit."""
    needs: Mapping[int, Need]
    """Every size that was looked at, smallest first."""
    first: int
    """Smallest size that could be looked at."""
    limit: int | None
    """Largest size that could be looked at, if nothing up to it surely does not fit."""

    @property
    def close(self) -> tuple[int, int] | None:
        """Smallest and largest size for which it is too close to say; None if there is none."""
        first = self.first if self.fits is None else self.fits + 1
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
    """Find the largest size that fits, and the smallest that does not.

    Sizes are doubled, or taken further where a line through the last two says so, until one does not fit; then the gap
    is closed by bisection, at the place where a line through its ends meets the card's memory.

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
    for side in (-1, 1):
        _close_gap(look, needs, side)
    fitting = [size for size, need in needs.items() if need.answer is Answer.YES]
    failing = [size for size, need in needs.items() if need.answer is Answer.NO]
    return Found(
        fits=max(fitting, default=None),
        fails=min(failing, default=None),
        needs=dict(sorted(needs.items())),
        first=first,
        limit=None if failing else limit,
    )


def _guess(needs: Mapping[int, Need]) -> int:
    """Return where a line through the two largest sizes so far meets what surely does not fit; twice the first."""
    *before, last = sorted(needs)
    slope = (needs[last].least - needs[before[-1]].least) / (last - before[-1]) if before else 0
    if slope <= 0:
        return last * 2
    return last + int((needs[last].margin + needs[last].uncertain) / slope)


def _close_gap(look: Callable[[int], Need], needs: Mapping[int, Need], side: int) -> None:
    """Look at sizes until two neighbours differ in whether they surely fit (`side` -1), or surely do not (1)."""
    patience, width = PATIENCE, 0
    while True:
        low = max((size for size, need in needs.items() if _passes(need, side)), default=None)
        if low is None:
            return
        high = min((size for size, need in needs.items() if size > low and not _passes(need, side)), default=None)
        if high is None or high == low + 1:
            return
        if width and 2 * (high - low) > width + 1:
            patience = max(patience - 1, 0)
        width = high - low
        # What remains of the margin once the uncertain bytes are taken against it or for it: its zero is the border.
        left, right = (needs[size].margin + side * needs[size].uncertain for size in (low, high))
        place = low + int(width * left / (left - right)) if patience and left > right else low + width // 2
        look(min(max(place, low + 1), high - 1))


def _passes(need: Need, side: int) -> bool:
    return need.answer is Answer.YES if side < 0 else need.answer is not Answer.NO
