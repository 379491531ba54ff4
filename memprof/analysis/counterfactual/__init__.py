"""What a run would have held with a cause of memory taken away: its allocations, edited and allocated anew."""

from __future__ import annotations

from memprof.analysis.counterfactual.fixes import PREDICTIONS, predict
from memprof.analysis.counterfactual.lives import Lives, lives_of

__all__ = ["PREDICTIONS", "Lives", "lives_of", "predict"]
