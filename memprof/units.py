"""Parse and format bytes. Decimal units (GB = 1e9) and binary ones (GiB = 2**30) are never mixed, always labelled."""

from __future__ import annotations

import re

from memprof.errors import MemprofError

__all__ = ["format_bytes", "format_count", "parse_bytes"]

BINARY = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
DECIMAL = {"kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
UNITS = {"B": 1, **BINARY, **DECIMAL}


def format_bytes(size: int, *, binary: bool = False) -> str:
    """Format `size` bytes with four significant digits in the largest unit that keeps it at 1 or above.

    Parameters
    ----------
    size
        Bytes; may be negative (a difference).
    binary
        GiB and its kin if true, GB and its kin if false.

    """
    for unit, factor in reversed((BINARY if binary else DECIMAL).items()):
        value = abs(size) / factor
        if value >= 1:
            decimals = 3 if value < 10 else 2 if value < 100 else 1
            return f"{'-' if size < 0 else ''}{value:.{decimals}f} {unit}"
    return f"{size} B"


def format_count(count: int) -> str:
    """Format `count` with a comma every three digits."""
    return f"{count:,}"


def parse_bytes(text: str) -> int:
    """Parse ``15GB``, ``1.5 GiB`` or ``4096`` into bytes.

    Raises
    ------
    MemprofError
        If `text` is not a number followed by nothing or by a known unit.

    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    if match:
        by_lower = {name.lower(): factor for name, factor in UNITS.items()}
        factor = by_lower.get((match[2] or "B").lower())
        if factor is not None:
            return round(float(match[1]) * factor)
    raise MemprofError(f"{text!r} is not a size: write bytes, or a number with one of {', '.join(UNITS)}")
