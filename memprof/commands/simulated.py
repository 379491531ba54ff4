"""``--simulate CARD``: the command runs again in a child process, which gets the simulated device.

A simulated device cannot be taken out of a process again, and an operation that reads memory which is not there ends
the process: the parent survives both, and says in one line what happened.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, NoReturn

from memprof.errors import CaptureError, UnsupportedError

if TYPE_CHECKING:
    from memprof.simulate.recording import RecordedSimulation

__all__ = ["inside_simulation", "run_in_child", "simulated_device"]

MARK = "MEMPROF_INSIDE_SIMULATION"
"""Set in the child's environment."""


def inside_simulation() -> bool:
    """Tell whether this process is the child."""
    return MARK in os.environ


def run_in_child(card: str) -> NoReturn:
    """Run this command line again in a child process, and end as it ends.

    Raises
    ------
    UnsupportedError
        If the child crashed: a program touched memory of the device that the simulation does not have.

    """
    command = [sys.executable, "-X", "faulthandler", "-m", "memprof", *sys.argv[1:]]
    child = subprocess.Popen(command, env={**os.environ, MARK: card})  # noqa: S603 - our own interpreter and arguments
    try:
        code = child.wait()
    except KeyboardInterrupt:
        code = child.wait()  # the child got the signal too, and cleans up
    if code < 0 and -code != signal.SIGINT:
        raise UnsupportedError(
            f"--simulate {card}: the run was ended by {signal.Signals(-code).name}; something in it reads memory of "
            "the device, which a simulation does not have (the stack above says where)"
        )
    sys.exit(code)


def simulated_device(card: str, device: str) -> RecordedSimulation:
    """Give this process the simulated device, ready to be recorded.

    Raises
    ------
    CaptureError
        If a real device was asked for as well.
    UnsupportedError, InputError
        If this torch or platform cannot be simulated on, or there is no such card.

    """
    if device != "auto":
        raise CaptureError(f"--simulate {card} and --device {device}: choose one of them")
    from memprof.simulate import install
    from memprof.simulate.recording import RecordedSimulation

    return RecordedSimulation(install(card))
