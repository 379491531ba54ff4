# ruff: noqa: INP001  # a script, not a package
"""Ask cuDNN's public backend API which engine it takes for a convolution, and what workspace that wants.

The calls are those of ``ATen/native/cudnn/Conv_v8.cpp``. Numbers are the enumerators of cuDNN's ``cudnn_graph.h``. With
a card, cuDNN's handle says which; without one, cuDNN's description of a device does ("deviceless ahead-of-time
compilation" in NVIDIA's documentation).
"""

from __future__ import annotations

import ctypes
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memprof.simulate.convolutions import Convolution

__all__ = ["Asker", "CudnnError"]

_DTYPES = {"f32": 0, "f16": 2, "bf16": 9}
_INT64, _FLOAT, _DESCRIPTOR, _CHAR, _INT32 = 3, 4, 15, 24, 23
_TYPES: dict[int, Any] = {
    0: ctypes.c_void_p,
    1: ctypes.c_int,
    _INT64: ctypes.c_int64,
    _FLOAT: ctypes.c_float,
    7: ctypes.c_int,
    8: ctypes.c_int,
    _DESCRIPTOR: ctypes.c_void_p,
    _INT32: ctypes.c_int32,
}
_OPERATIONS = (
    (10, (704, 703, 705, 702, 700, 701)),
    (12, (710, 709, 711, 708, 706, 707)),
    (11, (716, 715, 717, 714, 712, 713)),
)
"""For output, input gradient and weight gradient: the operation; its x, w, y, convolution, alpha and beta."""
_TENSOR_CORE, _DOWN_CONVERTS, _NONDETERMINISTIC = 0, 1, 4
"""Numerical notes of an engine."""
_INSTANT, _FALLBACK = 0, 2


class CudnnError(RuntimeError):
    """cuDNN said no."""


class _Descriptor:
    def __init__(self, library: ctypes.CDLL, kind: int) -> None:
        self.library = library
        self.pointer = ctypes.c_void_p()
        self.keeps: list[Any] = []
        self.check(library.cudnnBackendCreateDescriptor(kind, ctypes.byref(self.pointer)))

    def __del__(self) -> None:
        if self.pointer:
            self.library.cudnnBackendDestroyDescriptor(self.pointer)

    def check(self, status: int) -> None:
        if status:
            raise CudnnError(status)

    def set(self, name: int, kind: int, *values: Any) -> _Descriptor:
        self.keeps.extend(values)
        plain = [
            getattr(getattr(value, "pointer", value), "value", getattr(value, "pointer", value)) for value in values
        ]
        packed = (_TYPES[kind] * len(values))(*plain)
        self.check(self.library.cudnnBackendSetAttribute(self.pointer, name, kind, ctypes.c_int64(len(values)), packed))
        return self

    def finalized(self) -> _Descriptor:
        self.check(self.library.cudnnBackendFinalize(self.pointer))
        return self

    def get(self, name: int, kind: int, most: int, into: Any) -> int:
        count = ctypes.c_int64()
        arguments = (self.pointer, name, kind, ctypes.c_int64(most), ctypes.byref(count), into)
        self.check(self.library.cudnnBackendGetAttribute(*arguments))
        return count.value

    def number(self, name: int) -> int:
        value = ctypes.c_int64()
        self.get(name, _INT64, 1, ctypes.byref(value))
        return value.value


