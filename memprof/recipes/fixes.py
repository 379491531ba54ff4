"""Counterfactuals: the same run with one cause of memory taken away, so that what the cause costs can be measured."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from memprof.recipes.lit_gpt_2023 import LitGpt2023

__all__ = ["FIXES", "Fix"]

FEW_TOKENS = 32
"""Tokens at a time in ``lm-head-chunk-32``; lit-gpt takes 128."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """One change of a run."""

    what: str
    """What it changes, in one line."""
    change: Callable[[LitGpt2023], LitGpt2023]
    """Returns the run without the cause."""


def _autocast_output(run: LitGpt2023) -> LitGpt2023:
    return replace(run, fix=None, cast_inputs=True)


def _bf16_true(run: LitGpt2023) -> LitGpt2023:
    return replace(run, fix=None, precision="bf16-true")


def _checkpointed_loss(run: LitGpt2023) -> LitGpt2023:
    return replace(run, fix=None, checkpointed_loss=True)


def _half_frozen(run: LitGpt2023) -> LitGpt2023:
    return replace(run, fix=None, half_frozen=True)


def _small_chunks(run: LitGpt2023) -> LitGpt2023:
    return replace(run, fix=None, lm_head_chunk_size=FEW_TOKENS)


FIXES = {
    "autocast-output": Fix(
        what="quantized layers take and return autocast's dtype, as plain ones do", change=_autocast_output
    ),
    "bf16-true": Fix(what="weights and activations in bfloat16, without autocast", change=_bf16_true),
    "half-frozen-weights": Fix(
        what="frozen linear weights are stored in autocast's dtype: no copy of them at every use", change=_half_frozen
    ),
    "checkpointed-loss": Fix(
        what="output layer and loss chunk by chunk under checkpointing: no logits are kept", change=_checkpointed_loss
    ),
    "lm-head-chunk-32": Fix(what=f"the output layer runs for {FEW_TOKENS} tokens at a time", change=_small_chunks),
}
"""By the name that ``--fix`` takes."""
