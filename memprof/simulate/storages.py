"""Tensors whose storage is a range of simulated addresses: real CUDA tensors for PyTorch, nothing for the machine.

Each storage enters as a hand-made DLPack capsule (``kDLCUDA``, pointer = simulated address): the public way to give
PyTorch memory that somebody else owns. Its deleter is called when the last reference goes, in C++'s true order: that
is the free. The deleter can run at any moment, also while an exception is on its way through frames that hold the last
tensor, so it must not be a ``ctypes`` callback, which would swallow the exception. It is a function of torch's that
drops a reference to a Python object: ``c10::SafePyObject``'s destructor, as ``std::shared_ptr`` calls it. It expects
the object at offset 16 of what it is given and the interpreter at 24; a record has its shape there until PyTorch has
read it, and its `_Holder` from then on. Python calls a holder's ``__del__`` with care for exceptions.

The records lie in one anonymous mapping, so that making a tensor is one ``pack_into``.
"""

from __future__ import annotations

import atexit
import ctypes
import mmap
import struct
import time
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from memprof.errors import UnsupportedError
from memprof.simulate.support import advice

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["StorageTable", "contiguous_strides", "storage_bytes"]

_MAX_DIMS = 12
_RECORD = struct.Struct(f"<QiiiBBHQQQQQ{2 * _MAX_DIMS}q")
"""``DLManagedTensor`` on a 64-bit machine (``ATen/dlpack.h``): data, device type and index, dimensions, dtype (code,
bits, lanes), pointers to shape and strides, byte offset, context, deleter; then shape and strides themselves."""
_SHAPE_AT = 64
_STRIDES_AT = _SHAPE_AT + 8 * _MAX_DIMS
_HOLDER_AT = 16
_DELETER_AT = 56
_KDL_CUDA = 2

_QUIET_POLLS, _POLL_SECONDS = 3, 0.01
"""As the process ends: so often nothing may have been dropped, so long apart."""
_RECORDS = 1 << 20
"""Live storages at most; pages of the mapping are taken only as they are used."""

_DTYPES = {
    torch.float32: (2, 32),
    torch.float64: (2, 64),
    torch.float16: (2, 16),
    torch.bfloat16: (4, 16),
    torch.int64: (0, 64),
    torch.int32: (0, 32),
    torch.int16: (0, 16),
    torch.int8: (0, 8),
    torch.uint8: (1, 8),
    torch.uint16: (1, 16),
    torch.uint32: (1, 32),
    torch.uint64: (1, 64),
    torch.bool: (6, 8),
    torch.complex64: (5, 64),
    torch.complex128: (5, 128),
}
"""DLPack's code and bits; every other dtype is made as bytes and viewed."""

_increment = ctypes.pythonapi.Py_IncRef
_increment.argtypes = [ctypes.py_object]
_increment.restype = None
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


def contiguous_strides(size: Sequence[int]) -> list[int]:
    """Return the strides of a contiguous tensor of `size`."""
    strides = [1] * len(size)
    for i in range(len(size) - 2, -1, -1):
        strides[i] = strides[i + 1] * max(size[i + 1], 1)
    return strides


def storage_bytes(size: Sequence[int], stride: Sequence[int], itemsize: int) -> int:
    """Return the bytes that a tensor needs from its first element to its last (``computeStorageNbytes``)."""
    last = 0
    for extent, step in zip(size, stride, strict=True):
        if extent == 0:
            return 0
        last += (extent - 1) * step
    return (last + 1) * itemsize


