"""What outlier columns could take in bitsandbytes' 8-bit products: in a simulation there are none.

With a threshold, columns of the input that have a number as large are multiplied apart, in the input's own precision
(``MatMul8bitLt`` in ``bitsandbytes/autograd/_functions.py``; ``int8_vectorwise_quant`` in ``backends/cuda/ops.py`` and
``int8_mixed_scaled_mm`` in ``backends/default/ops.py``, 0.50.2). How many there are is up to the numbers. A caveat says
what it could matter if all columns were outliers and the input float32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    Note = Callable[[str, str, int], None]

__all__ = ["DURING", "KEPT", "OutlierColumns"]

DURING = "outlier columns of bitsandbytes are taken as none: at most this much more while one 8-bit product runs"
KEPT = "outlier columns of bitsandbytes are taken as none: at most this much more is kept for backward by all products"


class OutlierColumns:
    """Follows the native calls of a product: the input is quantized, then the product computed.

    Parameters
    ----------
    note
        Takes kind, words and bytes of a caveat.
    """

    def __init__(self, note: Note) -> None:
        self._note = note
        self._quantized: tuple[int, int] | None = None
        self._kept: dict[int, int] = {}
        """Bytes that the product of each weight, by its address, could keep."""

    def forget(self) -> None:
        """Begin anew, with nothing kept."""
        self._quantized = None
        self._kept.clear()

    def quantize(self, *args: Any) -> int:
        """Take the place of ``cint8_vector_quant(A, out, row_stats, threshold, rows, columns, stream)``."""
        threshold, rows, columns = (getattr(value, "value", value) for value in args[3:6])
        self._quantized = (int(rows), int(columns)) if threshold > 0 else None
        return 0

    def multiply(self, *args: Any) -> int:
        """Take the place of ``cigemmlt_32(context, m, n, k, A, B, C, rowscale, lda, ldb, ldc, stream)``.

        A are the weights, B the input.
        """
        if self._quantized is None:
            return 0
        weights, outputs = (int(getattr(args[place], "value", args[place]) or 0) for place in (4, 10))
        (rows, columns), self._quantized = self._quantized, None
        self._note("value", DURING, _during(rows, columns, outputs))
        # ``subA`` is kept by the product, the columns' numbers by the weight's state; a weight counts once.
        kept = rows * columns * 4 + columns * 8
        self._kept[weights] = max(kept, self._kept.get(weights, 0))
        self._note("value", KEPT, sum(self._kept.values()))
        return 0


def _during(rows: int, columns: int, outputs: int) -> int:
    """Return the bytes of one product besides what it keeps, at most.

    Finding the columns: which have one, their partial results of two bytes an element, indices. Then the columns of the
    weights as bytes and, twice, in float32. Then these in float32, they and the input's in half precision for the
    second product, its result, and the first one's in half precision.
    """
    finding = 2 * rows * columns + 9 * columns + (1 << 16)
    weights = outputs * columns * (1 + 4 + 4)
    adding = outputs * columns * (4 + 2) + rows * columns * 2 + rows * outputs * (4 + 2)
    return max(finding, weights, adding)
