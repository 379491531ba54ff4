"""The loop around a recipe's micro-steps: the same for all, so that their files can be compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from memprof.capture.observer import Observer
    from memprof.recipes.batches import Batch

__all__ = ["run_micro_steps"]


def run_micro_steps(
    count: int, batches: Callable[[int], Batch], step: Callable[[Batch, int], torch.Tensor], observer: Observer
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Run `count` micro-steps, telling `observer` of each batch and phase.

    The names are lit-gpt's, and so is how long they live: a batch until the next one was made, a loss until the next.

    Returns
    -------
    tokens, targets, loss
        Of the last micro-step: alive at the end, as the script has them.
    """
    for number in range(count):
        with observer.phase("between", number):
            tokens, targets = batches(number)
            observer.see("inputs", "tokens", (tokens,))
            observer.see("inputs", "targets", (targets,))
        with observer.step(number):
            loss = step((tokens, targets), number)
        with observer.phase("between", number):
            loss.item()
        observer.end_step(number)
    return tokens, targets, loss
