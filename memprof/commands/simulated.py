"""``--simulate CARD``: the command runs again in a child process, which gets the simulated device.

A simulated device cannot be taken out of a process again, and an operation that reads memory which is not there ends
the process: the parent survives both, and says in one line what happened.

Where there is no GPU, recipes are simulated without being asked to.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from memprof.commands.host_memory import crowds_out
from memprof.errors import CaptureError, InputError, UnsupportedError, UsageError
from memprof.simulate.cards import card_named
from memprof.simulate.support import check_build
from memprof.simulate.unsimulated import place_of_crash
from memprof.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memprof.simulate.recording import RecordedSimulation

__all__ = ["MARK", "card_to_simulate", "how_it_died", "inside_simulation", "run_in_child", "simulated_device"]

MARK = "MEMPROF_INSIDE_SIMULATION"
"""Set in the child's environment."""
FAULT = "MEMPROF_FAULT_FILE"
"""Names the file that the child describes a crash in, in its environment."""
PARENT = "MEMPROF_SIMULATION_PARENT"
"""Names the process that the child is not to outlive, in its environment."""
_SI_KERNEL = 0x80
"""``asm-generic/siginfo.h``: the kernel's own, as a terminal's; a process that sends a signal has another."""
_PR_SET_PDEATHSIG = 1
"""``linux/prctl.h``."""
_LOOK = 1.0
"""Seconds between two looks at a run."""
DEFAULT_CARD = "h200"
"""What is simulated where nobody names a card: the one whose memory was measured beside the simulation."""


def inside_simulation() -> bool:
    """Tell whether this process is the child."""
    return MARK in os.environ


def card_to_simulate(device: str, named: str | None, *, as_json: bool) -> str | None:
    """Return the card to simulate: the one that is named, or a default where there is no GPU; None for a real device.

    That a card was not named but is simulated is printed before anything else.

    Raises
    ------
    UsageError
        If there is no such card, or a real device was asked for as well.
    UnsupportedError
        If there is no GPU and nothing can be simulated either: says why, what to install, and what else there is.
    """
    if named is not None:
        try:
            card_named(named)
        except InputError as error:
            raise UsageError(f"--simulate: {error}") from None
        if device != "auto":
            raise UsageError(f"--simulate {named} and --device {device}: choose one of them")
        return named
    if device != "auto":
        return None
    if inside_simulation():
        return os.environ[MARK]
    if not _simulates_by_default():
        return None
    # Where stdout is for machines, people read stderr.
    stream = sys.stderr if as_json else sys.stdout
    stream.write(
        f"no CUDA device is here: simulating an {card_named(DEFAULT_CARD).name} "
        "(--simulate CARD for another card, --device cpu for this machine's CPU)\n"
    )
    stream.flush()
    return DEFAULT_CARD


def _simulates_by_default() -> bool:
    """Tell whether there is no GPU; raise where nothing can be simulated either."""
    try:
        installed = version("torch")
    except PackageNotFoundError:
        return False  # the capture itself says what to install
    cuda = None
    if not installed.endswith("+cpu"):  # of a CPU build there is nothing to ask, and it need not be loaded twice
        import torch

        if torch.cuda.is_available():
            return False
        installed, cuda = torch.__version__, torch.version.cuda
    try:
        check_build(installed, cuda)
    except UnsupportedError as error:
        raise UnsupportedError(
            f"no CUDA device is here, and {error}, or --device cpu to measure this machine's CPU"
        ) from None
    return True


