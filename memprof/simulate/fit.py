"""The largest batch (or sequence, or anything that grows) whose run fits a card, found by running it again and again.

All attempts share one process: libraries are loaded once, and an attempt takes a fraction of a second. Each begins with
an empty device.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from memprof.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from memprof.simulate.simulated import SimulatedDevice

__all__ = ["Attempt", "Fit", "largest_that_fits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One run at one size."""

    size: int
    fits: bool
    capacity_bytes: int
    """What the process could reserve: the card's memory less the context."""
    max_allocated_bytes: int
    max_reserved_bytes: int
    """Up to the error, where the run did not fit."""
    message: str
    """torch's, where the run did not fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """What fits a card."""

    largest: int
    """The largest size that fits for sure; 0 if none does."""
    smallest_too_large: int | None
    """The smallest size that does not fit whatever the context takes; None if all up to the limit fit.

    Sizes in between are too close to say: they would fit if the context took less than assumed. There are none on a
    card whose context was measured."""
    attempts: tuple[Attempt, ...]
    """In the order in which they were made."""

    @property
    def margin_bytes(self) -> int:
        """Bytes that are left at the largest size that fits."""
        best = [a for a in self.attempts if a.fits and a.size == self.largest]
        return best[0].capacity_bytes - best[0].max_reserved_bytes if best else 0


def largest_that_fits(device: SimulatedDevice, run: Callable[[int], object], *, most: int = 4096) -> Fit:
    """Find the largest size whose run fits the device's card.

    Parameters
    ----------
    run
        Runs at a size, at least two whole optimizer cycles: the first step and the later ones need different amounts.
        Larger sizes must need more memory.
    most
        Largest size to try.
    """
    if most < 1:
        raise InputError(f"--max {most}: must be at least 1")
    card = device.card
    attempts: list[Attempt] = []

    def fits(size: int, capacity: int) -> bool:
        attempts.append(_attempt(device, run, size, capacity))
        return attempts[-1].fits

    sure = card.total_bytes - card.context_bytes
    largest = _boundary(lambda size: fits(size, sure), 0, most)
    if card.measured:
        too_large = largest + 1 if largest < most else None
    else:
        # No context at all: what does not fit then does not fit.
        possible = _boundary(lambda size: fits(size, card.total_bytes), largest, most)
        too_large = possible + 1 if possible < most else None
    return Fit(largest=largest, smallest_too_large=too_large, attempts=tuple(attempts))


def _boundary(fits: Callable[[int], bool], known: int, most: int) -> int:
    """Return the largest size up to `most` that fits; `known` does."""
    low, step = known, 1
    while low < most:
        size = min(low + step, most)
        if not fits(size):
            break
        low, step = size, step * 2
    else:
        return low
    high = size
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low


def _attempt(device: SimulatedDevice, run: Callable[[int], object], size: int, capacity: int) -> Attempt:
    gc.collect()
    device.begin(capacity)
    message = ""
    try:
        run(size)
    except torch.OutOfMemoryError as error:
        message = str(error)
    figures = device.figures()
    gc.collect()
    return Attempt(
        size=size,
        fits=not message,
        capacity_bytes=capacity,
        max_allocated_bytes=figures["max_allocated_bytes"],
        max_reserved_bytes=figures["max_reserved_bytes"],
        message=message,
    )
