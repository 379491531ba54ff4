"""Building a model from quantized linear layers, as lit-gpt did in September 2023: ``torch.nn.Linear`` is replaced.

Only the class is replaced, while the model is built; bitsandbytes quantizes a layer's weight when it moves to a device.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from memprof.errors import CaptureError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["QUANTIZATIONS", "quantized_linear"]

QUANTIZATIONS = ("none", "bnb.nf4", "bnb.nf4-dq", "bnb.fp4", "bnb.fp4-dq", "bnb.int8-training")
"""lit-gpt's names of that time; ``dq`` quantizes the quantization constants too."""


@contextmanager
def quantized_linear(quant: str, *, matmul_of_2023: bool = False, cast_inputs: bool = False) -> Iterator[None]:
    """Replace ``torch.nn.Linear`` until the end of the block.

    Parameters
    ----------
    quant
        One of `QUANTIZATIONS`.
    matmul_of_2023
        Let 4-bit layers compute as bitsandbytes 0.41 did.
    cast_inputs
        Let quantized layers take autocast's dtype, and so return it.
    """
    if quant == "none":
        yield
        return
    replacement = _linear_class(quant, matmul_of_2023=matmul_of_2023)
    if cast_inputs:
        replacement = _casting(replacement)
    plain = torch.nn.Linear
    torch.nn.Linear = replacement  # type: ignore[misc]
    try:
        yield
    finally:
        torch.nn.Linear = plain  # type: ignore[misc]


def _linear_class(quant: str, *, matmul_of_2023: bool) -> type[torch.nn.Linear]:
    try:
        import bitsandbytes
    except ImportError as error:
        raise CaptureError(f"--quant {quant} needs bitsandbytes: pip install 'memprof[capture]' ({error})") from None
    kind, _, double = quant.removeprefix("bnb.").partition("-")
    if kind == "int8":
        base: Any = bitsandbytes.nn.Linear8bitLt
        # float16 weights stay and are quantized at every forward; 6.0 is the outlier threshold: the defaults of
        # lightning.fabric's BitsandbytesPrecision for "int8-training", which came out of lit-gpt.
        options: dict[str, Any] = {"has_fp16_weights": True, "threshold": 6.0}
    else:
        base = bitsandbytes.nn.Linear4bit
        if matmul_of_2023:
            from memprof.recipes.bitsandbytes_2023 import Linear4bit2023

            base = Linear4bit2023
        options = {"quant_type": kind, "compress_statistics": bool(double)}

    class QuantizedLinear(base):  # type: ignore[misc]  # known when bitsandbytes is
        # A class instead of a partial: lit-gpt's code asks isinstance(layer, torch.nn.Linear).
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **options, **named)

    return QuantizedLinear


def _casting(base: Any) -> type[torch.nn.Linear]:
    class CastingLinear(base):  # type: ignore[misc]  # known when bitsandbytes is
        # bitsandbytes casts a result to the dtype of the input, which autocast does not touch: cast the input first.
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            kind = x.device.type
            if torch.is_autocast_enabled(kind):
                x = x.to(torch.get_autocast_dtype(kind))
            result: torch.Tensor = super().forward(x)
            return result

    return CastingLinear
