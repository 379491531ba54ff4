"""Output layer and loss for a few tokens at a time, under checkpointing: logits exist for one chunk only, twice.

For models of litgpt, whose ``forward`` ends in ``lm_head``.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["checkpointed_loss"]


def checkpointed_loss(
    model: torch.nn.Module, tokens: torch.Tensor, targets: torch.Tensor, *, chunk: int, ignored: int = -100
) -> torch.Tensor:
    """Return the mean cross entropy of the next tokens, as ``litgpt.utils.chunked_cross_entropy`` does.

    Parameters
    ----------
    tokens, targets
        Token ids, micro-batch x length; targets that are `ignored` do not count.
    chunk
        Tokens of each sample whose logits exist at the same time.
    """
    head = model.lm_head
    with _without_head(model):
        hidden = model(tokens)[:, :-1]
    shifted = targets[:, 1:]
    parts = zip(torch.split(hidden, chunk, dim=1), torch.split(shifted, chunk, dim=1), strict=True)
    # Stopping early is an exception in the middle of an operator, which the simulated device does not survive; what is
    # left of a chunk after the last saved tensor is its sum.
    with set_checkpoint_early_stop(False):
        sums = [checkpoint(_summed, head, part, target, ignored, use_reentrant=False) for part, target in parts]
    counted = (shifted != ignored).sum()
    # litgpt divides by at least 1: a batch may be padding only.
    return torch.stack(sums).sum() / counted.clamp(min=1)


def _summed(head: torch.nn.Module, hidden: torch.Tensor, targets: torch.Tensor, ignored: int) -> torch.Tensor:
    logits = head(hidden).flatten(0, 1)
    return torch.nn.functional.cross_entropy(logits, targets.flatten(), ignore_index=ignored, reduction="sum")


@contextmanager
def _without_head(model: torch.nn.Module) -> Iterator[None]:
    head = model.lm_head
    model.lm_head = torch.nn.Identity()
    try:
        yield
    finally:
        model.lm_head = head
