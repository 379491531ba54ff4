"""Host values of small device tensors, so that data-dependent code takes its true branch.

Nothing is computed on the simulated device. But programs read some of it: an optimizer's step, whether a mask is all
true, the scale of a ``GradScaler``. Small integer and boolean tensors, and scalars, therefore keep real bytes on the
host for as long as every op that writes them can be redone there on known values. Of a floating-point tensor that was
filled with one number (a mask of ones) that number is known. Everything else is unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from memprof.simulate.decided import spread_choices, uniform, whatever_else
from memprof.simulate.experts import SPREAD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from memprof.simulate.decided import Number

__all__ = ["HostValues", "storage_address"]

_INTEGER_LIMIT = 4 << 20
"""Bytes of the largest integer or boolean storage whose values are kept: token ids and masks, not one-hot logits."""
_FLOAT_LIMIT = 1 << 20
"""Bytes of the largest floating-point storage whose values are kept: scalars such as a loss scale."""


def storage_address(tensor: torch.Tensor) -> int:
    """Return the address of a tensor's storage.

    Never through ``untyped_storage()``: that makes the storage look shared, and autograd then adds out of place.
    """
    return int(tensor.data_ptr() - tensor.storage_offset() * tensor.element_size())


class HostValues:
    """Known bytes by storage address.

    Parameters
    ----------
    size_of
        Requested bytes of the live allocation at an address; 0 for none.
    note
        Takes kind and words of a caveat.
    routed
        Told of every choice that is taken as evenly spread: of how many rows, how many for each, among how many.
    """

    def __init__(
        self,
        size_of: Callable[[int], int],
        note: Callable[[str, str], None],
        routed: Callable[[int, int, int], None],
    ) -> None:
        self._size_of = size_of
        self._note = note
        self._routed = routed
        self._known: dict[int, torch.Tensor] = {}
        self._filled: dict[int, torch.Tensor] = {}
        """Scalars that fill the whole storage at an address."""
        self._generator = torch.Generator()
        """The device's: what is drawn there does not change what the program draws on the host."""

    def drop(self, address: int) -> None:
        """Forget the allocation at `address`: it is freed."""
        self._known.pop(address, None)
        self._filled.pop(address, None)

    def forget(self, tensors: Iterable[Any]) -> None:
        """Forget what is in `tensors`: something unknown was written there."""
        if self._known or self._filled:
            for tensor in tensors:
                if isinstance(tensor, torch.Tensor) and tensor.device.type == "cuda":
                    self.drop(storage_address(tensor))

    def view(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Return the values of a tensor as a CPU tensor over the known bytes; None where they are unknown."""
        if tensor.device.type == "cpu":
            return tensor
        if not tensor.numel():
            return torch.empty(tensor.size(), dtype=tensor.dtype)
        address = storage_address(tensor)
        known = self._known.get(address)
        if known is not None:
            return _over(known, tensor)
        filled = self._filled.get(address)
        return None if filled is None or filled.dtype != tensor.dtype else filled.expand(tensor.size())

    def write(self, tensor: torch.Tensor, values: torch.Tensor) -> None:
        """Make the values of a tensor known, if they are of a kind that is kept."""
        target = self._target(tensor)
        if target is None:
            self.forget((tensor,))
        else:
            target.copy_(values)

    def keeps(self, tensor: torch.Tensor) -> bool:
        """Tell whether values of such a tensor are kept at all."""
        inexact = tensor.dtype.is_floating_point or tensor.dtype.is_complex
        return self._size_of(storage_address(tensor)) <= (_FLOAT_LIMIT if inexact else _INTEGER_LIMIT)

    def recompute(
        self,
        op: Any,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        written: Sequence[Any],
        *,
        in_place: bool,
        overwrites: bool,
    ) -> None:
        """Redo `op` on the host if everything that it reads is known; otherwise forget what it wrote.

        Parameters
        ----------
        written
            The op's outputs on the device; arguments of the op if `in_place`.
        overwrites
            The op writes its outputs in full, without reading them.
        """
        outputs = [tensor for tensor in written if isinstance(tensor, torch.Tensor)]
        number = whatever_else(op, args, self.view, self._note) if len(outputs) == 1 else None
        if number is not None:
            self.fill(outputs[0], number)
            return
        spread = spread_choices(op, args, kwargs, self.view)
        if spread is not None:
            indices, length = spread
            rows = args[0].numel() // length
            self._note("value", SPREAD)
            self._routed(rows, indices.numel() // rows, length)
            self.forget(outputs[:-1])
            self.write(outputs[-1], indices)
            return
        if not all(self.keeps(tensor) for tensor in outputs):
            self.forget(outputs)
            return
        targets = {id(tensor) for tensor in outputs} if in_place and overwrites else set()
        try:
            named = {name: self._to_host(value, targets) for name, value in kwargs.items()}
            hosted = [_as_declared(op, row, self._to_host(value, targets)) for row, value in enumerate(args)]
            if torch.Tag.nondeterministic_seeded in op.tags:
                named["generator"] = self._generator
            with torch.no_grad():
                result = op(*hosted, **named)
                if not in_place:
                    results = [result] if isinstance(result, torch.Tensor) else result
                    for tensor, values in zip(outputs, results, strict=True):
                        self.write(tensor, values)
        except Exception:  # noqa: BLE001  # whatever stops the op on the host, its result is unknown
            self.forget(outputs)

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """Note that `target` has the values of `source`, as far as they are known."""
        known = self.view(source)
        if known is not None and self.keeps(target):
            self.write(target, known)
            return
        number = uniform(known)
        if number is None:
            self.forget((target,))
        else:
            self.fill(target, number)

    def fill(self, tensor: torch.Tensor, number: Number) -> None:
        """Note that a tensor was filled with one number; zeros are what the unknown is taken as anyway."""
        if self.keeps(tensor):
            self.write(tensor, torch.full(tensor.size(), number, dtype=tensor.dtype))
            return
        self.forget((tensor,))
        address = storage_address(tensor)
        if number and tensor.numel() * tensor.element_size() == self._size_of(address):
            self._filled[address] = torch.tensor(number, dtype=tensor.dtype)

    def _target(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Return where to write a tensor's values; None if they cover only part of an unknown storage."""
        address = storage_address(tensor)
        known = self._known.get(address)
        if known is None:
            size = self._size_of(address)
            if not size or not self.keeps(tensor) or tensor.numel() * tensor.element_size() != size:
                return None
            known = self._known[address] = torch.zeros(size, dtype=torch.uint8)
        return _over(known, tensor)

    def _to_host(self, value: Any, targets: set[int]) -> Any:
        if isinstance(value, torch.Tensor):
            host = self._target(value) if id(value) in targets else self.view(value)
            if host is None:
                raise _UnknownError
            return host
        if isinstance(value, (list, tuple)):
            return [self._to_host(item, targets) for item in value]
        if isinstance(value, torch.device):
            return torch.device("cpu")
        return value


def _as_declared(op: Any, row: int, value: Any) -> Any:
    """Return a number in the place of a tensor as one: torch hands it over as a number, but takes none there."""
    if isinstance(value, (bool, int, float)) and str(op._schema.arguments[row].type) == "Tensor":
        return torch.tensor(value)
    return value


class _UnknownError(Exception):
    """An op reads a value that is not known."""


def _over(known: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """Return a CPU tensor of the same geometry as `tensor` over the bytes `known`."""
    host = torch.empty(0, dtype=tensor.dtype)
    return host.set_(known.untyped_storage(), tensor.storage_offset(), tensor.size(), tensor.stride())
