"""What each fix of a sweep does to the allocations of a run without it. The runs are lit-gpt's, with labels."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

from memprof.analysis.counterfactual.casts import activated, casts, in_float32_norms, sources_of
from memprof.analysis.counterfactual.chunks import (
    LOG_SOFTMAX,
    LOG_SOFTMAX_BACKWARD,
    LOSS_BACKWARD,
    Span,
    chunks_of,
    wide,
)
from memprof.analysis.counterfactual.lives import lives_of
from memprof.analysis.findings.view import HALF
from memprof.categories.category import Category

if TYPE_CHECKING:
    from collections.abc import Callable

    from memprof.analysis.counterfactual.lives import Lives
    from memprof.analysis.findings.view import Mask, View

__all__ = ["PREDICTIONS", "predict"]

FEW = 32
"""Tokens at a time in the fix ``lm-head-chunk-32``."""


def predict(fix: str, view: View) -> int | None:
    """Return the allocated peak that a run would have with a fix; None where the run does not tell.

    Parameters
    ----------
    fix
        One of `PREDICTIONS`.
    view
        The run without the fix.
    """
    if not view.labelled:
        return None
    edited = PREDICTIONS[fix](view)
    return None if edited is None else edited.peak()


def _autocast_output(view: View) -> Lives | None:
    """Let quantized layers return half precision, and what is computed from it be so up to where autocast wants more.

    Of that is known what is cast to half anyway, unless autograd saved it in float32, and what an activation function
    makes of a layer's output.
    """
    lives, cast = lives_of(view), casts(view) & ~view.of(Category.DEQUANTIZED)
    if not np.any(view.of(Category.WEIGHT_CASTS)):
        return lives  # without autocast, which casts weights, the fix does nothing
    half, single = view.text("dtype", HALF), view.text("dtype", {"float32"})
    inside = view.text("module", view.quantized_modules)
    outputs = cast & single & inside & view.born_in("forward")
    if not np.any(outputs):
        return lives
    if view.config.get("fabric_output"):
        return None  # the loss is then outside of autocast, and other casts are made
    down = cast & ((half & view.born_in("forward")) | (inside & view.born_in("backward")))
    fixed = view.account.classification.saved & single
    # A gradient that lives on after it was cast is that of the residual stream, which stays in float32.
    freed, soon = view.account.replay.allocations.freed, view.soon_after(2)
    lives_on = single & view.born_in("backward")
    sources = {
        row: source
        for row, source in sources_of(view, casts(view)).items()
        if outputs[row] or (down[row] and not fixed[source] and not (lives_on[source] and freed[source] > soon[row]))
    }
    touched = np.zeros(len(lives), np.bool_)
    touched[[row for pair in sources.items() for row in pair]] = True
    touched[[row for row, source in activated(view).items() if touched[source]]] = True
    requested = np.where(touched & single, lives.requested // 2, lives.requested)
    lives = _united(lives.having(requested=requested), sources)
    return _half_loss(view, lives) if np.any(outputs & wide(view)) else lives


def _half_loss(view: View, lives: Lives) -> Lives | None:
    """Take the loss of half-precision logits, as autocast does: the softmax is half, and a float32 copy goes on.

    ``cross_entropy`` computes the softmax in the dtype of the logits (aten/src/ATen/native/LossNLL.cpp); autocast wants
    float32 of ``nll_loss`` (aten/src/ATen/autocast_mode.h).
    """
    steps = chunks_of(view)
    if steps is None:
        return None
    requested, freed, born = lives.requested.copy(), lives.freed.copy(), lives.born
    added: list[tuple[float, float, int]] = []
    broad = wide(view) & view.text("dtype", {"float32"})
    forward = np.flatnonzero(broad & view.text("op", {LOG_SOFTMAX}))
    undone = np.flatnonzero(broad & view.text("op", LOSS_BACKWARD))
    gradients = np.flatnonzero(broad & view.text("op", {LOG_SOFTMAX_BACKWARD}))
    for chunk in (chunk for chunks in steps for chunk in chunks):
        own = [
            [row for row in rows.tolist() if span.has(born[row])]
            for rows, span in ((forward, chunk.loss), (undone, chunk.loss_backward), (gradients, chunk.loss_backward))
        ]
        if any(len(rows) != 1 for rows in own):
            return None
        softmax, loss, gradient = (rows[0] for rows in own)
        whole = int(view.account.replay.allocations.requested[softmax])
        requested[softmax] = whole // 2
        requested[gradient] = whole // 2
        added.append((born[softmax] + 0.5, born[loss] + 0.5, whole))
        added.append((born[gradient] - 0.5, born[gradient] + 0.5, whole // 2))
        freed[loss] = born[gradient] - 0.4
    return lives.having(requested=requested, freed=freed).more(added)


def _bf16_true(view: View) -> Lives:
    """Halve what is in float32, but for quantization's own numbers; no cast is left: source and copy are one."""
    lives = lives_of(view)
    single = view.text("dtype", {"float32"}) & ~view.text("finer", {"quant_state"}) & ~in_float32_norms(view)
    lives = lives.having(requested=np.where(single, lives.requested // 2, lives.requested))
    return _united(lives, sources_of(view, casts(view))).without(view.of(Category.WEIGHT_CASTS))


def _united(lives: Lives, sources: dict[int, int]) -> Lives:
    """Let casts be their sources, which then live as long as the last of the two. Rows keep their numbers."""
    freed, requested = lives.freed.copy(), lives.requested.copy()
    roots: dict[int, int] = {}
    for cast, source in sources.items():  # in the order of birth
        root = roots.get(source, source)
        roots[cast] = root
        freed[root] = max(freed[root], freed[cast])
        requested[cast] = 0
    return lives.having(freed=freed, requested=requested)


def _half_frozen(view: View) -> Lives:
    """Halve the frozen weights that autocast casts, and make no casts."""
    lives = lives_of(view)
    copies = view.of(Category.WEIGHT_CASTS) & view.text("finer", {"base"}) & view.text("dtype", HALF)
    copies &= ~view.text("module", view.quantized_modules)
    stored = view.of(Category.WEIGHTS) & view.text("parameter", view.texts("parameter", copies))
    stored &= view.text("dtype", {"float32"})
    return lives.having(requested=np.where(stored, lives.requested // 2, lives.requested)).without(copies)


def _checkpointed_loss(view: View) -> Lives | None:
    """Compute output layer and loss of one chunk after the other and drop them; in backward compute each anew."""
    steps = chunks_of(view)
    if steps is None:
        return None
    lives = lives_of(view)
    casted, broad = view.of(Category.WEIGHT_CASTS), wide(view)
    moved = np.zeros(len(lives), np.bool_)
    freed = lives.freed.copy()
    added: list[tuple[float, float, int]] = []
    for chunks in steps:
        for chunk in chunks:
            rows = _born_in(lives, chunk.spans)
            moved[rows] = True
            for order, room in ((chunk.spans[:2], chunk.head), (chunk.spans, chunk.loss_backward)):
                parts = [(span, room.part(number, len(order))) for number, span in enumerate(order)]
                for row in rows.tolist():
                    born = _moved(lives.born[row], parts)
                    if born is None:
                        continue
                    end = _moved(lives.freed[row], parts)
                    if end is None and lives.born[row] < chunk.loss.end:
                        # Nothing that forward leaves is kept; recomputed logits go when the function returns.
                        end = parts[1][1].end
                    if casted[row] and len(order) == 2:
                        end = parts[0][1].end
                    if broad[row] and end is None:
                        # The gradient of the last chunk goes when it has become that of the part that was copied.
                        between = chunk.loss_backward.end <= lives.freed[row] < chunk.head_backward.begin
                        end = parts[3][1].begin if between else room.end
                    added.append((born, lives.freed[row] if end is None else end, int(lives.requested[row])))
        # What the output layer reads is kept for computing it anew.
        first, last = chunks[0], chunks[-1]
        reads = view.born_in("forward") & (lives.born < first.head.begin) & (lives.freed >= last.head.begin)
        reads &= lives.freed < last.loss_backward.begin
        reads &= lives.requested >= int(lives.requested[reads].max(initial=0))
        freed[reads] = first.loss_backward.end
    # What copies a part of the logits, and its gradient, has nothing left to copy.
    return lives.having(freed=freed).without(moved | (broad & _in_training(view))).more(added)


def _small_chunks(view: View) -> Lives | None:
    """Cut each chunk of tokens into smaller ones; what has the size of a weight is made once for each of them."""
    steps = chunks_of(view)
    if steps is None:
        return None
    lives, known = lives_of(view), view.account.classification
    whole = view.of(Category.DEQUANTIZED, Category.WEIGHT_CASTS) | (known.parameter >= 0)
    once = view.of(Category.WORKSPACE)
    broad = wide(view)
    moved = np.zeros(len(lives), np.bool_)
    added: list[tuple[float, float, int]] = []
    for chunk in (chunk for chunks in steps for chunk in chunks):
        count = -(-chunk.tokens // FEW)
        rows = _born_in(lives, chunk.spans)
        rows = rows[~once[rows]]
        moved[rows] = True
        for number in range(count):
            # Backward goes from the last to the first.
            parts = [
                (span, span.part(number if span.begin < chunk.loss.end else count - 1 - number, count))
                for span in chunk.spans
            ]
            for row in rows.tolist():
                size = int(lives.requested[row])
                if not whole[row]:
                    size = _share(size, _tokens(view, row) if broad[row] else chunk.tokens, number)
                born, end = _moved(lives.born[row], parts), _moved(lives.freed[row], parts)
                assert born is not None  # it is in one of the spans
                between = chunk.loss_backward.end <= lives.freed[row] < chunk.head_backward.begin
                if broad[row] and between and number < count - 1:
                    # Only of the last one a part was copied; the gradient of the others is the output layer's own.
                    end = _moved(chunk.head_backward.begin + 1.5, parts)
                added.append((born, lives.freed[row] if end is None else end, size))
    # What copies a part of the last chunk, and its gradient, is of the last small one.
    requested = lives.requested.copy()
    for row in np.flatnonzero(broad & _in_training(view) & ~moved).tolist():
        tokens = _tokens(view, row)
        requested[row] = _share(int(requested[row]), tokens, -(-tokens // FEW) - 1)
    return lives.having(requested=requested).without(moved).more(added)


def _tokens(view: View, row: int) -> int:
    """Return how many tokens of each sample are in something as wide as the vocabulary."""
    return prod((view.shape(row) or (1,))[:-1]) // (view.samples or 1) or 1


def _share(size: int, tokens: int, number: int) -> int:
    """Return the part of so many tokens' bytes that small chunk `number` has."""
    return size * max(0, min(FEW, tokens - number * FEW)) // tokens


def _in_training(view: View) -> Mask:
    return view.born_in("forward") | view.born_in("backward")


def _born_in(lives: Lives, spans: tuple[Span, ...]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    inside = np.zeros(len(lives), np.bool_)
    for span in spans:
        inside |= (lives.born >= span.begin) & (lives.born < span.end)
    return np.flatnonzero(inside)


def _moved(time: float, parts: list[tuple[Span, Span]]) -> float | None:
    """Return where a moment goes, if it is in one of the spans."""
    for span, to in parts:
        if span.has(time):
            return span.moved(time, to)
    return None


PREDICTIONS: dict[str, Callable[[View], Lives | None]] = {
    "autocast-output": _autocast_output,
    "bf16-true": _bf16_true,
    "half-frozen-weights": _half_frozen,
    "checkpointed-loss": _checkpointed_loss,
    "lm-head-chunk-32": _small_chunks,
}
"""By the fix's name in `memprof.recipes.fixes`."""
