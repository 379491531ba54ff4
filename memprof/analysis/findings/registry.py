"""All findings, and what a device's account has of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memprof.analysis.findings.cached import cache_untold, fragmentation
from memprof.analysis.findings.checkpointing import checkpointing_idle
from memprof.analysis.findings.dequantized import dequantized_kept
from memprof.analysis.findings.dropout import dropout_masks
from memprof.analysis.findings.early_state import early_state
from memprof.analysis.findings.float32_weights import float32_weights
from memprof.analysis.findings.frozen_casts import frozen_casts
from memprof.analysis.findings.frozen_state import frozen_state
from memprof.analysis.findings.held import held_after_backward
from memprof.analysis.findings.leak import leak
from memprof.analysis.findings.logits import logits_copies, logits_dominate
from memprof.analysis.findings.not_quantized import linears_left
from memprof.analysis.findings.peaks import evaluation_larger, first_step
from memprof.analysis.findings.quantized_inputs import quantized_inputs
from memprof.analysis.findings.quantized_outputs import quantized_outputs
from memprof.analysis.findings.view import view_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from memprof.analysis.account import DeviceAccount
    from memprof.analysis.findings.finding import Finding
    from memprof.analysis.findings.view import View

__all__ = ["FINDINGS", "WORTH", "find_all", "top_finding"]

FINDINGS: dict[str, Callable[[View], Finding | None]] = {
    "quantized-output-float32": quantized_outputs,
    "logits-dominate": logits_dominate,
    "logits-copied": logits_copies,
    "weights-float32": float32_weights,
    "dequantized-weights-kept": dequantized_kept,
    "frozen-weight-casts": frozen_casts,
    "quantized-inputs-kept": quantized_inputs,
    "dropout-masks": dropout_masks,
    "checkpointing-not-working": checkpointing_idle,
    "frozen-optimizer-state": frozen_state,
    "grows-every-step": leak,
    "held-after-backward": held_after_backward,
    "fragmentation": fragmentation,
    "cached-without-history": cache_untold,
    "evaluation-larger": evaluation_larger,
    "first-step-differs": first_step,
    "linears-not-quantized": linears_left,
    "optimizer-state-before-forward": early_state,
}
"""By the id of what each finds."""
WORTH = 0.005
"""Share of the peak below which a finding is not worth a line."""


def find_all(account: DeviceAccount, *, worth: float = WORTH, tells: bool = True) -> tuple[Finding, ...]:
    """Return what is found on one device and takes at least a share `worth` of the peak, most bytes first.

    Parameters
    ----------
    tells
        Whether each says what it gives back; that takes longer than finding it.

    """
    view = view_of(account, tells=tells)
    found = [finding for find in FINDINGS.values() if (finding := find(view)) is not None]
    found = [finding for finding in found if finding.size >= worth * view.peak]
    return tuple(sorted(found, key=lambda finding: -finding.size))


def top_finding(account: DeviceAccount) -> Finding | None:
    """Return the finding with the most bytes, without what it gives back; None if nothing is found."""
    return next(iter(find_all(account, tells=False)), None)
