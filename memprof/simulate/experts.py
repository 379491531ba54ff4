"""How much it could matter that the tokens of a mixture of experts are taken as evenly spread.

Which experts a router chooses is not known, so each gets as many rows as any other (`memprof.simulate.decided`). On a
card one expert may get more, at most every token. What is allocated for the rows of an expert, in the forward pass
from one choice to the next, is told by its size: as many rows as an even share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from memprof.simulate.storages import storage_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Empty = Callable[[Sequence[int], Sequence[int], torch.dtype], torch.Tensor]

__all__ = ["SPREAD", "Empty", "ExpertRows"]

SPREAD = "what is chosen by unknown scores (experts of a router) is taken as evenly spread"


class ExpertRows:
    """Watches what is allocated for the rows of experts.

    Parameters
    ----------
    empty
        Allocates a tensor.
    uncertain
        Takes the bytes that all rows would take beyond an even share, if one expert got them.
    """

    def __init__(self, empty: Empty, uncertain: Callable[[int], None]) -> None:
        self._empty = empty
        self._uncertain = uncertain
        self._shares: dict[int, int] = {}
        """Rows that an expert gets when they are evenly spread, and rows that one could get."""
        self._experts = self._rows = 1
        self._bytes = 0
        """What was allocated for the rows of all experts since the last choice."""
        self._watching = False

    def choose(self, rows: int, chosen: int, experts: int) -> None:
        """Learn of a router's choice: for each of the rows, so many of the experts."""
        share, rest = divmod(rows * chosen, experts)
        for each in (share, share + bool(rest)):
            if 1 < each < rows:  # one row is what anything could have
                self._shares[each] = max(rows, self._shares.get(each, 0))
        self._experts, self._rows, self._bytes, self._watching = experts, rows, 0, True

    def find(self, found: int, among: int) -> None:
        """Learn how many were found where rows of an expert are looked for: capacities and padding change the share."""
        if self._watching and among >= self._rows and 1 < found < among:
            self._shares.setdefault(found, among)

    def empty(self, size: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Allocate a tensor."""
        if self._watching and len(size) == 2:
            # Backward ends it, so that gradients and an optimizer's states of as many rows are not taken for tokens.
            self._watching = torch._C._current_graph_task_id() == -1
            share = size[0]
            if self._watching and share in self._shares:
                self._bytes += storage_bytes(size, stride, dtype.itemsize)
                self._uncertain(self._bytes * (self._shares[share] - share) // (share * self._experts))
        return self._empty(size, stride, dtype)
