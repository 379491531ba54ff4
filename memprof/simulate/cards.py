"""What changes memory from card to card, each value with its source.

Only the H200 was measured by us; everything else is from NVIDIA's or PyTorch's documents, or from figures that other
people's programs printed, and a run on such a card says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from memprof.errors import InputError
from memprof.simulate.caveats import Caveat

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CARDS", "Card", "card_named"]

MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One GPU model."""

    key: str
    """Name on our command line."""
    name: str
    """Name that CUDA gives it."""
    capability: tuple[int, int]
    multiprocessors: int
    total_bytes: int
    """Total of ``cudaMemGetInfo``: less than what the card is sold with, and it changes with driver and ECC."""
    context_bytes: int
    """What a process takes outside of the allocator: context, loaded kernels, libraries."""
    l2_bytes: int
    warp_size: int = 32
    threads_per_multiprocessor: int = 2048
    measured: bool = False
    """Whether memory of training runs on this card was compared with the simulation by us."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Where each value is from."""

    def caveats(self) -> list[Caveat]:
        """Return what follows from the card never having been measured."""
        if self.measured:
            return []
        what = f"{self.name} was never measured by us: its capacity, context and library workspaces are from documents"
        return [Caveat(kind="card", what=what, where="", count=1, bytes=self.context_bytes)]

    @property
    def has_bf16(self) -> bool:
        """Whether ``torch.cuda.is_bf16_supported(including_emulation=False)`` says yes (compute capability 8.0 up)."""
        return self.capability >= (8, 0)

    @property
    def cublas_workspace_bytes(self) -> int:
        """Workspace of one cuBLAS handle on one stream (``parseChosenWorkspaceSize``, ``CublasHandlePool.cpp``)."""
        return 4096 * 8 * 1024 if self.capability[0] in (9, 10) else 4096 * 1024 * 2 + 16 * 1024 * 8

    @property
    def cublas_lt_workspace_bytes(self) -> int:
        """Workspace of one cuBLASLt handle on one stream (``_parseChosenWorkspaceSize``, ``CUDABlas.cpp``)."""
        return 1 << 20


CARDS = {
    card.key: card
    for card in (
        Card(
            key="h200",
            name="NVIDIA H200",
            capability=(9, 0),
            multiprocessors=132,
            total_bytes=150_109_880_320,
            context_bytes=804_000_000,
            l2_bytes=60 * MIB,
            measured=True,
        ),
    )
}


def card_named(name: str) -> Card:
    """Return a card by its key; case and dashes do not matter.

    Raises
    ------
    InputError
        No such card; the message lists those there are.
    """
    wanted = name.lower().replace("-", "").replace("_", "").replace(" ", "")
    for key, card in CARDS.items():
        if key.replace("-", "") == wanted:
            return card
    raise InputError(f"card {name!r} is not known; choose one of {', '.join(CARDS)}")
