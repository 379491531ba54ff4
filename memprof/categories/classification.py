"""The verdict on every allocation of one device, as columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["PHASES", "Classification", "TextTable"]

PHASES = ("init", "forward", "backward", "optimizer", "eval", "between")
"""What a training loop does, in the order of a step; ``between`` is everything outside the named ones."""


class TextTable:
    """Interns texts while a classification is built."""

    def __init__(self, texts: tuple[str, ...] = ()) -> None:
        self._rows = {text: row for row, text in enumerate(texts)}
        self._texts = list(texts)

    def row(self, text: str) -> int:
        """Return the row of `text`, adding it if it is new."""
        row = self._rows.setdefault(text, len(self._texts))
        if row == len(self._texts):
            self._texts.append(text)
        return row

    def freeze(self) -> tuple[str, ...]:
        """Return all texts, in the order of their rows."""
        return tuple(self._texts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Classification:
    """Category and cause of each allocation; row i is about row i of `Allocations`.

    Text columns point into `texts`; -1 where nothing is known.
    """

    by: str
    """``labels`` (facts of the capture), ``rules`` (verdicts about a file without labels) or ``light`` (facts where the
    capture has them, else verdicts)."""
    texts: tuple[str, ...]
    category: NDArray[np.uint8]
    """`Category.code`."""
    finer: NDArray[np.int32]
    phase: NDArray[np.int32]
    step: NDArray[np.int32]
    """Step number; -1 before the first step or where not known."""
    module: NDArray[np.int32]
    op: NDArray[np.int32]
    dtype: NDArray[np.int32]
    shape: NDArray[np.int32]
    parameter: NDArray[np.int32]
    reason: NDArray[np.int32]
    """Why the rules decided so; -1 throughout where labels did."""
    saved: NDArray[np.bool_]

    def __len__(self) -> int:
        """Count the allocations."""
        return len(self.category)

    def text(self, column: NDArray[np.int32], row: int) -> str | None:
        """Return the text of `column` for allocation `row`, or None."""
        index = int(column[row])
        return None if index < 0 else self.texts[index]


def empty_columns(rows: int) -> dict[str, NDArray[np.int32]]:
    """Return the text and step columns of a classification in which nothing is known."""
    names = ("finer", "phase", "step", "module", "op", "dtype", "shape", "parameter", "reason")
    return {name: np.full(rows, -1, np.int32) for name in names}
