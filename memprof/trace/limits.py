"""How much memory and CPU time the reading of a file may take: so much at once, and so much for each byte that is read.

Measured on a file of a million events: 100 MB of pickle become 0.5 GB of Python objects, and those columns, in 1.6 s of
CPU. The densest entries (no time, no stack) take 43 bytes in the file and 260 in memory. The limits are a multiple of
that, so that a real file does not meet them and a hostile one soon does.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

__all__ = ["CPU_SECONDS", "CPU_SECONDS_PER_BYTE", "Budget"]

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

MEMORY = 300 << 20
MEMORY_PER_BYTE = 14
MEMORY_SHARE = 2
"""However large the file, no more than this part of the machine's memory (a half) is granted."""
CPU_SECONDS = 1.2
CPU_SECONDS_PER_BYTE = 0.1 / (1 << 20)

_STATM = Path("/proc/self/statm")
_STEP = 1 << 20


class Budget:
    """Limits of this process, which grow with what it has read of its file.

    On Linux both memory and CPU time are limited. Elsewhere the kernel has no reliable limit of address space, so that
    only the CPU time is (macOS), or nothing is (Windows): there the parent's watch is all there is.

    Parameters
    ----------
    work
        How many times the CPU time of reading a file its use takes.
    """

    def __init__(self, work: int = 1) -> None:
        self._work = work
        self._granted = 0
        self._base = 0
        self._seconds = 0.0
        self._most = _physical_memory() // MEMORY_SHARE
        if resource is None:
            return
        # A limit of 1 byte also stops a core_pattern that pipes into a program, which 0 does not (core(5)).
        _limit(resource.RLIMIT_CORE, 1)
        if _STATM.exists():
            self._base = int(_STATM.read_text().split()[0]) * resource.getpagesize()
        self._set()

    def grant(self, total: int) -> None:
        """Say that `total` bytes of the (decompressed) file have been read or are about to be."""
        if resource is None or total - self._granted < _STEP:
            return
        self._granted = total
        self._set()

    def shortage(self, kind: str = "snapshot") -> str:
        """Say what it means that the memory granted was not enough for a file, a `kind`."""
        if self._most and MEMORY + MEMORY_PER_BYTE * self._granted > self._most:
            return (
                f"needs more than {self._most >> 20:,} MiB of memory, half of what this machine has: read it on a "
                f"larger one, or record a shorter {kind}"
            )
        return f"needs more memory than a {kind} of its size should: damaged, or made to do harm"

    def _set(self) -> None:
        if self._base:
            wanted = MEMORY + MEMORY_PER_BYTE * self._granted
            _limit(resource.RLIMIT_AS, self._base + (min(wanted, self._most) if self._most else wanted))
        # The timer's default action ends the process, also inside of C code that never returns to Python.
        seconds = self._work * (CPU_SECONDS + CPU_SECONDS_PER_BYTE * self._granted)
        left = signal.getitimer(signal.ITIMER_PROF)[0]
        signal.setitimer(signal.ITIMER_PROF, max(left, 0.0) + seconds - self._seconds)
        self._seconds = seconds


def _physical_memory() -> int:
    """Return the bytes of memory that the machine has; 0 where it does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # Windows has no such call
        return 0


def _limit(kind: int, soft: int) -> None:
    """Set a soft limit; one that the system has no room for stays as it is."""
    hard = resource.getrlimit(kind)[1]
    if hard != resource.RLIM_INFINITY:
        soft = min(soft, hard)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(kind, (soft, hard))
