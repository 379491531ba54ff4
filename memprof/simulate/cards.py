"""What changes memory from card to card, each value with its source.

Only the H200 was measured by us; everything else is from NVIDIA's or PyTorch's documents, or from figures that other
people's programs printed, and a run on such a card says so.
"""

from __future__ import annotations

from dataclasses import dataclass

from memprof.errors import InputError
from memprof.simulate.caveats import Caveat

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
    threads_per_multiprocessor: int
    total_source: str
    """Where `total_bytes` is from: ours, a document, or a report of what PyTorch printed on such a card."""
    context_source: str = "that of the H200, which has more multiprocessors and loads the same libraries"
    """Where `context_bytes` is from."""
    measured: bool = False
    """Whether memory of training runs on this card was compared with the simulation by us."""

    def caveats(self) -> list[Caveat]:
        """Return what follows from the card never having been measured."""
        if self.measured:
            return []
        what = f"{self.name} was never measured by us: its capacity, context and library workspaces are from documents"
        return [Caveat(kind="card", what=what, where="", count=1, bytes=self.context_bytes)]

    @property
    def cublas_workspace_bytes(self) -> int:
        """Workspace of one cuBLAS handle on one stream (``parseChosenWorkspaceSize``, ``CublasHandlePool.cpp``)."""
        return 4096 * 8 * 1024 if self.capability[0] in (9, 10) else 4096 * 1024 * 2 + 16 * 1024 * 8

    @property
    def cublas_lt_workspace_bytes(self) -> int:
        """Workspace of one cuBLASLt handle on one stream (``_parseChosenWorkspaceSize``, ``CUDABlas.cpp``)."""
        return 1 << 20


_H200_CONTEXT = 804_000_000
"""804 MB in each of 20 training runs; 1,062 MB in a process that had loaded the kernels of 2,500 different calls."""


def _gib(number: float) -> int:
    """Return bytes for a figure that was printed with two decimals; whole MiB, rounded down."""
    return int(number * 1024) * MIB


_REPORTED = (
    Card(
        key="t4",
        name="Tesla T4",
        capability=(7, 5),
        multiprocessors=40,
        threads_per_multiprocessor=1024,
        total_bytes=_gib(14.56),
        context_bytes=_H200_CONTEXT,
        total_source="OOM message, torch, T4 with ECC: github.com/Zheng-Chong/CatVTON/issues/133",
    ),
    Card(
        key="v100",
        name="Tesla V100-SXM2-16GB",
        capability=(7, 0),
        multiprocessors=80,
        threads_per_multiprocessor=2048,
        total_bytes=_gib(15.75),
        context_bytes=_H200_CONTEXT,
        total_source="OOM message, torch, a 16 GB card that is not named: github.com/Morizeyao/GPT2-Chinese/issues/215",
    ),
    Card(
        key="v100-32",
        name="Tesla V100-SXM2-32GB",
        capability=(7, 0),
        multiprocessors=80,
        threads_per_multiprocessor=2048,
        total_bytes=_gib(31.74),
        context_bytes=_H200_CONTEXT,
        total_source="OOM message, torch, V100: github.com/haotian-liu/LLaVA/issues/812",
    ),
    Card(
        key="a10g",
        name="NVIDIA A10G",
        capability=(8, 6),
        multiprocessors=80,
        threads_per_multiprocessor=1536,
        total_bytes=22_000_000_000,
        context_bytes=_H200_CONTEXT,
        total_source='"about 22 GB": github.com/huggingface/local-gemma/pull/25, NVIDIA\'s forum, topic 232129',
    ),
    Card(
        key="l4",
        name="NVIDIA L4",
        capability=(8, 9),
        multiprocessors=58,
        threads_per_multiprocessor=1536,
        total_bytes=_gib(22.03),
        context_bytes=_H200_CONTEXT,
        total_source="OOM message, torch, L4: github.com/ArcInstitute/evo2/issues/190",
    ),
    Card(
        key="rtx3090",
        name="NVIDIA GeForce RTX 3090",
        capability=(8, 6),
        multiprocessors=82,
        threads_per_multiprocessor=1536,
        total_bytes=_gib(23.68),
        context_bytes=_H200_CONTEXT,
        total_source="OOM message, torch, RTX 3090: github.com/vllm-project/vllm/issues/16343",
    ),
    Card(
        key="rtx4090",
        name="NVIDIA GeForce RTX 4090",
        capability=(8, 9),
        multiprocessors=128,
        threads_per_multiprocessor=1536,
        total_bytes=_gib(23.52),
        context_bytes=_H200_CONTEXT,
        total_source="OOM message, torch, RTX 4090: github.com/Soul-AILab/SoulX-FlashTalk/issues/5",
    ),
    Card(
        key="a100",
        name="NVIDIA A100-SXM4-40GB",
        capability=(8, 0),
        multiprocessors=108,
        threads_per_multiprocessor=2048,
        total_bytes=42_298_834_944,
        context_bytes=_H200_CONTEXT,
        total_source="deviceQuery: github.com/bottlerocket-os/bottlerocket/pull/3873",
    ),
    Card(
        key="a100-80",
        name="NVIDIA A100-SXM4-80GB",
        capability=(8, 0),
        multiprocessors=108,
        threads_per_multiprocessor=2048,
        total_bytes=_gib(79.14),
        context_bytes=_H200_CONTEXT,
        total_source="OOM message, torch, A100: github.com/lianqi1008/Control-GIC/issues/6",
    ),
    Card(
        key="l40s",
        name="NVIDIA L40S",
        capability=(8, 9),
        multiprocessors=142,
        threads_per_multiprocessor=1536,
        total_bytes=_gib(44.42),
        context_bytes=_H200_CONTEXT,
        total_source="OOM message, torch, L40S: github.com/stepfun-ai/Step-Video-T2V/issues/8",
    ),
    Card(
        key="h100",
        name="NVIDIA H100 80GB HBM3",
        capability=(9, 0),
        multiprocessors=132,
        threads_per_multiprocessor=2048,
        total_bytes=_gib(79.11),
        context_bytes=_H200_CONTEXT,
        total_source="OOM message, torch, H100: github.com/vllm-project/vllm/issues/27508",
    ),
    Card(
        key="b200",
        name="NVIDIA B200",
        capability=(10, 0),
        multiprocessors=148,
        threads_per_multiprocessor=2048,
        total_bytes=180_000_000_000,
        context_bytes=_H200_CONTEXT,
        total_source="NVIDIA's DGX B200 datasheet: 1,440 GB on eight cards; what CUDA reports was not found",
    ),
)
_MEASURED = (
    Card(
        key="h200",
        name="NVIDIA H200",
        capability=(9, 0),
        multiprocessors=132,
        threads_per_multiprocessor=2048,
        total_bytes=150_109_880_320,
        context_bytes=_H200_CONTEXT,
        total_source="cudaMemGetInfo, measured: driver 580.159, CUDA 13.0",
        context_source="cudaMemGetInfo less memory_reserved after training steps, measured: torch 2.11+cu130",
        measured=True,
    ),
)
CARDS = {card.key: card for card in (*_REPORTED, *_MEASURED)}
"""Cards by key. Multiprocessors are NVIDIA's product data, threads per multiprocessor the CUDA programming guide's."""


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
