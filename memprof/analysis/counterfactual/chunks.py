"""The output layer and the loss of a step, chunk by chunk: at which events each chunk is computed, and taken back."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from memprof.categories.category import Category

if TYPE_CHECKING:
    from memprof.analysis.findings.view import Mask, View

__all__ = ["Chunk", "Span", "chunks_of", "of_head", "wide"]

LOG_SOFTMAX = "aten::_log_softmax"
LOG_SOFTMAX_BACKWARD = "aten::_log_softmax_backward_data"
LOSS_BACKWARD = ("aten::nll_loss_backward", "aten::nll_loss2d_backward")
"""What ``cross_entropy`` is made of (aten/src/ATen/native/LossNLL.cpp): its first op forward, and backward."""


class Span(NamedTuple):
    """Events from `begin` up to but not including `end`."""

    begin: float
    end: float

    def has(self, time: float) -> bool:
        """Tell whether a moment lies within."""
        return self.begin <= time < self.end

    def part(self, number: int, of: int) -> Span:
        """Return one of `of` equal parts, counted from 0."""
        length = (self.end - self.begin) / of
        return Span(self.begin + number * length, self.begin + (number + 1) * length)

    def moved(self, time: float, to: Span) -> float:
        """Return the moment in `to` that lies as `time` does in this span."""
        return to.begin + (time - self.begin) / (self.end - self.begin) * (to.end - to.begin)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """So many tokens of every sample, for which the output layer runs once."""

    tokens: int
    head: Span
    loss: Span
    loss_backward: Span
    head_backward: Span

    @property
    def spans(self) -> tuple[Span, ...]:
        """All four, in the order of time."""
        return (self.head, self.loss, self.loss_backward, self.head_backward)


def chunks_of(view: View) -> tuple[tuple[Chunk, ...], ...] | None:
    """Return the chunks of each step in the order of forward; None where a step's order of things is another one.

    Expected is: the output layer chunk by chunk, then the loss chunk by chunk; backward the loss and then the output
    layer, each from the last chunk to the first.
    """
    broad, head = wide(view), of_head(view)
    forward, backward = view.born_in("forward"), view.born_in("backward")
    parts = {
        "logits": forward & view.text("finer", {"logits"}),
        "losses": forward & view.text("op", {LOG_SOFTMAX}) & broad,
        "undone": backward & view.text("op", LOSS_BACKWARD) & broad,
        "gradients": backward & view.text("op", {LOG_SOFTMAX_BACKWARD}) & broad,
        "head": forward & head,
        "head_backward": backward & head,
        "backward": backward,
    }
    order = np.argsort(view.account.replay.allocations.born, kind="stable")
    steps = view.account.classification.step[order]
    in_order = {name: order[mask[order]] for name, mask in parts.items()}
    found = []
    for step in np.unique(steps[(forward & head)[order]]).tolist():
        own = view.account.classification.step == step
        chunks = _chunks(view, {name: rows[own[rows]].tolist() for name, rows in in_order.items()})
        if chunks is None:
            return None
        found.append(chunks)
    return tuple(found) or None


def of_head(view: View) -> Mask:
    """Tell what the modules that made the logits have allocated."""
    return view.text("module", view.texts("module", view.text("finer", {"logits"})))


def wide(view: View) -> Mask:
    """Tell which allocations are as wide as the vocabulary; its size is the last dimension of the logits."""
    named = view.text("finer", {"logits"})
    widths = {text.rpartition(",")[2] for text in view.texts("shape", named)}
    flowing = ~view.of(Category.WEIGHTS, Category.WEIGHT_CASTS, Category.DEQUANTIZED, Category.OPTIMIZER_STATE)
    return flowing & view.text("shape", lambda text: "," in text and text.rpartition(",")[2] in widths)


def _chunks(view: View, rows: dict[str, list[int]]) -> tuple[Chunk, ...] | None:
    born, known = view.account.replay.allocations.born, view.account.classification
    logits, losses, undone, head = (rows[name] for name in ("logits", "losses", "undone", "head"))
    if not len(logits) == len(losses) == len(undone) == len(rows["gradients"]) or not logits:
        return None
    head_backward = [row for row in rows["head_backward"] if born[row] > born[undone[-1]]]

    def kind(row: int) -> tuple[int, int, int]:
        return int(known.op[row]), int(known.dtype[row]), int(known.parameter[row])

    def after(row: int) -> int:
        later = born[born > born[row]]
        return int(later.min()) if len(later) else len(view.account.device.events)

    begins = [0, *(int(born[row]) for row in logits[:-1])]
    starts = [[min((int(born[row]) for row in head if born[row] > begin), default=begin) for begin in begins]]
    starts += [[int(born[row]) for row in members] for members in (losses, undone)]
    # Backward, a chunk begins with what is made once for each.
    counts = Counter(map(kind, head_backward))
    first = [each for each in counts if counts[each] == len(logits)] or list(counts)
    starts.append([int(born[row]) for row in head_backward if kind(row) == first[0]][: len(logits)])
    if any(len(each) != len(logits) for each in starts):
        return None
    after_last = [row for row in head_backward if born[row] >= starts[3][-1]][: len(head_backward) // len(logits)]
    ends = [after(head[-1]), int(born[rows["backward"][0]]), after(rows["gradients"][-1]), after(after_last[-1])]
    spans = [
        [Span(*pair) for pair in zip(begins, [*begins[1:], end], strict=True)]
        for begins, end in zip(starts, ends, strict=True)
    ]
    shapes = [view.shape(row) or () for row in logits]
    if any(len(shape) < 2 or not shape[-2] for shape in shapes):
        return None
    return tuple(
        Chunk(
            tokens=shapes[i][-2],
            head=spans[0][i],
            loss=spans[1][i],
            loss_backward=spans[2][-1 - i],
            head_backward=spans[3][-1 - i],
        )
        for i in range(len(logits))
    )
