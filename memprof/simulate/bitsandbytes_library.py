"""bitsandbytes' CUDA backend without its CUDA library: every native function does nothing and says that it worked.

bitsandbytes allocates all device memory in Python, through torch; its native functions only compute. One allocates:
``cget_managed_ptr`` takes *managed* memory (paged optimizers), which is outside of PyTorch's allocator and is counted
apart. It gets pages of an anonymous mapping, which cost nothing until somebody writes.
"""

from __future__ import annotations

import ctypes
import mmap
from typing import TYPE_CHECKING, Any

from memprof.simulate.outliers import OutlierColumns

if TYPE_CHECKING:
    from memprof.simulate.outliers import Note

__all__ = ["NativeLibrary", "install_native_library"]

_NAME = "libbitsandbytes_cuda"


class NativeLibrary:
    """Stands for the shared object that ``ctypes`` would have loaded.

    Parameters
    ----------
    note
        Takes kind, words and bytes of a caveat.
    """

    def __init__(self, note: Note) -> None:
        self.managed_bytes = 0
        """Managed memory taken so far."""
        self._outliers = OutlierColumns(note)
        self._functions: dict[str, Any] = {
            "cget_managed_ptr": _Function(self._managed),
            "cint8_vector_quant": _Function(self._outliers.quantize),
            "cigemmlt_32": _Function(self._outliers.multiply),
        }
        self._maps: list[tuple[mmap.mmap, Any]] = []

    def __getattr__(self, name: str) -> Any:
        """Return a function of the library; bitsandbytes asks for those that it needs."""
        if name.startswith("__"):
            raise AttributeError(name)
        return self._functions.setdefault(name, _Function(_succeed))

    def __getitem__(self, name: str) -> Any:
        """Return a function, as a ``ctypes`` library does."""
        return getattr(self, name)

    def begin(self) -> None:
        """Begin anew, on an empty device."""
        self.managed_bytes = 0
        self._outliers.forget()

    def _managed(self, size: Any) -> int:
        nbytes = int(getattr(size, "value", size))
        self.managed_bytes += nbytes
        memory = mmap.mmap(-1, max(nbytes, mmap.PAGESIZE), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        export = ctypes.c_char.from_buffer(memory)
        self._maps.append((memory, export))
        return ctypes.addressof(export)


class _Function:
    """A foreign function: takes anything, and attributes such as ``restype`` can be set on it."""

    def __init__(self, call: Any) -> None:
        self._call = call

    def __call__(self, *args: Any) -> Any:
        return self._call(*args)


def _succeed(*_args: Any) -> int:
    return 0


def install_native_library(note: Note) -> NativeLibrary:
    """Let ``ctypes.cdll.LoadLibrary`` return the stand-in for bitsandbytes' CUDA libraries, and only for those.

    `note` takes kind, words and bytes of a caveat.
    """
    library = NativeLibrary(note)
    load = ctypes.cdll.LoadLibrary

    def load_library(name: Any) -> Any:
        return library if _NAME in str(name) else load(name)

    ctypes.cdll.LoadLibrary = load_library  # type: ignore[method-assign]
    return library
