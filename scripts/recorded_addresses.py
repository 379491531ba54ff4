# ruff: noqa: INP001  # a script's helper, not a package
"""A simulated run with its segments where the driver of the recorded run put them.

Where a segment is decides ties between free blocks, and so what is reserved and, by up to 1 MiB a block, allocated.
This says whether these addresses are all that a prediction did not know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memprof.allocator.conf import parse_alloc_conf
from memprof.allocator.driver import Driver
from memprof.allocator.simulation import CachingAllocator

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["peaks_at_recorded_addresses"]


class _RecordedAddresses(Driver):
    """Gives the recorded addresses, in order."""

    def __init__(self, addresses: Iterator[int]) -> None:
        super().__init__()
        self._addresses = addresses

    def malloc(self, size: int) -> int:
        """Return the next one."""
        self.used += size
        return next(self._addresses)

    def release(self, address: int, size: int) -> None:
        """Forget: the recording says when an address comes again."""
        del address
        self.used -= size


def peaks_at_recorded_addresses(
    simulated: dict[str, Any], recorded: dict[str, Any], settings: str
) -> tuple[int, int] | None:
    """Return the peaks of allocated and reserved of a simulated run on recorded addresses.

    Parameters
    ----------
    simulated, recorded
        Events as `recorded_events.events_of` gives them.
    settings
        What both runs had in ``PYTORCH_CUDA_ALLOC_CONF``; without expandable segments.

    Returns
    -------
    None where the simulated run does not make the recorded segments in the recorded order.
    """
    allocator = CachingAllocator(parse_alloc_conf(settings), _RecordedAddresses(iter(recorded["addresses"])))
    placed: list[int] = []
    before = ""
    try:
        for action, value in zip(simulated["actions"], simulated["values"], strict=True):
            if action == "r" != before:
                allocator.empty_cache()
            before = action
            if action == "a":
                placed.append(allocator.malloc(value))
            elif action == "f":
                allocator.free(placed[value])
    except (StopIteration, KeyError):
        return None
    return allocator.counters.allocated_peak, allocator.counters.reserved_peak
