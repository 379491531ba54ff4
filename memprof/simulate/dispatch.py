"""The generic kernel: every op on the simulated device that has none of its own.

Shapes come from the op's meta kernel, outputs from the simulated allocator, and that is all; views run torch's own CPU
kernel, which touches no memory. Structured ops (most pointwise ones) never get here as such: torch's composite kernels
allocate their output and call the ``out`` variant, as the CUDA kernels do.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from memprof.errors import UnsupportedError
from memprof.simulate.cuda_kernels import COMPOSITE_KEYS, replace_cuda_kernels
from memprof.simulate.kernels import COMPOSITE, KERNELS, PLAIN, TEMPORARIES
from memprof.simulate.same_device import check_same_device, checked_arguments

if TYPE_CHECKING:
    from memprof.simulate.device import Device

    Op = Any  # torch._ops.OpOverload, most of it untyped

__all__ = ["Dispatcher"]

_CPU = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
_CACHE_LIMIT = 1 << 14
"""Shapes that are remembered at most, before all are forgotten."""
_FILLS = frozenset(
    ("arange", "bernoulli_", "eye", "fill_", "full", "linspace", "ones", "random_", "randperm", "zero_", "zeros")
)
"""Ops that write their output without reading a tensor. Factories are composite: their ``out`` variant comes here."""
_SIZED = ("index",)
"""Ops without a shape kernel whose ``out`` variant is called with an output of the right size."""


@dataclass(frozen=True, slots=True)
class _Schema:
    """What the generic kernel needs to know of an op."""

    kind: str
    """``new``: makes its outputs; ``write``: writes its arguments; ``view``; ``none``: returns nothing."""
    base: str
    """Name without namespace and overload."""
    written: tuple[tuple[int, str, bool], ...]
    """Position, name and whether it is an ``out`` argument, of every argument that is written."""
    returned: tuple[int, ...]
    """Rows of `written` that a ``write`` op returns."""
    kernel: Any
    temporaries: Any
    known: bool
    """The op's temporaries are in the table, or known to be none."""
    checked: tuple[tuple[int, str], ...]
    """Position and name of the arguments that must be on one device."""


