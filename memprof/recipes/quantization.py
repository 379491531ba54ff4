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
def quantized_linear(quant: str) -> Iterator[None]:
    """Replace ``torch.nn.Linear`` by the class for `quant` (one of `QUANTIZATIONS`) until the end of the block."""
    if quant == "none":
        yield
        return
    replacement = _linear_class(quant)
    plain = torch.nn.Linear
    torch.nn.Linear = replacement  # type: ignore[misc]
    try:
        yield
    finally:
        torch.nn.Linear = plain  # type: ignore[misc]


def _linear_class(quant: str) -> type[torch.nn.Linear]:
    try:
        import bitsandbytes
    except ImportError as error:
        raise CaptureError(f"--quant {quant} needs bitsandbytes: pip install 'memprof[capture]' ({error})") from None
    kind, _, double = quant.removeprefix("bnb.").partition("-")
    bases: dict[str, Any] = {"int8": bitsandbytes.nn.Linear8bitLt}
    base = bases.get(kind, bitsandbytes.nn.Linear4bit)
    if kind == "int8":
        # float16 weights stay and are quantized at every forward; 6.0 is the outlier threshold: the defaults of
        # lightning.fabric's BitsandbytesPrecision for "int8-training", which came out of lit-gpt.
        options: dict[str, Any] = {"has_fp16_weights": True, "threshold": 6.0}
    else:
        options = {"quant_type": kind, "compress_statistics": bool(double)}

    class QuantizedLinear(base):  # type: ignore[misc, valid-type]  # known when bitsandbytes is
        # A class instead of a partial: lit-gpt's code asks isinstance(layer, torch.nn.Linear).
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **options, **named)

    return QuantizedLinear
