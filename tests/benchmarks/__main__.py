"""``make bench``: how long ``memprof breakdown`` takes, beside a bare ``pickle.load`` of the same file.

Bare means: garbage collector off, nothing done with the result, the process left without freeing it. Both run as whole
processes, in turn, several times; what counts is the median of the ratios of neighbours.
"""

# ruff: noqa: T201 - a program that prints
from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
SMALL = ROOT / "traces" / "h200-pythia-70m-16-mixed-bnb.nf4-mbs16.pickle"
EVENTS = 1_000_000
ROUNDS = 5
BARE = "import gc, os, pickle, sys; gc.disable(); pickle.load(open(sys.argv[1], 'rb')); os._exit(0)"


def main() -> None:
    """Print the figures and what they are measured against."""
    with tempfile.TemporaryDirectory() as folder:
        large = Path(folder) / "large.pickle"
        # Made in a process of its own: a child's peak memory counts from its parent's size when it was forked.
        make = [sys.executable, "-m", "tests.benchmarks.large_snapshot", str(SMALL), str(large), str(EVENTS)]
        events = int(subprocess.run(make, check=True, capture_output=True, text=True, cwd=ROOT).stdout)
        machine = f"{os.cpu_count()} cores, Python {sys.version.split()[0]}"
        print(f"{events:,} events, {large.stat().st_size / 1e6:.0f} MB; {machine}")
        ours = [sys.executable, "-m", "memprof", "breakdown", str(large)]
        bare = [sys.executable, "-c", BARE, str(large)]
        measure(bare), measure(ours)  # fill the file cache
        rows = [(measure(ours), measure(bare)) for _ in range(ROUNDS)]
        report("wall", "s", [(a[0], b[0]) for a, b in rows], target="at most 4, better 3")
        report("peak memory of the largest process", "MB", [(a[1], b[1]) for a, b in rows], target="at most 1.5")
    small = [measure([sys.executable, "-m", "memprof", "breakdown", str(SMALL)])[0] for _ in range(2 * ROUNDS)]
    print(
        f"breakdown of {SMALL.name}: median {statistics.median(small):.2f} s, least {min(small):.2f} s (target 0.5 s)"
    )


def report(name: str, unit: str, pairs: list[tuple[float, float]], *, target: str) -> None:
    """Print both medians and the median ratio."""
    ours, bare = (statistics.median(values) for values in zip(*pairs, strict=True))
    ratio = statistics.median(a / b for a, b in pairs)
    print(
        f"{name}: breakdown {ours:.2f} {unit}, bare pickle.load {bare:.2f} {unit}, ratio {ratio:.2f} (target {target})"
    )


def measure(command: list[str]) -> tuple[float, float]:
    """Run a command; return its seconds and the megabytes of its largest process."""
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=ROOT)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed with {process.returncode}")
    # wait4 reports the process and those it waited for, of each the largest.
    return seconds, usage.ru_maxrss / 1e3


if __name__ == "__main__":
    main()