def run_in_child(card: str) -> NoReturn:
    """Run this command line again in a child process, and end as it ends.

    Raises
    ------
    UnsupportedError
        If the child crashed: a program touched memory of the device that the simulation does not have.
    CaptureError
        If it was ended because it took all of this machine's memory.

    """
    command = [sys.executable, "-m", "memprof", *sys.argv[1:]]
    with tempfile.NamedTemporaryFile("r", prefix="memprof-", errors="replace") as fault:
        code = _run({**os.environ, MARK: card, FAULT: fault.name, PARENT: str(os.getpid())}, command)
        dump = fault.read()
    if code == -signal.SIGINT:
        # As the child ended: by the signal itself, so that a shell or a scheduler sees it.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    if code < 0:
        place = place_of_crash(dump)
        if dump and place is None:
            sys.stderr.write(dump)
        raise UnsupportedError(f"{place}: {how_it_died(code)}" if place else f"the run was {how_it_died(code)}")
    sys.exit(code)


def _run(environment: Mapping[str, str], command: Sequence[str]) -> int:
    """Run `command` to its end and return its status; an interrupt (SIGINT) of this process reaches it, once.

    At a terminal the keyboard's interrupt is for every process of the job: the child stays in the job, so that it can
    read the keyboard, and is sent only what others send to this process. Elsewhere it is in a session of its own, and
    is sent all that this process gets.
    """
    alone = not _at_terminal()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as under nohup; the child ignores it too
        child = subprocess.Popen(command, env=environment)  # noqa: S603 - our own interpreter and arguments
        while (code := _wait(child)) is None:
            _leave_memory(child)
        return code
    early: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: early.append(number))
    child = subprocess.Popen(command, env=environment, start_new_session=alone)  # noqa: S603 - as above
    awaited = {signal.SIGINT, signal.SIGCHLD}
    masked = signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    try:
        if early and alone:
            child.send_signal(signal.SIGINT)
        while (code := child.poll()) is None:
            came = signal.sigtimedwait(awaited, _LOOK)
            _leave_memory(child)
            if came is not None and came.si_signo == signal.SIGINT and (alone or came.si_code != _SI_KERNEL):
                child.send_signal(signal.SIGINT)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, masked)
        signal.signal(signal.SIGINT, before)
    return code


def _wait(child: subprocess.Popen[bytes]) -> int | None:
    with suppress(subprocess.TimeoutExpired):
        return child.wait(_LOOK)
    return None


def _leave_memory(child: subprocess.Popen[bytes]) -> None:
    """End a run that takes all of the machine's memory; raise `CaptureError` if it was ended."""
    size = crowds_out(child.pid)
    if size is None:
        return
    child.kill()
    child.wait()
    raise CaptureError(
        f"the simulated run was ended: it had taken {format_bytes(size)} of this machine's memory, and hardly any was "
        "left; every event is kept, so run fewer steps (--steps), or keep fewer events (--max-entries)"
    )


def _at_terminal() -> bool:
    """Tell whether this process is of the job that a terminal's keyboard is for."""
    try:
        with open("/dev/tty", "rb", buffering=0) as terminal:  # noqa: PTH123 - a device
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False


def _end_with_parent() -> None:
    """Let Linux end this process when its parent is gone, however that went, and also if it is gone already."""
    parent = int(os.environ.pop(PARENT, os.getppid()))
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit(1)


def how_it_died(code: int, *, simulated: bool = True) -> str:
    """Say by which signal a run was ended (`code` is negative), and why that may be."""
    died = signal.Signals(-code)
    why = ""
    if died is signal.SIGKILL:
        why = ": was there enough host memory?"
    elif simulated and died in (signal.SIGSEGV, signal.SIGBUS):
        why = ": something in it reads memory of the device, which a simulation does not have"
    return f"ended by {died.name}{why}"


def simulated_device(card: str) -> RecordedSimulation:
    """Give this process the simulated device, ready to be recorded.

    Raises
    ------
    UnsupportedError
        If this torch or platform cannot be simulated on.

    """
    from memprof.simulate import install
    from memprof.simulate.recording import RecordedSimulation

    _end_with_parent()
    if FAULT in os.environ:
        # Kept open to the end of the process, as faulthandler needs it.
        faulthandler.enable(Path(os.environ[FAULT]).open("w", encoding="utf-8"))  # noqa: SIM115
    return RecordedSimulation(install(card))
