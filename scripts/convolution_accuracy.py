# ruff: noqa: INP001  # a script, not a package
"""Say how good the guess at a convolution's workspace is where it was not recorded; write docs/convolutions.md.

    python scripts/convolution_accuracy.py

Shapes, or one batch size of each shape, or all that were drawn at random, are held out of the table, and guessed from
the rest.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from convolution_grid import drawn

from memprof.simulate.convolution_rule import Neighbours
from memprof.simulate.convolutions import COLUMNS, DETERMINISTIC, Pass, convolution_of, load, plain, row_of

if TYPE_CHECKING:
    Held = np.ndarray[Any, Any]
    """Which rows of the table are held out."""

PAGE = Path(__file__).parents[1] / "docs/convolutions.md"
NETWORKS = "## Whole networks held out"
"""The heading of what ``convolution_networks_accuracy.py`` writes, and what follows it."""
HISTORY = (
    "49,619 of them were there first, recorded or asked for. Nearly all others were asked for on an H200 (torch",
    "2.11.0+cu130, driver 580.159.04) on 2026-12-01 by `scripts/convolution_models.py`, in three parts. Some of each",
    "were run too: how many of the workspaces that were recorded then were as answered? How many of 9,000 workspaces",
    "that were drawn from a part before it came into the table did the guess of then meet to the byte, and within 1",
    "%? And how many convolutions take the same with deterministic engines?",
    "",
    "| what was asked | convolutions | run too | as answered | to the byte | within 1 % | deterministic the same |",
    "|---|---:|---:|---:|---:|---:|---:|",
    "| networks of `convolution_zoo.py`, the most common | 78,800 | 696 | 2,088 of 2,088 | 65.3% | 77.9% | 95.6% |",
    "| more of these | 84,140 | 720 | 2,159 of 2,160 | 71.4% | 81.1% | 95.5% |",
    "| LoRA, patches, ResNets (`convolution_ordinary.py`) | 66,000 | 360 | 1,080 of 1,080 | 56.4% | 74.7% | 82.5% |",
    "",
    "The worst of the last part were gradients of weight of LoRA's grouped convolutions: 9.5 % to the byte.",
    "",
)
"""How good the guess was for what came into the table, before it came."""
LORA = 64
"""Inputs of a group up to which a convolution of one dimension and kernel 1 counts as LoRA's."""
MOST = 3000
"""Convolutions that are guessed of each kind."""
WORDS = {
    Pass.FORWARD: "output",
    Pass.INPUT_GRADIENT: "gradient of the input",
    Pass.WEIGHT_GRADIENT: "gradient of weight",
}


def rows(name: str, out: Held) -> list[str]:
    """Guess what is held out from the rest, and compare."""
    known_rows, known_workspaces = usual()
    neighbours = Neighbours(known_rows[~out], known_workspaces[~out])
    places = np.flatnonzero(out).tolist()
    asked = random.Random(0).sample(places, min(MOST, len(places)))  # noqa: S311  # no secret
    lines = []
    for which in Pass:
        errors, wrong, all_bytes, exact = [], 0, 0, 0
        for place in asked:
            truth = int(known_workspaces[place, which])
            if truth < 0:
                continue
            convolution = convolution_of(known_rows[place].tolist())
            guess = neighbours.estimate(convolution, which)
            exact += guess == truth
            wrong += abs(guess - truth)
            all_bytes += truth
            errors.append(abs(guess - truth) / (sum(convolution.elements()) * convolution.item))
        errors.sort()
        count = len(errors)
        within = sum(error <= 0.01 for error in errors)
        lines.append(
            f"| {name} | {WORDS[which]} | {count:,} | {exact / count:.1%} | {within / count:.1%} "
            f"| {errors[int(0.9 * count)]:.1%} | {errors[-1]:.0%} | {wrong / all_bytes:.1%} |"
        )
    return lines


