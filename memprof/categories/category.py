"""The categories: what an allocation is for. Defined once, here.

An allocation has one category for its whole life, the highest role that it ever has; `Category` lists them in that
order of precedence. Each may be split finer; the finer names are free text except for those named here.
"""

from __future__ import annotations

from enum import Enum

__all__ = ["CATEGORIES", "Category"]


class Category(Enum):
    """What an allocation is for, in order of precedence."""

    WEIGHTS = "weights"
    """A parameter, buffer or quantization state lives in it. Finer: base, adapter, quantized, quant_state, buffer."""
    OPTIMIZER_STATE = "optimizer_state"
    """`optimizer.state` holds it. Finer: the state's name, such as exp_avg."""
    GRADIENTS = "gradients"
    """A parameter's `.grad`, or a gradient flowing through backward. Finer: parameter, activation."""
    DEQUANTIZED = "dequantized"
    """A full-precision copy rebuilt from a quantized weight, or a cast of one. Finer: forward, backward."""
    WEIGHT_CASTS = "weight_casts"
    """Autocast's low-precision copy of a weight."""
    INPUTS = "inputs"
    """The batch, also when autograd saves it."""
    ACTIVATIONS = "activations"
    """Born in forward and alive when backward begins. Finer: saved, held, recomputed, logits, loss."""
    WORKSPACE = "workspace"
    """cuBLAS, cuDNN and the like took it."""
    TEMPORARIES = "temporaries"
    """None of the above, and phase and op are known. Finer: forward, backward, optimizer, init."""
    UNKNOWN = "unknown"
    """Nothing is known. Always shown, never spread over the others."""

    @property
    def code(self) -> int:
        """Position in the order of precedence, 0 (highest) to 9; the code used in numpy columns."""
        return CODES[self]


CATEGORIES: tuple[Category, ...] = tuple(Category)
"""All categories; `CATEGORIES[code]` turns a code of a numpy column back."""
CODES: dict[Category, int] = {category: code for code, category in enumerate(CATEGORIES)}