class StorageTable:
    """Makes tensors over addresses from `allocate`, and calls `release` when PyTorch lets go of one.

    Parameters
    ----------
    allocate
        Takes bytes, returns an address; may raise ``torch.OutOfMemoryError``.
    release
        Takes an address that `allocate` returned.
    """

    def __init__(self, allocate: Callable[[int], int], release: Callable[[int], None]) -> None:
        self._allocate = allocate
        self._release = release
        self._memory = mmap.mmap(-1, _RECORDS * _RECORD.size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._export = ctypes.c_char.from_buffer(self._memory)
        self._base = ctypes.addressof(self._export)
        self._fresh = iter(range(_RECORDS))
        self._free: list[int] = []
        self._live: set[int] = set()
        self._life = 0
        self._deleter, self._interpreter = _dropping_function()
        atexit.register(self._let_go)

    def empty(self, size: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Allocate a tensor on the device, of any strides that do not overlap."""
        known = _DTYPES.get(dtype)
        if known is None:
            return self.empty(size, stride, _CARRIERS[dtype.itemsize]).view(dtype)
        dims = len(size)
        if dims > _MAX_DIMS:
            raise UnsupportedError(f"a tensor of {dims} dimensions cannot be simulated; the limit is {_MAX_DIMS}")
        nbytes = storage_bytes(size, stride, dtype.itemsize)
        address = self._allocate(nbytes) if nbytes else 0
        record = self._free.pop() if self._free else next(self._fresh, -1)
        if record < 0:
            raise UnsupportedError(f"more than {_RECORDS} live storages cannot be simulated")
        self._live.add(record)
        holder = _Holder(self, record, address, self._life)
        offset = record * _RECORD.size
        at = self._base + offset
        padding = (0,) * (_MAX_DIMS - dims)
        _RECORD.pack_into(
            self._memory,
            offset,
            address,
            _KDL_CUDA,
            0,
            dims,
            *known,
            1,
            at + _SHAPE_AT,
            at + _STRIDES_AT,
            0,
            0,
            self._deleter,
            *size,
            *padding,
            *stride,
            *padding,
        )
        tensor: torch.Tensor = torch._C._from_dlpack(_new_capsule(at, b"dltensor", None))
        _increment(holder)
        struct.pack_into("<QQ", self._memory, offset + _HOLDER_AT, id(holder), self._interpreter)
        return tensor

    def abandon(self) -> None:
        """Let go of the addresses of all live storages: their memory is no more, and they free nothing."""
        self._life += 1

    def drop(self, record: int, address: int, life: int) -> None:
        """Free a storage: PyTorch has let go of it."""
        self._live.discard(record)
        self._free.append(record)
        if address and life == self._life:
            self._release(address)

    def _let_go(self) -> None:
        """Cut every live storage loose: C++ may drop it after Python is gone.

        A thread of autograd may be on its way in already, waiting for the interpreter's lock; Python ends such a thread
        once it shuts down, and C++ takes that for a fault and aborts. So it gets the lock first.
        """
        for record in tuple(self._live):
            struct.pack_into("<Q", self._memory, record * _RECORD.size + _DELETER_AT, 0)
        quiet = 0
        while quiet < _QUIET_POLLS:
            before = len(self._live)
            time.sleep(_POLL_SECONDS)  # lets go of the lock
            quiet = quiet + 1 if len(self._live) == before else 0
        # The records stay mapped for as long as the process lives.
        _increment(self._memory)
        _increment(self._export)


def _dropping_function() -> tuple[int, int]:
    """Return the function that drops a reference with the interpreter's lock held, and the interpreter it wants."""
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_python.so"))
    try:
        table = ctypes.addressof(ctypes.c_char.in_dll(library, _SHARED_OBJECT))
        interpreter = library._Z16getPyInterpreterv
    except (AttributeError, ValueError) as error:
        raise UnsupportedError(
            f"torch {torch.__version__} does not export what the simulated device needs ({error}); {advice()}"
        ) from error
    interpreter.restype = ctypes.c_void_p
    function = (ctypes.c_void_p * (_DISPOSE + 1)).from_address(table)[_DISPOSE]
    assert function is not None
    return function, interpreter()


_SHARED_OBJECT = "_ZTVSt23_Sp_counted_ptr_inplaceIN3c1012SafePyObjectESaIvELN9__gnu_cxx12_Lock_policyE2EE"
"""Table of virtual functions of a ``std::shared_ptr<c10::SafePyObject>``'s control block."""
_DISPOSE = 4
"""Word of ``_M_dispose`` in it: after offset, type and two destructors."""


class _Holder:
    """What a live storage owns: its address. It dies with the storage."""

    __slots__ = ("_address", "_life", "_record", "_table")

    def __init__(self, table: StorageTable, record: int, address: int, life: int) -> None:
        self._table = table
        self._record = record
        self._address = address
        self._life = life

    def __del__(self) -> None:
        self._table.drop(self._record, self._address, self._life)


_CARRIERS = {1: torch.uint8, 2: torch.uint16, 4: torch.uint32, 8: torch.uint64, 16: torch.complex128}
"""Dtype of the same width for those that DLPack has no code for."""
