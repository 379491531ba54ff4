"""Autocast's casts of frozen weights, which it does not cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from memprof.categories.category import Category
from memprof.units import format_bytes

if TYPE_CHECKING:
    from memprof.analysis.findings.finding import Finding
    from memprof.analysis.findings.view import View

__all__ = ["frozen_casts"]


def frozen_casts(view: View) -> Finding | None:
    """Find half-precision copies of frozen weights that autograd keeps for backward.

    Autocast caches the cast of a weight only if it requires grad (``cached_cast`` in
    aten/src/ATen/autocast_mode.cpp): a frozen one is cast anew at every use, and every copy is kept.
    """
    mask = (
        view.of(Category.WEIGHT_CASTS)
        & view.text("finer", {"base"})
        & view.account.classification.saved
        & view.born_in("forward")
    )
    copies: dict[str, int] = {}
    for row in np.flatnonzero(mask & view.live).tolist():
        name = view.get("parameter", row) or ""
        copies[name] = copies.get(name, 0) + 1
    most = max(copies, key=lambda name: copies[name], default="")
    several = f", {copies[most]} of {most} alone" if copies and copies[most] > 1 else ""
    return view.finding(
        mask,
        id="frozen-weight-casts",
        title=lambda size: (
            f"Autocast's copies of frozen weights are kept for backward: {format_bytes(size)} in "
            f"{sum(copies.values())} {'copy' if len(copies) == 1 == sum(copies.values()) else 'copies'}{several}"
        ),
        category=Category.WEIGHT_CASTS,
        fix=(
            "Store the frozen weights in half precision (bf16-true, or model.to(torch.bfloat16) with the adapters left "
            "in float32), so that autocast has nothing to cast."
        ),
        grows=False,
        gives_back=lambda: view.given_back_by("half-frozen-weights"),
    )
