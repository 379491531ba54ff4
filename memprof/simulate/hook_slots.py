"""Where the virtual functions of ``at::CUDAHooksInterface`` stand in its table, for the torch that is installed.

The order is that of the declarations in two headers, which every wheel of torch has: ``AcceleratorHooksInterface.h``
and ``CUDAHooksInterface.h`` in ``ATen/detail``. It is the order of the Itanium C++ ABI: a destructor takes two places,
a function that overrides one of the base class keeps its place, every other one gets the next.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from memprof.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["HEADERS", "hook_slots", "slots_of_declarations"]

HEADERS = ("AcceleratorHooksInterface", "CUDAHooksInterface")
"""Base class and class; each in a header of its name."""
DESTRUCTORS = 2
"""The places of a virtual destructor: one that only destroys, one that frees as well."""
_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_ROCM = re.compile(r"^\s*#ifdef USE_ROCM\b.*?^\s*#endif\b", re.DOTALL | re.MULTILINE)
_DIRECTIVE = re.compile(r"^\s*#", re.MULTILINE)
_VIRTUAL = re.compile(r"\bvirtual\b[^;{}]*?(~?\w+)\s*\(")


def hook_slots(include: Path) -> dict[str, int]:
    """Return the place of every function by its name; `include` is torch's folder of headers.

    Raises
    ------
    UnsupportedError
        There are no headers, or they declare something else.
    """
    try:
        texts = [(include / "ATen" / "detail" / f"{name}.h").read_text(encoding="utf-8") for name in HEADERS]
    except OSError as error:
        raise UnsupportedError(
            f"the simulated device needs torch's headers, and {error.filename} is not there; install the wheel of torch"
        ) from None
    return slots_of_declarations(texts)


def slots_of_declarations(texts: Sequence[str]) -> dict[str, int]:
    """Return the places of the functions that the headers of a base class and of a class declare, in this order.

    Raises
    ------
    UnsupportedError
        A name stands for two functions, so that it has no one place, or the base class has no destructor.
    """
    slots: dict[str, int] = {}
    size = 0
    for name, text in zip(HEADERS, texts, strict=True):
        # Only the class itself: after it come its registry and free functions.
        body = _COMMENTS.sub("", text).partition(f"struct TORCH_API {name}")[2].partition("\n};")[0]
        body = _ROCM.sub("", body)
        if _DIRECTIVE.search(body):
            raise UnsupportedError(f"{name}.h of this torch declares functions on conditions; nothing is simulated")
        for function in _VIRTUAL.findall(body):
            if function in slots:
                raise UnsupportedError(f"{name}.h of this torch declares {function} twice; nothing is simulated")
            slots[function] = size
            size += DESTRUCTORS if function.startswith("~") else 1
    if slots.get(f"~{HEADERS[0]}") != 0:
        raise UnsupportedError(f"{HEADERS[0]}.h of this torch is not as expected; nothing is simulated")
    return slots
