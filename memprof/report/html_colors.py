"""The colour of every category in HTML reports; also told apart by people who do not see red and green alike."""

from __future__ import annotations

from memprof.categories.category import Category

__all__ = ["HTML_COLORS"]

HTML_COLORS = {
    Category.WEIGHTS: "#4477aa",
    Category.OPTIMIZER_STATE: "#aa3377",
    Category.GRADIENTS: "#228833",
    Category.DEQUANTIZED: "#ee6677",
    Category.WEIGHT_CASTS: "#66ccee",
    Category.INPUTS: "#999933",
    Category.ACTIVATIONS: "#ccbb44",
    Category.WORKSPACE: "#777777",
    Category.TEMPORARIES: "#bbccee",
    Category.UNKNOWN: "#cc3311",
}
