"""Replay: the exact account of a recording, driven by its events.

The steps, each on whole columns: pair the entries of the trace into lives (`memprof.allocator.lifetimes`), reconcile
them with the blocks that the file ends with, find every block's size (`memprof.allocator.blocks`), and sum up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from memprof.allocator.account import Allocations, Replay
from memprof.allocator.blocks import block_sizes
from memprof.allocator.lifetimes import FREE, RELEASE, find, lives_of, overlapping, stable_order
from memprof.allocator.rules import round_sizes
from memprof.allocator.segments import segment_lives
from memprof.errors import InputError
from memprof.trace.model import Action, BlockState, Source

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from memprof.trace.model import DeviceTrace, Settings

    Column = NDArray[np.int64]

__all__ = ["replay"]

_UNKNOWN = -1
_MOST_BYTES = 1 << 62
"""More than any run allocates in its life; sums of columns stay within 64 bits."""


@dataclass(slots=True, kw_only=True)
class _Known:
    """Allocations while they are being put together; columns as in `Allocations`."""

    address: Column
    born: Column
    freed: Column
    released: Column
    requested: Column
    stream: Column
    stack: NDArray[np.int32]
    final_size: Column
    """Size of the block in the file's segments, for those that are there at the end; -1 for the others."""

    def followed_by(self, other: _Known) -> _Known:
        """Return the rows of both."""
        return _Known(**{name: np.concatenate([getattr(self, name), getattr(other, name)]) for name in self.__slots__})


def replay(
    device: DeviceTrace, settings: Settings, source: Source, progress: Callable[[float], None] | None = None
) -> Replay:
    """Rebuild allocated, requested, pending and reserved bytes at every event, and every allocation's block.

    The file's segments are the truth for the end. Where the trace does not lead there, the difference is laid into the
    last event and put in words in `Replay.notes`; no figure is ever negative.

    Parameters
    ----------
    progress
        Called with the fraction that is done, 0 to 1.

    Raises
    ------
    InputError
        Sizes beyond reason: the file is damaged.
    """
    tell = progress or (lambda _: None)
    for what, sizes in (("trace", device.events.size), ("segments", device.blocks.size)):
        if sizes.sum(dtype=np.float64) >= _MOST_BYTES:
            raise InputError(
                f"device {device.device}: the sizes in the {what} add up to over 4 EiB: the file is damaged"
            )
    notes: list[str] = []
    known = _from_events(device, notes)
    tell(0.4)
    known = _reconciled(known, device, notes)
    tell(0.5)
    segments = segment_lives(device)
    if source is Source.PROFILED:
        size = known.requested
    else:
        notes += segments.notes
        size = block_sizes(
            address=known.address,
            rounded=round_sizes(known.requested, settings),
            born=known.born,
            released=known.released,
            segments=segments,
            device=device,
            settings=settings,
        )
    told = known.final_size != _UNKNOWN
    if wrong := int(np.count_nonzero(told & (size != known.final_size) & (known.born >= 0))):
        notes.append(
            f"{wrong:,} blocks have another size in the file's segments than the allocator's rules give: the "
            "segments' size is used (were the allocator's settings changed during the run?)"
        )
    size = np.where(told, known.final_size, size)
    tell(0.8)
    result = _summed(known, size, len(device.events), None if source is Source.PROFILED else segments.reserved, notes)
    tell(1.0)
    return result


def _from_events(device: DeviceTrace, notes: list[str]) -> _Known:
    """Pair the trace's alloc and free entries; rows by address, then birth."""
    events, blocks = device.events, device.blocks
    count = len(events)
    rows = np.flatnonzero(events.action <= Action.FREE_COMPLETED)
    # The codes of these actions are those of ALLOC, FREE and RELEASE.
    kind = events.action[rows]
    lives = lives_of(rows, events.address[rows], kind, count)
    freed, released = lives.freed, lives.released
    requested_known = bool((kind == FREE).any())
    completed_known = bool((kind == RELEASE).any())
    unfreed = (freed == count) & (released < count)
    if requested_known:
        # Its free_requested lies before the first event: it was waiting for another stream all the time.
        freed = np.where(unfreed & (lives.born < 0), -1, freed)
        unfreed &= lives.born >= 0
    freed = np.where(unfreed, released, freed)
    if not completed_known:
        # Blocks went back when they were freed, for all that is known, but for those that still wait at the end.
        waiting = find(blocks.address[blocks.state == BlockState.PENDING_FREE], lives.address)[1]
        waiting[:-1] &= lives.address[1:] != lives.address[:-1]
        released = np.where(waiting, count, freed)
    if lives.strays:
        notes.append(f"{lives.strays:,} free entries of the trace free what is not allocated: ignored")
    if lives.unended:
        notes.append(
            f"{lives.unended:,} allocations were never freed in the trace, but their address was given out again: "
            "counted as freed just then"
        )
    began = lives.born >= 0
    return _Known(
        address=lives.address,
        born=lives.born,
        freed=np.minimum(freed, released),
        released=released,
        requested=events.size[lives.first],
        stream=events.stream[lives.first],
        stack=np.where(began, events.stack[lives.first], -1).astype(np.int32),
        final_size=np.full(len(began), _UNKNOWN, dtype=np.int64),
    )


