"""What a fix would save, told from a run without it: the recorded allocations, with those of the cause gone.

The runs are lit-gpt's, under autocast, with labels. A prediction is a peak: sizes and lifetimes of the allocations are
changed as the fix changes them, and the highest sum is taken anew, since the peak may move. Where a quantized run is to
behave as a plain one, the plain run with the same settings (its *twin*) shows how that behaves, and only the weights
are the quantized run's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from memprof.analysis.account import open_account
from memprof.analysis.findings.view import HALF, TO_COPY, view_of
from memprof.categories.category import Category

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from memprof.analysis.findings.view import Mask, Rows, View
    from memprof.trace.model import Trace

__all__ = ["PREDICTIONS", "Saving", "measure_savings", "predicted_peak"]

CHUNK = 32
"""Tokens at a time in the fix ``lm-head-chunk-32``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """One fix on one run: three allocated peaks, in bytes."""

    fix: str
    config: Mapping[str, Any]
    """Of the run without the fix; with its source and card."""
    before: int
    predicted: int | None
    """From the run without the fix; None where that does not tell."""
    after: int
    """Of the run with the fix."""


def measure_savings(traces: Sequence[Trace]) -> tuple[Saving, ...]:
    """Pair each run that has a fix with the same run without it, and predict what it came to.

    Runs without their counterpart, those of other recipes and those that ran out of memory are passed over.
    """
    runs = {}
    for trace in traces:
        made_by = trace.made_by or {}
        config = made_by.get("config")
        if isinstance(config, dict) and trace.devices and made_by.get("status") == "ok":
            where = {"source": trace.source.value, "card": (trace.environment or {}).get("card")}
            full = {**where, "recipe": made_by.get("recipe"), **config}
            runs[_key(full)] = (full, trace)
    found = []
    for config, trace in runs.values():
        fix = config.get("fix")
        base = {name: value for name, value in config.items() if name != "fix"}
        if fix not in PREDICTIONS or _key(base) not in runs:
            continue
        own = view_of(open_account(runs[_key(base)][1], runs[_key(base)][1].devices[0]))
        plain = runs.get(_key({**base, "quant": "none"}))
        twin = None if plain is None else view_of(open_account(plain[1], plain[1].devices[0]))
        after = view_of(open_account(trace, trace.devices[0])).peak
        predicted = predicted_peak(fix, own, twin)
        found.append(Saving(fix=fix, config=base, before=own.peak, predicted=predicted, after=after))
    order = list(PREDICTIONS)
    return tuple(sorted(found, key=lambda each: (order.index(each.fix), str(each.config["quant"]), each.config["mbs"])))


def _key(config: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, repr(value)) for name, value in config.items()))


def predicted_peak(fix: str, run: View, twin: View | None) -> int | None:
    """Return the peak in bytes that `run` would have with a fix; None where the files do not tell.

    Parameters
    ----------
    fix
        One of `PREDICTIONS`.
    run
        The run without the fix.
    twin
        The same run without quantization; None if `run` is that itself, or there is none.
    """
    quantized = bool(run.quantized_modules)
    if not run.labelled or (quantized and twin is None and fix in NEED_TWIN):
        return None
    return PREDICTIONS[fix](run, twin if quantized else None)


def _autocast_output(run: View, twin: View | None) -> int:
    if twin is None:
        return run.peak
    sizes = np.where(_frozen_casts(twin), 0, twin.size)
    return _with_weights_of(run, run.size, twin, sizes)


def _bf16_true(run: View, twin: View | None) -> int:
    if twin is None:
        return int(_timeline(run, _in_bf16(run)).max())
    return _with_weights_of(run, _in_bf16(run), twin, _in_bf16(twin))


def _half_frozen(run: View, twin: View | None) -> int:  # noqa: ARG001 - all predictions are called alike
    casts = _frozen_casts(run)
    stored = run.of(Category.WEIGHTS) & run.text("parameter", run.texts("parameter", casts))
    sizes = np.where(casts, 0, run.size)
    sizes[stored & run.text("dtype", {"float32"})] //= 2
    return int(_timeline(run, sizes).max())


