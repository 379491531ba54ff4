"""Host values of small device tensors, so that data-dependent code takes its true branch.

Nothing is computed on the simulated device. But programs read some of it: an optimizer's step, whether a mask is all
true, the scale of a ``GradScaler``. Small integer and boolean tensors, and scalars, therefore keep real bytes on the
host for as long as every op that writes them can be redone there on known values. Of a floating-point tensor that was
filled with one number (a mask of ones) that number is known. Everything else is unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = ["HostValues", "storage_address"]

_INTEGER_LIMIT = 4 << 20
"""Bytes of the largest integer or boolean storage whose values are kept: token ids and masks, not one-hot logits."""
_FLOAT_LIMIT = 64
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
    """

    def __init__(self, size_of: Callable[[int], int]) -> None:
        self._size_of = size_of
        self._known: dict[int, torch.Tensor] = {}
        self._filled: dict[int, torch.Tensor] = {}
        """Scalars that fill the whole storage at an address."""

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
        if not all(self.keeps(tensor) for tensor in outputs):
            self.forget(outputs)
            if op._schema.name == "aten::fill_":
                self._fill(outputs[0], args[1])
            return
        targets = {id(tensor) for tensor in outputs} if in_place and overwrites else set()
        decided = self._decided(op, args)
        if decided is not None and len(outputs) == 1:
            self.write(outputs[0], torch.full(outputs[0].size(), decided, dtype=outputs[0].dtype))
            return
        try:
            with torch.no_grad():
                result = op(*self._to_host(args, targets), **{k: self._to_host(v, targets) for k, v in kwargs.items()})
                if not in_place:
                    results = [result] if isinstance(result, torch.Tensor) else result
                    for tensor, values in zip(outputs, results, strict=True):
                        self.write(tensor, values)
        except Exception:  # noqa: BLE001  # whatever stops the op on the host, its result is unknown
            self.forget(outputs)

    def _fill(self, tensor: torch.Tensor, value: Any) -> None:
        """Note that a whole storage was filled with one number; zeros are what the unknown is taken as anyway."""
        address = storage_address(tensor)
        whole = tensor.numel() * tensor.element_size() == self._size_of(address)
        number = value.item() if isinstance(value, torch.Tensor) and value.device.type == "cpu" else value
        if whole and isinstance(number, (int, float)) and number:
            self._filled[address] = torch.tensor(number, dtype=tensor.dtype)

    def _decided(self, op: Any, args: Sequence[Any]) -> bool | None:
        """Return what a logical op gives whatever its unknown side is: all true "or" x, all false "and" x.

        Generation stops this way: at the length that was asked for, whichever tokens were drawn.
        """
        absorbing = _ABSORBING.get(op._schema.name)
        if absorbing is None:
            return None
        sides = [side for side in args[:2] if isinstance(side, torch.Tensor)]
        if absorbing and any(side.dtype != torch.bool for side in sides):
            return None
        for side in sides:
            known = self.view(side)
            if known is not None and known.numel() and bool((known.bool() == absorbing).all()):
                return absorbing
        return None

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


_ABSORBING = {
    **{f"aten::{name}": True for name in ("bitwise_or", "bitwise_or_", "logical_or", "logical_or_")},
    **{f"aten::{name}": False for name in ("bitwise_and", "bitwise_and_", "logical_and", "logical_and_")},
}
"""Logical ops and the value of one side that decides them."""


class _UnknownError(Exception):
    """An op reads a value that is not known."""


def _over(known: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """Return a CPU tensor of the same geometry as `tensor` over the bytes `known`."""
    host = torch.empty(0, dtype=tensor.dtype)
    return host.set_(known.untyped_storage(), tensor.storage_offset(), tensor.size(), tensor.stride())