def _reconciled(known: _Known, device: DeviceTrace, notes: list[str]) -> _Known:
    """Make the lives end in the blocks of the file's segments, and add those that the trace never saw."""
    count, blocks = len(device.events), device.blocks
    if len(device.segments) == 0 and count:
        if live := int(np.count_nonzero(known.freed == count)):
            notes.append(f"the file has no segments: that {live:,} allocations live at the end is the trace's word")
        return known
    last = count - 1
    allocated = np.flatnonzero(blocks.state == BlockState.ALLOCATED)
    pending = np.flatnonzero(blocks.state == BlockState.PENDING_FREE)

    lost = _matched(known, np.flatnonzero(known.freed == count), device, allocated)
    if len(lost):
        notes.append(
            f"{len(lost):,} allocations ({int(known.requested[lost].sum()):,} requested bytes) live by the trace are "
            "not in the file's segments, which are the truth for the end: counted as freed at the last event"
        )
        known.freed[lost] = last
        known.released[lost[~find(blocks.address[pending], known.address[lost])[1]]] = last
    unseen_allocated = allocated[~find(known.address[known.freed == count], blocks.address[allocated])[1]]

    waiting = np.flatnonzero((known.freed < count) & (known.released == count))
    lost = _matched(known, waiting, device, pending)
    if len(lost):
        notes.append(
            f"{len(lost):,} blocks that wait for another stream by the trace are free in the file's segments: counted "
            "as returned at the last event"
        )
        known.released[lost] = last
    unseen_pending = pending[~find(known.address[waiting], blocks.address[pending])[1]]

    unseen = np.concatenate([unseen_allocated, unseen_pending])
    if len(unseen) == 0:
        return known
    address, size = blocks.address[unseen], blocks.size[unseen]
    late = overlapping(address, size, known.address, np.maximum(known.requested, 1))
    born = np.where(late, last, -1)
    if late.any():
        notes.append(
            f"{int(late.sum()):,} blocks ({int(size[late].sum()):,} bytes) of the file's segments lie where the trace "
            "has other memory: counted as allocated at the last event"
        )
    return known.followed_by(
        _Known(
            address=address,
            born=born,
            freed=np.where(np.arange(len(unseen)) < len(unseen_allocated), count, born),
            released=np.full(len(unseen), count, dtype=np.int64),
            requested=blocks.requested[unseen],
            stream=device.segments.stream[blocks.segment[unseen]],
            stack=blocks.stack[unseen],
            final_size=size,
        )
    )


def _matched(known: _Known, rows: Column, device: DeviceTrace, final: Column) -> Column:
    """Give `rows` what the final blocks at their addresses say; return those that have no such block."""
    place, there = find(device.blocks.address[final], known.address[rows])
    rows, block, lost = rows[there], final[place[there]], rows[~there]
    known.final_size[rows] = device.blocks.size[block]
    # An allocation from before the first event has no alloc entry; its stack is in the block.
    known.stack[rows] = np.where(known.born[rows] < 0, device.blocks.stack[block], known.stack[rows])
    return lost


def _summed(known: _Known, size: Column, count: int, reserved: Column | None, notes: list[str]) -> Replay:
    """Put the rows in order of birth and sum the account up."""
    order = stable_order(known.born)
    base = int(np.count_nonzero(known.born < 0))
    order[:base] = order[:base][np.argsort(known.address[order[:base]], kind="stable")]
    born, freed, released = known.born[order], known.freed[order], known.released[order]
    size, requested = size[order], known.requested[order]
    if count and base:
        notes.insert(
            0,
            f"{base:,} allocations ({int(size[:base].sum()):,} bytes) were there before the first event: recording "
            "began later than the program, or the oldest entries are lost",
        )
    allocated = _running(count, [(born, size), (freed, -size)])
    pending = _running(count, [(freed, size), (released, -size)])
    if reserved is not None:
        used = allocated + pending
        if len(short := np.flatnonzero(used > reserved)):
            notes.append(
                f"the trace uses up to {int((used - reserved).max()):,} bytes more than the known segments have, from "
                f"event {int(short[0]) - 1:,} on: segment entries are missing, and reserved is raised to what is used"
            )
            reserved = np.maximum(reserved, used)
    return Replay(
        allocated=allocated,
        requested=_running(count, [(born, requested), (freed, -requested)]),
        pending=pending,
        reserved=reserved,
        allocations=Allocations(
            born=born,
            freed=freed,
            released=released,
            address=known.address[order],
            requested=requested,
            size=size,
            stream=known.stream[order],
            stack=known.stack[order],
        ),
        notes=tuple(notes),
    )


def _running(count: int, changes: list[tuple[Column, Column]]) -> Column:
    """Sum changes (event, bytes) up to the state after every event; row 0 has those of event -1."""
    total = np.zeros(count + 2, dtype=np.int64)
    for event, change in changes:
        np.add.at(total, event + 1, change)
    return np.cumsum(total[: count + 1])