def usual() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return the rows and workspaces of the table but those for a choice of engines."""
    chosen = load().rows[:, COLUMNS.index("choice")] == 0
    return load().rows[chosen], load().workspaces[chosen]


def _shapes() -> tuple[int, Held]:
    """Return how many shapes there are, and which of them each row has."""
    sizes = usual()[0][:, : COLUMNS.index("channels_last")]
    found, shape_of = np.unique(sizes, axis=0, return_inverse=True)
    return len(found), shape_of.ravel()


def held_out_shapes() -> Held:
    """Hold a tenth of the shapes out, with all batches, dtypes and layouts."""
    count, shape_of = _shapes()
    return np.isin(shape_of, np.random.default_rng(1).permutation(count)[: count // 10])


def held_out_batches() -> Held:
    """Hold one batch size of each shape out that has more than two."""
    _, shape_of = _shapes()
    batches = usual()[0][:, COLUMNS.index("batch")]
    draw = random.Random(2)  # noqa: S311  # no secret
    out = np.zeros(len(batches), dtype=bool)
    for places in np.split(np.argsort(shape_of, kind="stable"), np.cumsum(np.bincount(shape_of))[:-1]):
        there = sorted(set(batches[places].tolist()))
        if len(there) > 2:
            out[places[batches[places] == draw.choice(there)]] = True
    return out


def held_out_lengths() -> Held:
    """Hold an eighth of the lengths out that each of LoRA's convolutions has (one dimension, kernel 1, few inputs)."""
    known = usual()[0].astype(np.int64)
    at = {name: number for number, name in enumerate(COLUMNS)}
    each = known[:, at["inputs"]] // known[:, at["groups"]]
    flat = (known[:, at["dims"]] == 1) & (known[:, at["kernel2"]] == 1) & (each <= LORA) & (known[:, at["groups"]] <= 3)
    lengths: dict[tuple[int, ...], set[int]] = {}
    rows = known[:, [at[name] for name in ("inputs", "outputs", "groups", "spatial2")]].tolist()
    for place in np.flatnonzero(flat).tolist():
        lengths.setdefault(tuple(rows[place][:3]), set()).add(rows[place][3])
    draw = random.Random(5)  # noqa: S311  # no secret
    chosen = {key: draw.sample(sorted(there), len(there) // 8) for key, there in lengths.items()}
    out = np.zeros(len(known), dtype=bool)
    for place in np.flatnonzero(flat).tolist():
        out[place] = rows[place][3] in chosen[tuple(rows[place][:3])]
    return out


def held_out_draws() -> Held:
    """Hold out what `convolution_grid` drew at random; what is left is what networks are made of."""
    random_ones = {row_of(plain(each, Pass.FORWARD)[0]) for each in drawn()}
    return np.array([tuple(row) in random_ones for row in usual()[0].tolist()])


def main() -> None:
    """Write the page."""
    lines = rows("shapes held out", held_out_shapes()) + rows("batch sizes held out", held_out_batches())
    lines += rows("lengths of LoRA's held out", held_out_lengths())
    lines += rows("drawn at random, all held out", held_out_draws())
    usual_ones = usual()[0]
    deterministic = np.count_nonzero(load().same & DETERMINISTIC) + np.count_nonzero(
        load().rows[:, COLUMNS.index("choice")] == DETERMINISTIC
    )
    head = [
        "# Workspaces of convolutions",
        "",
        f"The table has {len(usual_ones):,} convolutions (`memprof/simulate/convolutions.py` says from where). Of",
        f"{deterministic:,} it has what deterministic engines take too. What is in it is looked up. What is not in it",
        "is guessed from its nearest neighbours (`memprof/simulate/convolution_rule.py`), and is a caveat of the run,",
        "with its bytes.",
        "",
        *HISTORY,
        "How good the guess is, by `python scripts/convolution_accuracy.py`: the share that is met to the byte; the",
        "share that is within 1 % of the bytes of input, output and weight together; the error in nine of ten, and the",
        "largest, as a part of the same; and all errors, as a part of all workspaces.",
        "",
        "| what was asked | workspace for | count | to the byte | within 1 % | nine of ten | largest | in all |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    before = PAGE.read_text(encoding="utf-8")
    rest = before[before.index(NETWORKS) :] if NETWORKS in before else ""
    PAGE.write_text("\n".join([*head, *lines]) + "\n" + (f"\n{rest}" if rest else ""), encoding="utf-8")


if __name__ == "__main__":
    main()