def _checkpointed_loss(run: View, twin: View | None) -> int:  # noqa: ARG001
    wide = _wide(run)
    flowing = wide & (run.of(Category.GRADIENTS) | run.born_in("backward"))
    kept = (wide & ~flowing) | (_frozen_casts(run) & _of_head(run))
    # One chunk's share: the largest of each kind that autograd saves, and its gradients at the peak.
    known = run.account.classification
    chunk: dict[tuple[bool, int, int], int] = {}
    for row in np.flatnonzero((kept & known.saved) | (flowing & run.live)).tolist():
        kind = (bool(flowing[row]), int(known.op[row]), int(known.dtype[row]))
        chunk[kind] = max(chunk.get(kind, 0), int(run.size[row]))
    rest = _timeline(run, np.where(kept | flowing, 0, run.size))
    first = int(rest[run.event + 1]) + sum(chunk.values())
    return max(first, int(rest.max()))


def _small_chunks(run: View, twin: View | None) -> int:  # noqa: ARG001
    seq, mbs = int(run.config["seq"]), int(run.config["mbs"])
    before = int(run.config["lm_head_chunk_size"]) or seq
    wide = _wide(run) & (run.of(Category.GRADIENTS) | run.born_in("backward"))
    sizes = run.size.copy()
    for row in np.flatnonzero(wide).tolist():
        *rows, _ = run.shape(row) or (1, 1)
        sizes[row] = int(run.size[row]) * CHUNK * mbs // max(int(np.prod(rows)), CHUNK * mbs)
    sizes = np.where(_frozen_casts(run) & _of_head(run), sizes * -(-seq // CHUNK) // -(-seq // before), sizes)
    return int(_timeline(run, sizes).max())


NEED_TWIN = frozenset({"autocast-output", "bf16-true"})
PREDICTIONS: dict[str, Callable[[View, View | None], int]] = {
    "autocast-output": _autocast_output,
    "bf16-true": _bf16_true,
    "half-frozen-weights": _half_frozen,
    "checkpointed-loss": _checkpointed_loss,
    "lm-head-chunk-32": _small_chunks,
}
"""By the fix's name in `memprof.recipes.fixes`."""


def _timeline(view: View, sizes: Rows) -> Rows:
    """Return the bytes allocated before any and after each event, if allocations had `sizes`."""
    allocations = view.account.replay.allocations
    total = np.zeros(len(view.account.replay.allocated) + 1, np.int64)
    np.add.at(total, allocations.born + 1, sizes)
    np.add.at(total, allocations.freed + 1, -sizes)
    return np.cumsum(total)[:-1]


def _with_weights_of(run: View, own: Rows, twin: View, sizes: Rows) -> int:
    """Return the twin's peak with the weights of `run` in place of its own; both in the bytes that a fix leaves."""
    total = _timeline(twin, sizes)
    event = int(np.argmax(total)) - 1
    rows = twin.account.replay.allocations.live_at(event)
    theirs = int(sizes[rows][twin.of(Category.WEIGHTS)[rows]].sum())
    mine = int(own[run.live & run.of(Category.WEIGHTS)].sum())
    return int(total[event + 1]) - theirs + mine


def _in_bf16(view: View) -> Rows:
    """Return the sizes without autocast: no copies of weights, no float32 copies in forward, float32 halved.

    A half-precision copy that autograd saves stays: without autocast its source has that size, and is what is saved.
    """
    single = view.text("dtype", {"float32"})
    copies = view.text("op", {TO_COPY}) & single & ~view.text("module", view.quantized_modules)
    gone = view.of(Category.WEIGHT_CASTS) | (copies & (view.born_in("forward") | view.born_in("backward")))
    sizes: Rows = np.where(single & ~view.text("finer", {"quant_state"}), view.size // 2, view.size)
    return np.where(gone, 0, sizes)


def _frozen_casts(view: View) -> Mask:
    return view.of(Category.WEIGHT_CASTS) & view.text("finer", {"base"}) & view.text("dtype", HALF)


def _of_head(view: View) -> Mask:
    return view.text("module", view.texts("module", view.text("finer", {"logits"})))


def _wide(view: View) -> Mask:
    """Tell which allocations are as wide as the vocabulary; its size is the last dimension of the logits."""
    named = view.text("finer", {"logits"})
    widths = {text.rpartition(",")[2] for text in view.texts("shape", named)}
    flowing = ~view.of(Category.WEIGHTS, Category.WEIGHT_CASTS, Category.DEQUANTIZED, Category.OPTIMIZER_STATE)
    return flowing & view.text("shape", lambda text: "," in text and text.rpartition(",")[2] in widths)
