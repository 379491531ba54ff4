# ruff: noqa: INP001  # a script, not a package
"""Say how good the guess at a convolution's workspace is where it was not recorded; write docs/convolutions.md.

    python scripts/convolution_accuracy.py

Shapes, or one batch size of each shape, or all that were drawn at random, are held out of the table, and guessed from
the rest.
"""

from __future__ import annotations

import random
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[1]))
from convolution_grid import drawn

from memprof.simulate.convolution_rule import Neighbours
from memprof.simulate.convolutions import Convolution, Pass, table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memprof.simulate.convolution_rule import Known

PAGE = Path(__file__).parents[1] / "docs/convolutions.md"
MOST = 3000
"""Convolutions that are guessed of each kind."""
WORDS = {
    Pass.FORWARD: "output",
    Pass.INPUT_GRADIENT: "gradient of the input",
    Pass.WEIGHT_GRADIENT: "gradient of weight",
}


def rows(name: str, asked: list[Known], known: Iterable[Known]) -> list[str]:
    """Guess and compare."""
    neighbours = Neighbours(known)
    asked = random.Random(0).sample(asked, min(MOST, len(asked)))  # noqa: S311  # no secret
    lines = []
    for which in Pass:
        errors, wrong, all_bytes, exact = [], 0, 0, 0
        for convolution, workspaces in asked:
            truth = workspaces[which]
            if truth is None:
                continue
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


def held_out_shapes() -> tuple[list[Known], list[Known]]:
    """Split the table by shape, a tenth of them held out, with all batches, dtypes and layouts."""
    shapes = _by_shape()
    names = list(shapes)
    random.Random(1).shuffle(names)  # noqa: S311  # no secret
    tenth = len(names) // 10
    return [e for name in names[:tenth] for e in shapes[name]], [e for name in names[tenth:] for e in shapes[name]]


def held_out_batches() -> tuple[list[Known], list[Known]]:
    """Split the table: one batch size of each shape is held out."""
    draw = random.Random(2)  # noqa: S311  # no secret
    asked: list[Known] = []
    kept: list[Known] = []
    for entries in _by_shape().values():
        batches = sorted({each.batch for each, _ in entries})
        out = draw.choice(batches) if len(batches) > 2 else None
        for entry in entries:
            (asked if entry[0].batch == out else kept).append(entry)
    return asked, kept


def _by_shape() -> dict[Convolution, list[Known]]:
    shapes: dict[Convolution, list[Known]] = defaultdict(list)
    for convolution, workspaces in table().items():
        shapes[replace(convolution, batch=0, dtype="", channels_last=False)].append((convolution, workspaces))
    return shapes


def held_out_draws() -> tuple[list[Known], list[Known]]:
    """Split the table: what `convolution_grid` drew at random, and what networks are made of."""
    random_ones = set(drawn())
    asked = [entry for entry in table().items() if entry[0] in random_ones]
    return asked, [entry for entry in table().items() if entry[0] not in random_ones]


def main() -> None:
    """Write the page."""
    lines = rows("shapes held out", *held_out_shapes()) + rows("batch sizes held out", *held_out_batches())
    lines += rows("drawn at random, all held out", *held_out_draws())
    head = [
        "# Workspaces of convolutions",
        "",
        f"The table has {len(table()):,} convolutions; `memprof/simulate/convolutions.py` says how they were recorded.",
        "What is in it is met to the byte. What is not in it is guessed from its nearest neighbours",
        "(`memprof/simulate/convolution_rule.py`), and is a caveat of the run, with its bytes.",
        "",
        "How good the guess is, by `python scripts/convolution_accuracy.py`: the share that is met to the byte; the",
        "share that is within 1 % of the bytes of input, output and weight together; the error in nine of ten, and the",
        "largest, as a part of the same; and all errors, as a part of all workspaces.",
        "",
        "| what was asked | workspace for | count | to the byte | within 1 % | nine of ten | largest | in all |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    PAGE.write_text("\n".join([*head, *lines]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
