"""What a simulated run needs of a card, and whether the card has it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from memprof.allocator.driver import AddressOrder
from memprof.allocator.whatif import what_if
from memprof.trace.model import Source

if TYPE_CHECKING:
    from memprof.trace.model import DeviceTrace, Settings

__all__ = ["Answer", "Need", "need_of"]

ORDERS = tuple(AddressOrder)
"""The first is the one seen on an H200."""


class Answer(Enum):
    """Whether it fits."""

    YES = "yes"
    """Memory is never short, also if everything that is not known goes against it."""
    TIGHT = "tight"
    """All requests are served, also if everything goes against it; but some only after cached memory was given back to
    the driver, which costs time."""
    CLOSE = "close"
    """What is not known decides."""
    NO = "no"
    """Some request is not served, also if everything that is not known goes for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """One run, and what it takes. Sizes in bytes."""

    answer: Answer
    expected: bool
    """Whether it fits if everything is as it was simulated."""
    allocated: int
    """Highest allocated."""
    reserved: int
    """Highest reserved, where memory is not short."""
    reserved_range: tuple[int, int]
    """Its lowest and highest over several orders of segment addresses, on which best fit depends."""
    uncertain: int
    """How far what is not known of card and libraries could matter."""
    margin: int
    """What the card has more than the highest reserved; negative where it has less, so that memory is short."""

    @property
    def room(self) -> int:
        """What the card has more than the highest allocated, if all that is uncertain goes for it."""
        return self.margin + self.reserved_range[1] + self.uncertain - self.allocated


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

    def served(limit: int) -> list[bool]:
        """Tell for each order whether every request is served with so much memory."""
        answer = what_if(device, settings, settings, Source.SIMULATED, capacity=limit, orders=ORDERS)
        return [not failures for failures in answer.failures_by_order]

    free = what_if(device, settings, settings, Source.SIMULATED, orders=ORDERS)
    low, high = free.reserved_range
    if high <= capacity - uncertain:
        answer, expected = Answer.YES, True
    elif free.allocated_peak > capacity + uncertain:
        answer, expected = Answer.NO, False
    else:
        expected = served(capacity)[0]
        answer = Answer.CLOSE
        if all(served(capacity - uncertain)):
            answer = Answer.TIGHT
        elif not any(served(capacity + uncertain)):
            answer = Answer.NO
    return Need(
        answer=answer,
        expected=expected,
        allocated=free.allocated_peak,
        reserved=free.reserved_peak,
        reserved_range=(low, high),
        uncertain=uncertain,
        margin=capacity - high,
    )
