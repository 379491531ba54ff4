"""Random programs for the simulated allocator, and what it said of itself after each step."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from memprof.allocator.counters import OutOfMemory
from memprof.allocator.driver import AddressOrder, Driver
from memprof.allocator.simulation import CachingAllocator
from memprof.allocator.snapshot import device_trace
from memprof.trace.model import Blocks, DeviceTrace, Events, Segments, Settings

KIB, MIB = 1 << 10, 1 << 20
DATA = Path(__file__).parent / "data"
PLAIN = "h200_pythia70m_mbs16_plain"
NF4 = "h200_pythia70m_mbs16_nf4"


@dataclass
class Step:
    """State after a step of the program, by the simulation's own counters."""

    entries: int
    allocated: int
    requested: int
    pending: int
    reserved: int
    blocks: list[tuple[int, int, int]]
    """(address, size, state) of every block."""


@dataclass
class Run:
    allocator: CachingAllocator
    steps: list[Step] = field(default_factory=list)
    sizes: dict[int, int] = field(default_factory=dict)
    """Block size by alloc entry."""
    failures: int = 0


sizes = st.one_of(
    st.integers(1, 4 * KIB),
    st.integers(1, MIB),
    st.integers(MIB, 12 * MIB),
    st.integers(8 * MIB, 70 * MIB),
    st.sampled_from([512, MIB, MIB + 1, 2 * MIB, 10 * MIB - 512, 10 * MIB, 20 * MIB, 20 * MIB + 512]),
)
operations = st.one_of(
    st.tuples(st.just("malloc"), sizes, st.integers(0, 2)),
    st.tuples(st.just("malloc"), sizes, st.just(0)),
    st.tuples(st.just("free"), st.integers(0, 1 << 30), st.just(0)),
    st.tuples(st.just("free"), st.integers(0, 1 << 30), st.just(0)),
    st.tuples(st.just("use"), st.integers(0, 1 << 30), st.integers(0, 3)),
    st.tuples(st.sampled_from(["synchronize", "empty", "capture", "end", "drop"]), st.integers(0, 2), st.just(0)),
)
programs = st.one_of(st.lists(operations, max_size=30), st.lists(operations, min_size=40, max_size=100))
settings_st = st.builds(
    Settings,
    expandable_segments=st.booleans(),
    max_split_size=st.sampled_from([None, None, 20 * MIB, 32 * MIB]),
    roundup_power2_divisions=st.sampled_from([(), (), ((1, 4), (2, 8), (4, 2), (32, 16))]),
    garbage_collection_threshold=st.sampled_from([0.0, 0.5]),
)
drivers = st.builds(
    Driver,
    st.sampled_from([None, 96 * MIB, 256 * MIB]),
    total=st.just(512 * MIB),
    order=st.sampled_from(AddressOrder),
    seed=st.integers(0, 3),
)
limits = st.sampled_from([None, None, 128 * MIB])


def run_program(program: list, settings: Settings, driver: Driver, allowed: int | None) -> Run:
    """Run a random program; free and use pick among what is live."""
    allocator = CachingAllocator(settings, driver, allowed=allowed)
    run = Run(allocator)
    live: dict[int, int] = {}
    pool, open_pools = (7, 0), 0
    for what, number, stream in program:
        if what == "malloc":
            try:
                address = allocator.malloc(number, stream)
            except OutOfMemory:
                run.failures += 1
            else:
                live[address] = number
                run.sizes[len(allocator.trace) - 1] = allocator.allocated[address].size
        elif what in ("free", "use") and live:
            address = sorted(live)[number % len(live)]
            if what == "free":
                allocator.free(address)
                del live[address]
            else:
                allocator.record_stream(address, stream)
        elif what == "synchronize":
            allocator.synchronize(number or None)
            allocator.process_events()
        elif what == "empty":
            allocator.empty_cache()
        elif what == "capture" and not open_pools:
            allocator.begin_pool(pool, None if number else frozenset({0}))
            open_pools = 1
        elif what == "end" and open_pools == 1:
            allocator.end_pool(pool)
            open_pools = 2
        elif what == "drop" and open_pools == 2:
            allocator.release_pool(pool)
            pool, open_pools = (7, pool[1] + 1), 0
        run.steps.append(_step(allocator, sum(live.values())))
    return run


def _step(allocator: CachingAllocator, requested: int) -> Step:
    blocks = [
        (block.address, block.size, 1 if block.allocated else 0 if block.is_free else 2)
        for segment in allocator.segments()
        for block in segment
    ]
    counters = allocator.counters
    return Step(
        entries=len(allocator.trace),
        allocated=counters.allocated_bytes,
        requested=requested,
        pending=counters.active_bytes - counters.allocated_bytes,
        reserved=counters.reserved_bytes,
        blocks=blocks,
    )


def recorded(run: Run) -> DeviceTrace:
    """Return the run as a recording."""
    return device_trace(run.allocator)


def with_entries(device: DeviceTrace, kept: np.ndarray) -> DeviceTrace:
    """Return a recording with some of its entries only; the segments stay."""
    events = device.events
    columns = {name: getattr(events, name)[kept] for name in Events.__slots__}
    return DeviceTrace(device=0, events=Events(**columns), segments=device.segments, blocks=device.blocks)


def columns_of(name: str) -> DeviceTrace:
    """Return a recording of a real run from its columns (data/make_columns.py made them)."""
    with np.load(DATA / f"{name}.npz") as file:
        columns = dict(file)
    count, blocks = len(columns["events_action"]), len(columns["blocks_address"])
    none = np.full(count, -1, dtype=np.int32)

    def part(prefix: str) -> dict[str, np.ndarray]:
        return {key.removeprefix(prefix): value for key, value in columns.items() if key.startswith(prefix)}

    return DeviceTrace(
        device=0,
        events=Events(**part("events_"), time_us=np.zeros(count, dtype=np.int64), stack=none, metadata=none),
        segments=Segments(**part("segments_")),
        blocks=Blocks(**part("blocks_"), stack=np.full(blocks, -1, dtype=np.int32)),
    )
