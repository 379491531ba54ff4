"""Whether a process is about to take all memory of this machine, upon which everything on it would stand still."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["crowds_out"]

_LEAST_LEFT = 0.04
"""Share of the machine's memory below which little else can run."""
_LARGEST = 0.5
"""Share from which on a process is the one to blame for it."""


def crowds_out(pid: int) -> int | None:
    """Return the resident bytes of a process if the machine has hardly any memory left and most of it is this one's.

    None otherwise, and where Linux does not say.
    """
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return None
    sizes = {name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines)}
    total, left = sizes.get("MemTotal", 0), sizes.get("MemAvailable", 0)
    resident = pages * os.sysconf("SC_PAGE_SIZE")
    return resident if total and left < _LEAST_LEFT * total and resident > _LARGEST * total else None
