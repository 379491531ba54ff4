"""Light labels: what the capture knows stays, and the rules decide the rest."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from memprof.categories.category import Category
from memprof.categories.rules import classify_by_rules

if TYPE_CHECKING:
    from memprof.allocator.account import Allocations
    from memprof.categories.classification import Classification
    from memprof.trace.model import DeviceTrace, StackTable

__all__ = ["fill_by_rules"]


def fill_by_rules(
    labelled: Classification, device: DeviceTrace, allocations: Allocations, stacks: StackTable
) -> Classification:
    """Give what has no category of its own that of the rules, with their reason, and every allocation the rules' op."""
    ruled = classify_by_rules(device, allocations, stacks, labelled)
    shift = len(labelled.texts)
    saved_text = shift + len(ruled.texts)
    opened = labelled.category == Category.UNKNOWN.code
    columns: dict[str, Any] = {}
    for name in ("finer", "phase", "op", "reason"):
        rows = getattr(ruled, name)
        columns[name] = np.where(rows >= 0, rows + shift, -1).astype(np.int32)
    for name in ("finer", "phase"):
        known = getattr(labelled, name)
        columns[name] = np.where(~opened | ((name == "phase") & (known >= 0)), known, columns[name])
    # The hooks of autograd told which tensors it saves; what it did not, something else holds.
    kept = opened & (ruled.category == Category.ACTIVATIONS.code) & (columns["phase"] >= 0)
    either = next((row for row, text in enumerate(ruled.texts) if text == "saved_or_held"), -2)
    kept &= ruled.finer == either
    columns["finer"][kept] = np.where(labelled.saved[kept], saved_text, saved_text + 1)
    return replace(
        labelled,
        by="light",
        texts=(*labelled.texts, *ruled.texts, "saved", "held"),
        category=np.where(opened, ruled.category, labelled.category).astype(np.uint8),
        **columns,
    )