class Dispatcher:
    """Runs ops on a device; installed once as torch's fallback for the CUDA dispatch key."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._schemas: dict[Op, _Schema] = {}
        self._shapes: dict[Any, Any] = {}
        self._aten: Any = None
        self._libraries: list[Any] = []

    def install(self) -> None:
        """Register the fallback, and a CUDA kernel for each op whose composite kernel must not run."""
        library: Any = torch.library.Library
        fallback = library("_", "IMPL")
        fallback.fallback(self.run, "CUDA")
        self._aten = library("aten", "IMPL")
        registered = set()
        has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch says once that a kernel of a CUDA build was replaced
            for name in sorted({*COMPOSITE, *(full.removeprefix("aten::") for full in KERNELS)}):
                full = f"aten::{name}"
                op = _find(name)
                if op is None:
                    continue
                if name in COMPOSITE or any(has_kernel(full, key) for key in COMPOSITE_KEYS):
                    self._aten.impl(name, _bind(self.run, op), "CUDA", allow_override=True)
                    registered.add((full, "CUDA"))
        self._libraries += [fallback, self._aten, *replace_cuda_kernels(self.run, registered)]

    def add(self, name: str, function: Any, key: str) -> None:
        """Register `function` for one op and dispatch key."""
        if _find(name) is not None:
            self._aten.impl(name, function, key, allow_override=True)

    def run(self, op: Op, *args: Any, **kwargs: Any) -> Any:
        """Run one op."""
        schema = self._schemas.get(op) or self._learn(op)
        if schema.checked:
            check_same_device(op, schema.base, schema.checked, args, kwargs)
        result = self._perform(schema, op, args, kwargs)
        context = self._device.memory.context
        if not context.settled and schema.kind != "view":
            context.ran(schema.base, args)
        return result

    def _perform(self, schema: _Schema, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if schema.kernel is not None:
            return schema.kernel(self._device, op, *args, **kwargs)
        if schema.kind == "view":
            return op.redispatch(_CPU, *args, **kwargs)
        if schema.kind == "write":
            return self._write(schema, op, args, kwargs)
        if schema.kind == "none":
            self._forget(schema, args, kwargs)
            if not schema.known:
                self._unknown(schema, op, args)
            return None
        return self._new(schema, op, args, kwargs)

    def shapes(self, op: Op, args: Any, kwargs: dict[str, Any]) -> Any:
        """Return what the op's meta kernel returns: meta tensors in place of the outputs."""
        try:
            key = (op, _key(args), tuple((name, _key(value)) for name, value in kwargs.items()))
        except TypeError:
            key = None
        else:
            known = self._shapes.get(key)
            if known is not None:
                return known
        try:
            result = op(*_to_meta(args), **{name: _to_meta(value) for name, value in kwargs.items()})
        except NotImplementedError as error:
            raise _no_shape(op) from error
        if key is not None:
            if len(self._shapes) >= _CACHE_LIMIT:
                self._shapes.clear()
            self._shapes[key] = result
        return result

    def _new(self, schema: _Schema, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        outputs = self._allocate(self.shapes(op, args, kwargs))
        self._forget(schema, args, kwargs)
        if schema.temporaries is not None:
            schema.temporaries(self._device, op, outputs, args, kwargs)
        elif not schema.known:
            self._unknown(schema, op, args, outputs)
        written = outputs if isinstance(outputs, (list, tuple)) else (outputs,)
        self._device.host.recompute(op, args, kwargs, written, in_place=False, overwrites=False)
        return outputs

    def _write(self, schema: _Schema, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        written = [args[index] if index < len(args) else kwargs[name] for index, name, _ in schema.written]
        out = all(is_out for _, _, is_out in schema.written)
        if out and any(tensor.numel() == 0 for tensor in written):
            self._resize(schema, op, args, kwargs, written)
        if schema.temporaries is not None:
            schema.temporaries(self._device, op, written[0] if len(written) == 1 else written, args, kwargs)
        elif not schema.known:
            self._unknown(schema, op, args, written)
        overwrites = out or schema.base in _FILLS
        self._device.host.recompute(op, args, kwargs, written, in_place=True, overwrites=overwrites)
        returned = [written[row] for row in schema.returned]
        return returned[0] if len(returned) == 1 else tuple(returned)

    def _forget(self, schema: _Schema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Forget the host values of what an op writes besides its outputs."""
        for index, name, _ in schema.written:
            value = args[index] if index < len(args) else kwargs.get(name)
            self._device.host.forget(value if isinstance(value, (list, tuple)) else (value,))

    def _resize(self, schema: _Schema, op: Op, args: Any, kwargs: dict[str, Any], written: list[torch.Tensor]) -> None:
        """Give empty ``out`` arguments the size that the op writes."""
        metas = {
            name: torch.empty(0, dtype=tensor.dtype, device="meta")
            for (_, name, _), tensor in zip(schema.written, written, strict=True)
            if tensor.numel() == 0
        }
        named = {name: metas.get(name, _to_meta(value)) for name, value in kwargs.items()}
        plain = _without_out(op)
        if plain is not None and len(metas) == 1:
            # The shape kernels of some ``out`` versions forget the layout, which the op itself takes from its inputs.
            op, named = plain, {name: value for name, value in named.items() if name not in metas}
        try:
            result = op(*_to_meta(args), **named)
        except NotImplementedError as error:
            # The size may depend on values (an index that is a mask), and then torch has given it already.
            if schema.base not in _SIZED and all(tensor.size() == (0,) for tensor in written):
                raise _no_shape(op) from error
            return
        for tensor, meta in zip(written, [result] if isinstance(result, torch.Tensor) else result, strict=True):
            if tensor.numel() == 0 and tensor.size() != meta.size():
                self._device.resize(tensor, meta.size(), meta.stride())

    def _allocate(self, shape: Any) -> Any:
        if isinstance(shape, torch.Tensor):
            return self._device.empty(shape.size(), shape.stride(), shape.dtype)
        if isinstance(shape, (list, tuple)):
            return type(shape)(self._allocate(item) for item in shape)
        return shape

    def _unknown(self, schema: _Schema, op: Op, args: Any, outputs: Any = ()) -> None:
        """Note that the op's temporaries are not in the table; they are seldom larger than what it reads and writes."""
        nbytes = sum(tensor.numel() * tensor.element_size() for tensor in _tensors((args, outputs)))
        self._device.caveats.add("temporaries", f"{op.namespace}::{schema.base}", nbytes)

    def _learn(self, op: Op) -> _Schema:
        schema, name = op._schema, op.name()
        base = name.split("::")[1].split(".")[0]
        mutated = [
            (index, argument.name, argument.is_out)
            for index, argument in enumerate(schema.arguments)
            if argument.alias_info is not None and argument.alias_info.is_write
        ]
        returned = [result.alias_info for result in schema.returns]
        sets = [schema.arguments[index].alias_info.before_set for index, _, _ in mutated]
        rows = [sets.index(alias.before_set) for alias in returned if alias is not None and alias.is_write]
        if returned and all(alias is not None and alias.is_write for alias in returned):
            kind = "write"
        elif not returned:
            kind = "none"
        elif any(alias is not None for alias in returned):
            kind = "view"
        else:
            kind = "new"
        extra = TEMPORARIES.get(base)
        learned = _Schema(
            kind=kind,
            base=base,
            written=tuple(mutated),
            returned=tuple(rows),
            kernel=KERNELS.get(name),
            temporaries=extra,
            known=extra is not None or base in PLAIN or torch.Tag.pointwise in op.tags,
            checked=checked_arguments(op, base),
        )
        self._schemas[op] = learned
        return learned


def _no_shape(op: Op) -> UnsupportedError:
    return UnsupportedError(
        f"{op.name()} cannot be simulated: it has no shape (meta) kernel in torch {torch.__version__}; "
        "run it on a real device or leave it out"
    )


def _find(name: str) -> Op:
    """Return an op; None if this torch does not have it."""
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)


def _without_out(op: Op) -> Op:
    """Return the version of an elementwise op that makes its output; None if there is none."""
    if op._overloadname != "out" or torch.Tag.pointwise not in op.tags:
        return None
    plain = getattr(op.overloadpacket, "default", None)
    given = [str(argument.type) for argument in op._schema.arguments if not argument.is_out]
    return plain if plain and [str(argument.type) for argument in plain._schema.arguments] == given else None


def _bind(run: Any, op: Op) -> Any:
    return lambda *args, **kwargs: run(op, *args, **kwargs)


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in _tensors(item)]
    return []


def _key(value: Any) -> Any:
    """Return a hashable form of an argument that decides the shapes; TypeError where there is none."""
    if isinstance(value, torch.Tensor):
        return value.shape, value.stride(), value.dtype
    if isinstance(value, (list, tuple)):
        return tuple(_key(item) for item in value)
    if value is None or isinstance(value, (int, float, str, torch.dtype, torch.device, torch.layout)):
        return type(value), value
    if isinstance(value, torch.memory_format):
        return value
    raise TypeError


def _to_meta(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device="meta")
    if isinstance(value, (list, tuple)):
        return (
            type(value)(_to_meta(item) for item in value)
            if type(value) in (list, tuple)
            else list(map(_to_meta, value))
        )
    if isinstance(value, torch.device):
        return torch.device("meta")
    return value
