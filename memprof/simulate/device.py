"""The simulated device as kernels see it: memory, storages, host values, libraries, caveats."""

# ruff: noqa: PLW0108  # `reset` replaces memory and host values: they are looked up at every call

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memprof.simulate.caveats import Caveat, Caveats
from memprof.simulate.dispatch import Dispatcher
from memprof.simulate.experts import SPREAD, ExpertRows
from memprof.simulate.history import History
from memprof.simulate.host import HostValues, storage_address
from memprof.simulate.libraries import Libraries
from memprof.simulate.memory import DeviceMemory, Temporary
from memprof.simulate.recurrent_calls import RecurrentCalls
from memprof.simulate.sdpa import Attention
from memprof.simulate.storages import StorageTable, storage_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from memprof.allocator.driver import AddressOrder
    from memprof.simulate.cards import Card
    from memprof.simulate.experts import Empty
    from memprof.trace.model import Settings

__all__ = ["Device"]


class Device:
    """One simulated CUDA device. Its kernels stay registered; `reset` gives it fresh memory."""

    memory: DeviceMemory
    history: History
    host: HostValues
    libraries: Libraries
    caveats: Caveats

    def __init__(self, card: Card, settings: Settings, order: AddressOrder) -> None:
        self.card = card
        self._settings = settings
        self._order = order
        self.storages = StorageTable(lambda nbytes: self.memory.allocate(nbytes), lambda at: self.memory.release(at))
        self.dispatcher = Dispatcher(self)
        self.attention = Attention(card)
        self.recurrent = RecurrentCalls()
        self.shapes = self.dispatcher.shapes
        self.reset()

    def reset(self, capacity: int | None = None) -> None:
        """Begin with empty memory, as in a fresh process; tensors that are still alive lose theirs.

        `capacity` is what the process can reserve; the card's memory less the context if not given.
        """
        self.storages.abandon()
        self.recurrent.forget()
        self.caveats = Caveats()
        self.empty: Empty = self.storages.empty
        self._experts: ExpertRows | None = None
        self.memory = memory = DeviceMemory(
            self.card, self._settings, self._order, lambda at: self.host.drop(at), capacity=capacity
        )
        self.history = memory.history = History(memory.allocator)
        self.host = HostValues(memory.size_of, self.caveats.add, self._routed)
        self.libraries = Libraries(
            cublas_bytes=self.card.cublas_workspace_bytes,
            cublas_lt_bytes=self.card.cublas_lt_workspace_bytes,
            take=memory.allocate,
            make_cublas=memory.context.cublas,
            free=memory.release,
            stream=lambda: memory.stream,
        )

    def install(self) -> None:
        """Register the kernels."""
        self.dispatcher.install()
        for key in ("AutogradCUDA", "CUDA"):
            self.dispatcher.add("scaled_dot_product_attention", self.attention, key)
            for name, function in self.recurrent.ops().items():
                self.dispatcher.add(name, function, key)

    def temporary(self, nbytes: int) -> Temporary:
        """Allocate what a kernel needs while it runs; 0 bytes allocate nothing."""
        return Temporary(self.memory, nbytes)

    def _routed(self, rows: int, chosen: int, length: int) -> None:
        """Watch, from the first choice on, what is allocated for the rows of one expert."""
        if self._experts is None:
            caveats = self.caveats
            self._experts = ExpertRows(self.storages.empty, lambda nbytes: caveats.widen("value", SPREAD, nbytes))
            self.empty = self._experts.empty
        self._experts.choose(rows, chosen, length)

    def found(self, count: int, among: int) -> None:
        """Take note of how many of known values are not zero: those of an expert's mask are its rows."""
        if self._experts is not None:
            self._experts.find(count, among)

    def resize(self, tensor: torch.Tensor, size: Sequence[int], stride: Sequence[int]) -> None:
        """Give a tensor another size, and another storage if its own is too small; values are not kept."""
        needed = storage_bytes(size, stride, tensor.element_size()) + tensor.storage_offset() * tensor.element_size()
        if needed > self.memory.size_of(storage_address(tensor)):
            fresh = self.empty(size, stride, tensor.dtype)
            tensor.set_(fresh.untyped_storage(), 0, size, stride)
        else:
            tensor.set_(tensor.untyped_storage(), tensor.storage_offset(), size, stride)

    def snapshot(self, *, traces: bool = True) -> dict[str, Any]:
        """Return what ``torch.cuda.memory._snapshot`` returns."""
        with self.memory.held():
            return self.history.snapshot(traces=traces)

    def all_caveats(self) -> list[Caveat]:
        """Return what was met, and what is not known of the card."""
        return self.card.caveats() + self.caveats.list()
