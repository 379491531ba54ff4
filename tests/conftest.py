"""What every test runs under."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Let Ctrl-C reach the programs that tests start.

    A shell ignores SIGINT in what it runs in the background, and children inherit that; so would the programs that are
    interrupted on purpose.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
