"""The trace that the simulation writes: the columns of `memprof.trace.model.Events`, growing."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import numpy as np

from memprof.trace.model import Action, Events

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Recording"]


class Recording:
    """Trace entries in order; an entry's number is its row."""

    def __init__(self) -> None:
        self.action = array("B")
        self.address = array("q")
        """Free bytes of the device for `Action.OOM`, as in `Events.address`."""
        self.size = array("q")
        self.stream = array("q")
        self.pool: list[tuple[int, int]] = []
        """Private pool of each entry; (0, 0) is the default one."""

    def __len__(self) -> int:
        """Count the entries."""
        return len(self.action)

    def add(self, action: Action, address: int, size: int, stream: int, pool: tuple[int, int]) -> None:
        """Append an entry."""
        self.action.append(action)
        self.address.append(address)
        self.size.append(size)
        self.stream.append(stream)
        self.pool.append(pool)

    def events(self) -> Events:
        """Return the entries as columns, without times, stacks and metadata."""
        count = len(self)
        none = np.full(count, -1, dtype=np.int32)
        return Events(
            action=np.array(self.action, dtype=np.uint8),
            address=np.array(self.address, dtype=np.int64),
            size=np.array(self.size, dtype=np.int64),
            stream=np.array(self.stream, dtype=np.int64),
            time_us=np.zeros(count, dtype=np.int64),
            stack=none,
            metadata=none,
        )

    def entries(self, start: int = 0) -> Iterator[dict[str, object]]:
        """Yield entries from number `start` on with the keys of torch's ``device_traces``."""
        for row in range(start, len(self)):
            action = Action(self.action[row])
            yield {
                "action": action.name.lower(),
                "device_free" if action is Action.OOM else "addr": self.address[row],
                "size": self.size[row],
                "stream": self.stream[row],
                "pool_id": self.pool[row],
            }
