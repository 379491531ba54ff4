"""Errors that memprof raises on purpose.

::

    MemprofError              anything a user can act on; the command line prints it as one line and exits with 1
    ├── InputError            a file that cannot be read, or is not what it should be
    ├── OutputError           a file that cannot be written
    ├── UsageError            an option with a value that it cannot have; the command line exits with 2
    ├── CaptureError          a run that cannot be recorded as asked
    └── UnsupportedError      a torch version, platform or operation that memprof does not know

A message names the file (or the option), the fact, and what to do next.
"""

from __future__ import annotations

__all__ = ["CaptureError", "InputError", "MemprofError", "OutputError", "UnsupportedError", "UsageError"]


class MemprofError(Exception):
    """Base of every error that memprof raises on purpose."""


class InputError(MemprofError):
    """A file that cannot be read, or is not what it should be."""


class OutputError(MemprofError):
    """A file that cannot be written."""


class UsageError(MemprofError):
    """An option with a value that it cannot have."""


class CaptureError(MemprofError):
    """A run that cannot be recorded as asked."""


class UnsupportedError(MemprofError):
    """A torch version, platform or operation that memprof does not know."""
