"""The names of the ranges that a capture writes into the profiler's stream, both ways.

They travel as text through torch's profiler, so they are written and read in one place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "MARK",
    "NO_GRAD",
    "TOLD",
    "TRAINING",
    "Mark",
    "looks_mark",
    "memory_mark",
    "module_mark",
    "parse",
    "phase_mark",
    "saved_mark",
    "seen_mark",
    "sight_mark",
    "split_looks",
    "step_mark",
]

MARK = "memprof."
"""What every mark's name begins with."""
SEPARATOR = "\x1f"
"""ASCII unit separator: no module, parameter or phase has it in its name."""
LOOKS = f"{MARK}looks{SEPARATOR}"
BETWEEN = "\x1e"
"""ASCII record separator: between the marks of one range that has several."""

TRAINING = "training"
"""Mode of a module that is called in training mode, with autograd on."""
NO_GRAD = "no_grad"
"""Mode of a module that is called with autograd off."""

TOLD = "told"
"""Mode of a step that the run counted itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One mark, read back."""

    kind: str
    """phase, step, module, seen, saved, sight, memory, or looks, which stands for several sights."""
    name: str = ""
    """Phase, module path, or the parameter's name of a sight."""
    step: int = -1
    category: str = ""
    finer: str = ""
    """Of a sight; of a module its mode, `TRAINING`, `NO_GRAD` or neither; of a step `TOLD` or not."""
    address: int = 0
    size: int = 0
    """Bytes that a memory mark allocates; negative where it frees."""


def phase_mark(name: str, step: int) -> str:
    """Name the range of one phase of one step."""
    return f"{MARK}phase{SEPARATOR}{name}{SEPARATOR}{step}"


def step_mark(step: int, mode: str = "") -> str:
    """Name the range at which step `step` begins, where no phases are marked; `TOLD` where the run said so itself."""
    return f"{MARK}step{SEPARATOR}{step}{SEPARATOR}{mode}"


def module_mark(name: str, mode: str = "") -> str:
    """Name the range of one module's forward; the root module's name is empty."""
    return f"{MARK}module{SEPARATOR}{name}{SEPARATOR}{mode}"


def seen_mark() -> str:
    """Name the range whose tensors a module returned: somebody has them, though no op may ever be given them."""
    return f"{MARK}seen"


def saved_mark() -> str:
    """Name the range whose tensor autograd saves for backward."""
    return f"{MARK}saved"


def sight_mark(category: str, finer: str, name: str) -> str:
    """Name the range whose tensor is of `category` and `finer`."""
    return f"{MARK}sight{SEPARATOR}{category}{SEPARATOR}{finer}{SEPARATOR}{name}"


def looks_mark(marks: Sequence[str]) -> str:
    """Name one range that stands for several marks, each of which has one tensor."""
    return LOOKS + BETWEEN.join(marks)


def split_looks(text: str) -> list[str] | None:
    """Return the marks of a range that stands for several; None if it does not."""
    return text.removeprefix(LOOKS).split(BETWEEN) if text.startswith(LOOKS) else None


def memory_mark(address: int, size: int) -> str:
    """Name the range that stands for an allocation (`size` > 0) or free (`size` < 0).

    For a device whose allocator does not report to the profiler itself, such as a simulated one.
    """
    return f"{MARK}memory{SEPARATOR}{address}{SEPARATOR}{size}"


def parse(text: str) -> Mark | None:
    """Read a range's name; None if it is not a mark."""
    if not text.startswith(MARK):
        return None
    kind, *fields = text.removeprefix(MARK).split(SEPARATOR)
    if kind == "phase":
        return Mark(kind=kind, name=fields[0], step=int(fields[1]))
    if kind == "step":
        return Mark(kind=kind, step=int(fields[0]), finer=fields[1])
    if kind == "module":
        return Mark(kind=kind, name=fields[0], finer=fields[1])
    if kind == "memory":
        return Mark(kind=kind, address=int(fields[0]), size=int(fields[1]))
    if kind in ("saved", "seen", "looks"):
        return Mark(kind=kind)
    if kind == "sight":
        return Mark(kind=kind, category=fields[0], finer=fields[1], name=fields[2])
    return None
