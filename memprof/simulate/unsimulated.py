"""What went wrong in a simulated program because of the simulation, told in words.

Torch and Python raise where a CPU build lacks what the program asks of a CUDA device, and the process ends where native
code touches memory that is not there.
"""

from __future__ import annotations

import re
import sysconfig
import traceback
from pathlib import Path

from memprof.errors import UnsupportedError

__all__ = ["as_refusal", "place_of_crash", "with_place"]

_CUDA_LIBRARY = re.compile(
    r"\blib(?:c10_cuda|torch_cuda\w*|cudart|cuda|cublas\w*|cudnn\w*|cufft|curand|cusolver|cusparse\w*|nccl|nvrtc)\.so\S*"
)
_LACKING = (
    re.compile(r"^(built without USE_CUDA)"),
    re.compile(r"^torch\.UntypedStorage\(\): (Storage device not recognized: cuda)"),
    re.compile(r"^(invalid device pointer)"),  # an address that is to be shared with another process
    re.compile(r"^(CUDA error: [^\n]*)"),  # of CUDA itself, which has no device here
    re.compile(r"^(Torch not compiled with CUDA enabled)"),
    re.compile(r"instantiate dummy base class (\w+)"),
    re.compile(r"^Could not run '([\w:.]+)' with arguments from the '\w*CUDA\w*' backend"),
    re.compile(r"^module 'torch\._C' has no attribute '(_cuda\w+)'"),
    re.compile(r"^Could not find any (NVRTC) library"),
    re.compile(r"^(cannot \w+ a meta tensor.*)"),
    re.compile(r"^([\w:.]+) \(.*You're trying to run this operator with meta Tensors"),
    re.compile(r"^(aten::[\w.]+): attempted to run this operator with Meta tensors"),
)


def as_refusal(error: BaseException) -> UnsupportedError | None:
    """Return the refusal that an error of a simulated program stands for; None if it is the program's own.

    An error that was raised while a refusal was handled, or because of it, is that refusal.
    """
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        if isinstance(cause, UnsupportedError):
            # A worker of a DataLoader sends its traceback as the message.
            last = (str(cause).strip().splitlines() or [""])[-1]
            return UnsupportedError(last.rpartition("UnsupportedError: ")[2])
        seen.add(id(cause))
        cause = cause.__cause__ or cause.__context__
    text = str(error)
    if isinstance(error, ModuleNotFoundError):
        if (error.name or "").partition(".")[0] != "triton":
            return None
        return UnsupportedError(
            "Triton cannot be simulated, and is not installed here: no kernel of it runs; leave it out"
        )
    if isinstance(error, (ImportError, OSError)):
        library = _CUDA_LIBRARY.search(text)
        if library is None:
            return None
        what = error.name if isinstance(error, ImportError) and error.name else f"what loads {library[0]}"
        return UnsupportedError(
            f"{what} cannot be simulated: it is compiled for CUDA ({library[0]}), whose kernels do not run here; "
            "leave it out"
        )
    if isinstance(error, (RuntimeError, AttributeError, AssertionError)):
        for pattern in _LACKING:
            found = pattern.search(text)
            if found:
                return UnsupportedError(
                    f"{found[1]}: this cannot be simulated, since it needs the device or its values; leave it out"
                )
    return None


def with_place(refusal: UnsupportedError, raised: BaseException) -> UnsupportedError:
    """Return a refusal that says at which line of the program it came; `raised` is the error that reached us."""
    for frame in reversed(traceback.extract_tb(raised.__traceback__)):
        if not frame.filename.startswith(_NOT_OURS):
            return UnsupportedError(f"{Path(frame.filename).name}:{frame.lineno}: {refusal}")
    return refusal


def place_of_crash(dump: str) -> str | None:
    """Return ``file:line`` of the program out of what faulthandler wrote of a crash; None if it names none."""
    for name, line in re.findall(r'^  File "(.*)", line (\d+)', dump, re.MULTILINE):
        if not name.startswith(_NOT_OURS):
            return f"{Path(name).name}:{line}"
    return None


_NOT_OURS = (
    "<",
    str(Path(__file__).parents[1]),
    *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")),
)
"""Where frames are that are not the program's: frozen modules, memprof, Python and what is installed."""
