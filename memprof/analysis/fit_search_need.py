"""What a simulated run needs of a card, and whether the card has it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from memprof.allocator.driver import AddressOrder
from memprof.allocator.whatif import what_if
from memprof.trace.model import Source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memprof.trace.model import DeviceTrace, Settings

__all__ = ["Answer", "Need", "need_of"]

FINE = 2 << 20
"""Bytes to which the least capacity is found: the smallest segment (``kSmallBuffer``, CUDACachingAllocator.cpp)."""


class Answer(Enum):
    """Whether it fits."""

    YES = "yes"
    """Also if everything that is not known goes against it."""
    CLOSE = "close"
    """What is not known decides."""
    NO = "no"
    """Also if everything that is not known goes for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """One run, and what it takes. Sizes in bytes."""

    answer: Answer
    allocated: int
    """Highest allocated."""
    reserved: int
    """Highest reserved, where memory is not short."""
    reserved_range: tuple[int, int]
    """Its lowest and highest over several orders of segment addresses, on which best fit depends."""
    least: int
    """The least that the allocator can do with. Less than `reserved` only where that comes close to the card's memory:
    then cached memory is given back to the driver and asked for again, which costs time."""
    uncertain: int
    """How far what is not known of card and libraries could matter."""
    margin: int
    """What the card has more than `least`; negative where it has less."""


def need_of(device: DeviceTrace, settings: Settings, *, capacity: int, uncertain: int) -> Need:
    """Say whether a run fits.

    Parameters
    ----------
    device
        The run, simulated on a card whose memory was never short.
    settings
        The allocator's settings, which the run was simulated with.
    capacity
        Bytes that the allocator can get from the card in question.
    uncertain
        Bytes by which the run or the card may differ from what was simulated, either way.

    """
    orders = tuple(AddressOrder)
    free = what_if(device, settings, settings, Source.SIMULATED, orders=orders)
    low, high = free.reserved_range
    answer = Answer.CLOSE
    if high <= capacity - uncertain:
        answer = Answer.YES
    elif free.allocated_peak > capacity + uncertain:
        answer = Answer.NO
    elif all(_fits(device, settings, capacity - uncertain, orders)):
        answer = Answer.YES
    elif not any(_fits(device, settings, capacity + uncertain, orders)):
        answer = Answer.NO
    least = free.reserved_peak
    if high > capacity - uncertain and free.allocated_peak <= capacity + uncertain:
        least = _least(device, settings, free.allocated_peak, free.reserved_peak)
    elif high <= capacity - uncertain:
        least = high
    return Need(
        answer=answer,
        allocated=free.allocated_peak,
        reserved=free.reserved_peak,
        reserved_range=(low, high),
        least=least,
        uncertain=uncertain,
        margin=capacity - least,
    )


def _fits(device: DeviceTrace, settings: Settings, capacity: int, orders: Sequence[AddressOrder]) -> list[bool]:
    """Tell for each order of addresses whether every request is served with so much memory."""
    answer = what_if(device, settings, settings, Source.SIMULATED, capacity=capacity, orders=orders)
    return [not failures for failures in answer.failures_by_order]


def _least(device: DeviceTrace, settings: Settings, allocated: int, reserved: int) -> int:
    """Return the least capacity at which every request is served, in the order of addresses that is likeliest."""
    low, high = allocated, reserved  # fails at low, or that is it; serves all at high
    while high - low > FINE:
        middle = (low + high) // 2
        if _fits(device, settings, middle, (AddressOrder.CUDA,))[0]:
            high = middle
        else:
            low = middle
    return high
