"""memprof explains where PyTorch training memory goes: an exact account of every allocated byte, and why it grows.

>>> import memprof
>>> trace = memprof.load("run.pickle")  # doctest: +SKIP

`import memprof` is light: torch is loaded only by what records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memprof.analysis.breakdown import Breakdown, break_down
    from memprof.capture.record import record
    from memprof.errors import CaptureError, InputError, MemprofError, OutputError, UnsupportedError, UsageError
    from memprof.trace import load
    from memprof.trace.model import Trace

__all__ = [
    "Breakdown",
    "CaptureError",
    "InputError",
    "MemprofError",
    "OutputError",
    "Trace",
    "UnsupportedError",
    "UsageError",
    "break_down",
    "load",
    "record",
]

__version__ = "0.1.0"

_HOMES = {
    "Breakdown": "memprof.analysis.breakdown",
    "CaptureError": "memprof.errors",
    "InputError": "memprof.errors",
    "MemprofError": "memprof.errors",
    "OutputError": "memprof.errors",
    "Trace": "memprof.trace.model",
    "UnsupportedError": "memprof.errors",
    "UsageError": "memprof.errors",
    "break_down": "memprof.analysis.breakdown",
    "load": "memprof.trace",
    "record": "memprof.capture.record",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module 'memprof' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
