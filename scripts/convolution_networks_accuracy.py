# ruff: noqa: INP001  # a script, not a package
"""Say how good the guess is for whole networks that are held out of the table; write it into docs/convolutions.md.

    python scripts/convolution_networks_accuracy.py ZOO.json.gz [RUNS]

A run is a network of ``convolution_zoo.py`` at a batch size, a dtype and a layout, all of whose convolutions are in the
table. Its convolutions are taken out of the table, in every batch size, dtype and layout, or in that batch size alone,
and guessed from the rest.
"""

from __future__ import annotations

import gzip
import json
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from convolution_accuracy import NETWORKS, PAGE
from convolution_models import KINDS, convolution, runs

from memprof.simulate.convolution_rule import Neighbours
from memprof.simulate.convolutions import COLUMNS, Convolution, Pass, load, recorded, row_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

HEAD = (
    "Runs of networks of `scripts/convolution_zoo.py` whose convolutions are all in the table, drawn from the common",
    "ones; by `python scripts/convolution_networks_accuracy.py ZOO.json.gz`. All convolutions of a run are taken out",
    "of the table and guessed. The peak is a lower bound of a training run's: weights with gradients and two moments,",
    "each distinct output once, and the workspace and gradients of one convolution.",
    "",
    "| held out | runs | computations | same 512 bytes | peak off by > 1 % | by > 5 % | median | largest |",
    "|---|---:|---:|---:|---:|---:|---:|---:|",
)
_SHAPE = COLUMNS.index("channels_last")
_BATCH = COLUMNS.index("batch")
_MOST_COMMON = 12_000


def peak(convolutions: Sequence[Convolution], workspace: Callable[[Convolution, Pass], int]) -> int:
    """Return a lower bound of a training run's peak: what its distinct convolutions must keep, and the workspaces.

    Weights with a gradient and two moments; the outputs so far; and while one is computed its workspace, backward the
    gradients of its output and input too.
    """
    weights = sum(4 * each.elements()[2] * 4 for each in convolutions)
    kept = most = 0
    for each in convolutions:
        source, output = (count * each.item for count in each.elements()[:2])
        kept += output
        forward = workspace(each, Pass.FORWARD)
        backward = (
            output + source + max(workspace(each, which) for which in (Pass.INPUT_GRADIENT, Pass.WEIGHT_GRADIENT))
        )
        most = max(most, kept + max(forward, backward))
    return weights + most


def main() -> None:
    """Write the section."""
    zoo = json.loads(gzip.decompress(Path(sys.argv[1]).read_bytes()))
    known = load()
    usual = known.rows[:, COLUMNS.index("choice")] == 0
    rows, workspaces = known.rows[usual], known.workspaces[usual]
    shapes = [row[:_SHAPE].tobytes() for row in rows]
    complete = []
    for _, number, batch, kind in runs(zoo["networks"])[:_MOST_COMMON]:
        used = [convolution(zoo["shapes"][at], batch, kind) for at in zoo["networks"][number][3]]
        used = [each for each in used if recorded(each, Pass.FORWARD) is not None]
        if len(used) >= 5 and KINDS[kind][2]:
            complete.append((zoo["networks"][number][0], batch, used))
    chosen = random.Random(0).sample(complete, min(int(sys.argv[2]) if len(sys.argv) > 2 else 100, len(complete)))  # noqa: S311  # no secret
    lines = []
    for name, only_batch in (("a network held out", False), ("a batch size of a network held out", True)):
        exact = computations = 0
        errors = []
        for _, batch, used in chosen:
            mine = {np.array(row_of(each)[:_SHAPE], dtype=rows.dtype).tobytes() for each in used}
            out = np.fromiter((shape in mine for shape in shapes), dtype=bool, count=len(shapes))
            if only_batch:
                out &= rows[:, _BATCH] == batch
            neighbours = Neighbours(rows[~out], workspaces[~out])
            truth: dict[Any, int] = {}
            guess: dict[Any, int] = {}
            for each in used:
                for which in Pass:
                    truth[each, which] = recorded(each, which) or 0
                    guess[each, which] = neighbours.estimate(each, which)
                    exact += -(-truth[each, which] // 512) == -(-guess[each, which] // 512)
                    computations += 1
            right = peak(used, lambda each, which: truth[each, which])  # noqa: B023  # called here
            errors.append(abs(peak(used, lambda each, which: guess[each, which]) - right) / right)  # noqa: B023  # as above
        errors.sort()
        count = len(errors)
        off = [sum(error > limit for error in errors) / count for limit in (0.01, 0.05)]
        lines.append(
            f"| {name} | {count} | {computations:,} | {exact / computations:.1%} | {off[0]:.0%} | {off[1]:.0%} "
            f"| {errors[count // 2]:.2%} | {errors[-1]:.0%} |"
        )
    page = PAGE.read_text(encoding="utf-8").split(NETWORKS)
    page[0] = page[0].rstrip("\n") + "\n\n"
    after = "\n## " + page[1].split("\n## ", 1)[1] if len(page) > 1 and "\n## " in page[1] else ""
    PAGE.write_text(page[0] + "\n".join([NETWORKS, "", *HEAD, *lines]) + "\n" + after, encoding="utf-8")


if __name__ == "__main__":
    main()