class Asker:
    """cuDNN, for one card."""

    def __init__(self, library: ctypes.CDLL, handle: Any = None, device: _Descriptor | None = None) -> None:
        self._library = library
        self._handle = handle
        self._device = device

    @classmethod
    def of_card(cls) -> Asker:
        """Return cuDNN for the card of this process, where torch has loaded the library."""
        library = ctypes.CDLL("libcudnn.so.9")
        handle = ctypes.c_void_p()
        if library.cudnnCreate(ctypes.byref(handle)):
            raise CudnnError("no handle")
        return cls(library, handle=handle)

    @classmethod
    def described(cls, path: str, properties: dict[str, Any]) -> Asker:
        """Return cuDNN for a card that is described, and need not be there."""
        library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        device = _Descriptor(library, 38)
        text = json.dumps(properties).encode()
        device.check(library.cudnnBackendSetAttribute(device.pointer, 2702, _CHAR, ctypes.c_int64(len(text)), text))
        return cls(library, device=device.finalized())

    def description(self) -> str:
        """Return how cuDNN describes the first card: what `described` takes."""
        device = self._new(38).set(2700, _INT32, 0).finalized()
        size = device.get(2702, _CHAR, 0, None)
        text = ctypes.create_string_buffer(size)
        device.get(2702, _CHAR, size, text)
        return text.raw.rstrip(b"\0").decode()

    def ask(self, convolution: Convolution, which: int) -> tuple[int, int] | None:
        """Return bytes of workspace and the engine's number; None if no engine would do."""
        return self.ask_choices(convolution, which, [(convolution.tf32, convolution.deterministic)])[0]

    def ask_choices(
        self, convolution: Convolution, which: int, choices: Sequence[tuple[bool, bool]]
    ) -> list[tuple[int, int] | None]:
        """Return the answer for each choice: whether TF32 is allowed, whether only deterministic engines are.

        What is left out of cuDNN's list is what ``filterEngineConfigs`` leaves out.
        """
        graph = self._graph(convolution, which)
        found: list[tuple[int, int] | None] = [None for _ in choices]
        for mode in (_INSTANT, _FALLBACK):
            try:
                configurations = self._configurations(graph, mode)
            except CudnnError:
                continue
            for each in configurations:
                engine, notes = self._engine(each)
                strict = convolution.dtype == "f32" and _TENSOR_CORE in notes
                wanted = [
                    at
                    for at, (tf32, deterministic) in enumerate(choices)
                    if found[at] is None and (tf32 or not strict) and not (deterministic and _NONDETERMINISTIC in notes)
                ]
                if _DOWN_CONVERTS in notes or not wanted:
                    continue
                try:
                    nbytes = self._workspace(each)
                except CudnnError:
                    continue
                for at in wanted:
                    found[at] = nbytes, engine
                if None not in found:
                    return found
        return found

    def _new(self, kind: int) -> _Descriptor:
        return _Descriptor(self._library, kind)

    def _tensor(self, name: str, sizes: Sequence[int], convolution: Convolution) -> _Descriptor:
        strides = _strides(sizes, channels_last=convolution.channels_last)
        tensor = self._new(17).set(901, 1, _DTYPES[convolution.dtype]).set(902, _INT64, *sizes)
        return tensor.set(903, _INT64, *strides).set(906, _INT64, ord(name)).set(900, _INT64, 16).finalized()

    def _graph(self, each: Convolution, which: int) -> _Descriptor:
        flat = len(each.kernel) == 1
        one, zero = ((1,), (0,)) if flat else ((), ())
        x = (each.batch, each.inputs, *one, *each.spatial)
        y = (each.batch, each.outputs, *one, *each.output_spatial())
        channels = (
            (each.inputs, each.outputs // each.groups)
            if each.transposed
            else (each.outputs, each.inputs // each.groups)
        )
        w = (*channels, *one, *each.kernel)
        if each.transposed:
            x, y, which = y, x, (1, 0, 2)[which]
        padding = (*zero, *each.padding)
        convolution = self._new(1).set(100, 1, 0).set(101, 7, 1).set(106, _INT64, len(padding))
        convolution.set(103, _INT64, *one, *each.stride).set(105, _INT64, *padding).set(104, _INT64, *padding)
        convolution.set(102, _INT64, *one, *each.dilation).finalized()
        kind, names = _OPERATIONS[which]
        operation = self._new(kind)
        tensors = [self._tensor(name, sizes, each) for name, sizes in (("x", x), ("w", w), ("y", y))]
        for name, value in zip(names, (*tensors, convolution), strict=False):
            operation.set(name, _DESCRIPTOR, value)
        operation.set(names[4], _FLOAT, 1.0).set(names[5], _FLOAT, 0.0).finalized()
        graph = self._new(15).set(801, _DESCRIPTOR, operation)
        if self._handle is not None:
            graph.set(800, 0, self._handle)
        return graph.finalized()

    def _configurations(self, graph: _Descriptor, mode: int) -> list[_Descriptor]:
        heuristics = self._new(4).set(201, _DESCRIPTOR, graph).set(200, 8, mode)
        if self._device is not None:
            heuristics.set(204, _DESCRIPTOR, self._device)
        heuristics.finalized()
        most = heuristics.get(202, _DESCRIPTOR, 0, None)
        found = [self._new(3) for _ in range(most)]
        packed = (ctypes.c_void_p * most)(*[each.pointer.value for each in found])
        return found[: heuristics.get(202, _DESCRIPTOR, most, packed)]

    def _engine(self, configuration: _Descriptor) -> tuple[int, list[int]]:
        engine = self._new(2)
        configuration.get(300, _DESCRIPTOR, 1, (ctypes.c_void_p * 1)(engine.pointer.value))
        notes = (ctypes.c_int * 16)()
        count = engine.get(1303, 11, 16, notes)
        return engine.number(1301), list(notes[:count])

    def _workspace(self, configuration: _Descriptor) -> int:
        plan = self._new(5).set(401, _DESCRIPTOR, configuration)
        if self._device is not None:
            plan.set(407, _DESCRIPTOR, self._device)
        if self._handle is not None:
            plan.set(400, 0, self._handle)
        return plan.finalized().number(402)


def _strides(sizes: Sequence[int], *, channels_last: bool) -> list[int]:
    order = [*range(len(sizes))]
    if channels_last:
        order = [0, *order[2:], 1]
    strides, step = [0] * len(sizes), 1
    for dim in reversed(order):
        strides[dim] = step
        step *= sizes[dim]
    return strides
