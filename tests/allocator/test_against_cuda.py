"""The simulation against the real allocator on a GPU: random programs, the same entries at the same addresses."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys

import pytest
from allocator_driving import KIB, MIB

from memprof.allocator.conf import parse_alloc_conf
from memprof.allocator.counters import OutOfMemory
from memprof.allocator.driver import AddressOrder, Driver
from memprof.allocator.recording import Recording
from memprof.allocator.simulation import CachingAllocator
from memprof.trace.model import Action, Settings

LIMIT = 512 * MIB
CHILD = """
import json, sys, torch
programs, limit = json.load(sys.stdin)
torch.cuda.init()
total = torch.cuda.get_device_properties(0).total_memory
streams = [torch.cuda.default_stream(), torch.cuda.Stream(), torch.cuda.Stream()]
answers = []
for limited in (False, True):
    torch.cuda.set_per_process_memory_fraction(limit / total if limited else 1.0, 0)
    for program in programs:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.memory._record_memory_history(enabled=None)
        torch.cuda.memory._record_memory_history(context=None, stacks="python", max_entries=100000)
        live = {}
        for number, (what, value, stream) in enumerate(program):
            if what == "malloc":
                with torch.cuda.stream(streams[stream]):
                    try:
                        live[number] = torch.empty(value, dtype=torch.uint8, device="cuda")
                    except torch.OutOfMemoryError:
                        pass
            elif what == "free":
                live.pop(value, None)
                torch.cuda.synchronize()
            elif what == "use" and value in live:
                live[value].record_stream(streams[stream])
            elif what == "empty":
                torch.cuda.empty_cache()
        entries = torch.cuda.memory._snapshot()["device_traces"][0]
        answers.append({
            "limited": limited,
            "total": total,
            "streams": [stream.cuda_stream for stream in streams],
            "entries": [(entry["action"], entry.get("addr", 0), entry["size"]) for entry in entries
                        if entry["action"] != "snapshot"],
            "allocated": torch.cuda.max_memory_allocated(),
            "reserved": torch.cuda.max_memory_reserved(),
        })
        live.clear()
        torch.cuda.synchronize()
json.dump(answers, sys.stdout)
"""


class RecordedAddresses(Driver):
    """Segments lie where they lay on the device: the next entry of the recording says where."""

    def __init__(self, entries: list, total: int) -> None:
        super().__init__(None, total=total, order=AddressOrder.UP)
        self._entries = entries
        self.trace = Recording()

    def _place(self, size: int) -> int:
        made = len(self.trace)
        return self._entries[made][1] if made < len(self._entries) else super()._place(size)


def random_program(seed: int, steps: int = 400) -> list[tuple[str, int, int]]:
    """Return a program of (what, value, stream); free and use name the step that allocated.

    Only one stream uses what others allocate: in which order the device reaches events of several is its own affair.
    """
    rng = random.Random(seed)
    program, live = [], []
    for number in range(steps):
        what = rng.choices(["malloc", "free", "use", "empty"], [10, 9, 2, 0.3])[0]
        if what == "malloc":
            size = rng.choice([rng.randint(1, 8 * KIB), rng.randint(1, MIB), rng.randint(MIB, 12 * MIB)])
            size = rng.choice([size, size, rng.randint(10 * MIB, 90 * MIB)])
            program.append((what, size, rng.choice([0, 0, 0, 1, 2])))
            live.append(number)
        elif what == "empty" or not live:
            program.append(("empty", 0, 0))
        elif what == "free":
            program.append((what, live.pop(rng.randrange(len(live))), 0))
        else:
            program.append((what, rng.choice(live), 1))
    return program


def simulated(program: list, settings: Settings, real: dict) -> CachingAllocator:
    """Run the program on the simulation, with segments at the addresses of the real run."""
    driver = RecordedAddresses(real["entries"], real["total"])
    allowed = int(LIMIT / real["total"] * real["total"]) if real["limited"] else None
    return run_program(program, settings, driver, streams=real["streams"], allowed=allowed)


def run_program(
    program: list, settings: Settings, driver: Driver, *, streams: list[int], allowed: int | None = None
) -> CachingAllocator:
    """Run the program on the simulation."""
    allocator = CachingAllocator(settings, driver, allowed=allowed)
    driver.trace = allocator.trace
    live: dict[int, int] = {}
    for number, (what, value, stream) in enumerate(program):
        if what == "malloc":
            try:
                live[number] = allocator.malloc(value, streams[stream])
            except OutOfMemory:
                continue
        elif what == "free" and value in live:
            allocator.free(live.pop(value))
            allocator.synchronize()
        elif what == "use" and value in live:
            allocator.record_stream(live[value], streams[stream])
        elif what == "empty":
            allocator.empty_cache()
    return allocator


def entries_of(trace: Recording) -> list[tuple[str, int, int]]:
    """Return action, address and size of every entry."""
    return [
        (Action(action).name.lower(), 0 if action == Action.OOM else address, size)
        for action, address, size in zip(trace.action, trace.address, trace.size, strict=True)
    ]


@pytest.mark.gpu
@pytest.mark.torch
@pytest.mark.parametrize(
    "conf",
    [
        "",
        "expandable_segments:True",
        "max_split_size_mb:32",
        "roundup_power2_divisions:[1:8,2:2,>:4]",
        "garbage_collection_threshold:0.5",
        "expandable_segments:True,roundup_power2_divisions:8",
        "max_split_size_mb:40,garbage_collection_threshold:0.6",
    ],
)
def test_the_simulation_makes_the_entries_of_the_device(conf):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device: the real allocator cannot run")
    # given what the real allocator did with random programs, without a limit and with one
    programs = [random_program(seed) for seed in (1, 2, 3)]
    child = subprocess.run(
        [sys.executable, "-c", CHILD],
        input=json.dumps([programs, LIMIT]),
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTORCH_CUDA_ALLOC_CONF": conf, "PYTORCH_ALLOC_CONF": conf},
    )

    # when the simulation runs them, then it does the same, entry by entry
    for program, real in zip(programs * 2, json.loads(child.stdout), strict=True):
        allocator = simulated(program, parse_alloc_conf(conf), real)
        assert entries_of(allocator.trace) == [tuple(entry) for entry in real["entries"]]
        assert allocator.counters.allocated_peak == real["allocated"]
        assert allocator.counters.reserved_peak == real["reserved"]


@pytest.mark.parametrize("conf", ["", "expandable_segments:True"])
def test_what_stands_for_the_device_says_where_segments_lie(conf):
    # given entries of a run whose segments lie anywhere
    program, settings = random_program(1), parse_alloc_conf(conf)
    first = run_program(program, settings, Driver(None, order=AddressOrder.RANDOM, seed=7), streams=[0, 1, 2])
    entries = [list(entry) for entry in entries_of(first.trace)]

    # when it runs at the recorded addresses, then it does the same
    again = simulated(program, settings, {"entries": entries, "total": 1 << 40, "limited": False, "streams": [0, 1, 2]})
    assert entries_of(again.trace) == entries_of(first.trace)
