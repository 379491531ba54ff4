"""Compiled code that a program loads beside torch, where a CUDA build of torch lets it load: its kernels do not run.

Beside a CPU build, what is compiled for CUDA cannot be loaded at all, for want of torch's and CUDA's libraries. A CUDA
build brings these along. So that the same happens:

- A Python module that is linked with them is not imported, with the error that the dynamic linker would have given.
- A library of ops (``torch.ops.load_library``: torchvision, torchaudio) is loaded, for the ops and their host kernels,
  and its kernels for the device are replaced as torch's are.
"""

from __future__ import annotations

import struct
from importlib.machinery import ExtensionFileLoader
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from memprof.simulate.cuda_kernels import registrations, replace_cuda_kernels

if TYPE_CHECKING:
    import types
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec
    from typing import BinaryIO

__all__ = ["install_loading", "needed_libraries"]

_CUDA_LIBRARIES = ("libc10_cuda.", "libtorch_cuda", "libcudart.", "libcuda.")
_OF_TORCH = "torch"


def install_loading(run: Callable[..., Any]) -> None:
    """See to what is loaded from now on; `run` takes an op and its arguments.

    Of a CPU build there is nothing to see to: the dynamic linker does it.
    """
    create = ExtensionFileLoader.create_module

    def create_module(self: ExtensionFileLoader, spec: ModuleSpec) -> types.ModuleType:
        if spec.name.partition(".")[0] != _OF_TORCH:
            library = next((name for name in needed_libraries(self.path) if name.startswith(_CUDA_LIBRARIES)), None)
            if library is not None:
                raise ImportError(f"{library}: not for the simulated device", name=spec.name, path=self.path)
        return create(self, spec)

    ExtensionFileLoader.create_module = create_module  # type: ignore[method-assign]
    namespaces: tuple[Any, ...] = (torch.ops, torch.classes)
    for namespace in namespaces:
        namespace.load_library = _loading(namespace.load_library, run)


def _loading(load: Callable[[Any], None], run: Callable[..., Any]) -> Callable[[Any], None]:
    kept: list[Any] = []

    def load_library(path: Any) -> None:
        before = registrations()
        load(path)
        kept.extend(replace_cuda_kernels(run, before))

    return load_library


class _Entry(NamedTuple):
    """What is read of an ``Elf64_Phdr``."""

    kind: int
    offset: int
    address: int
    size: int


_HEADER = struct.Struct("<16xHHIQQQIHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_DYNAMIC = struct.Struct("<QQ")
_MAGIC = b"\x7fELF\x02\x01"
"""An ELF file of 64 bits, little-endian."""
_PT_LOAD, _PT_DYNAMIC, _DT_NEEDED, _DT_STRTAB, _DT_STRSZ = 1, 2, 1, 5, 10
"""``elf.h``."""


def needed_libraries(path: str) -> list[str]:
    """Return the names of the shared libraries that a shared object is linked with; none of any other file."""
    with open(path, "rb") as file:  # noqa: PTH123  # a path as an import has it
        header = file.read(_HEADER.size)
        if len(header) < _HEADER.size or not header.startswith(_MAGIC):
            return []
        *_, segments_at, _, _, _, _, count = _HEADER.unpack(header)
        segments = [_segment(file, segments_at + row * _SEGMENT.size) for row in range(count)]
        dynamic = next((segment for segment in segments if segment.kind == _PT_DYNAMIC), None)
        if dynamic is None:
            return []
        entries = list(_DYNAMIC.iter_unpack(_read(file, dynamic.offset, dynamic.size - dynamic.size % _DYNAMIC.size)))
        tags = dict(entries)
        names_at = tags.get(_DT_STRTAB, 0)
        for segment in segments:
            if segment.kind == _PT_LOAD and segment.address <= names_at < segment.address + segment.size:
                names = _read(file, segment.offset + names_at - segment.address, tags.get(_DT_STRSZ, 0))
                return [names[at : names.index(b"\0", at)].decode() for tag, at in entries if tag == _DT_NEEDED]
    return []


def _read(file: BinaryIO, offset: int, size: int) -> bytes:
    file.seek(offset)
    return file.read(size)


def _segment(file: BinaryIO, offset: int) -> _Entry:
    kind, _, at, address, _, size, _, _ = _SEGMENT.unpack(_read(file, offset, _SEGMENT.size))
    return _Entry(kind, at, address, size)
