# ruff: noqa: INP001  # a script, not a package
"""List what `convolution_models` is to ask about LoRA in lit-gpt, patches of ViTs, and ResNets at more sizes.

    python scripts/convolution_ordinary.py ASKS.json.gz COUNT

Needs litgpt and transformers, and no card. lit-gpt multiplies what LoRA's first matrix gives by its second one as a
convolution of one dimension and kernel 1, in a group for each of query, key and value, or one by one where these differ
in size. The most common of each come first; what is in the table already is left out.
"""

from __future__ import annotations

import gzip
import itertools
import json
import math
import random
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from convolution_models import KINDS, LARGEST, convolution
from convolution_zoo import _bare, _Watch

from memprof.simulate.convolutions import load, row_of

if TYPE_CHECKING:
    from collections.abc import Iterator

Ask = tuple[float, tuple[Any, ...], int, int]
"""How common, the shape as in the zoo, batch and kind."""
RANKS = {8: 1.0, 16: 0.8, 32: 0.5, 4: 0.35, 64: 0.3}
LENGTHS = {512: 1.0, 1024: 1.0, 256: 0.9, 2048: 0.8, 128: 0.6, 384: 0.4, 768: 0.4, 4096: 0.4, 1037: 0.3, 1536: 0.3}
LENGTHS |= {450: 0.25, 3072: 0.2, 8192: 0.15}
BATCHES = {4: 1.0, 1: 0.8, 2: 0.8, 8: 0.8, 16: 0.5, 32: 0.3, 3: 0.25, 6: 0.25, 12: 0.25, 24: 0.2, 64: 0.15}
DTYPES = {1: 1.0, 0: 0.6, 2: 0.45}
"""How common bfloat16, float32 and float16 are, by their place in `KINDS`."""
ODD = 2000
"""Lengths drawn at random, as where each batch is as long as its longest text."""
PATCHES = (16, 14, 32)
WIDTHS = {768: 1.0, 384: 0.8, 1024: 0.7, 192: 0.6, 1280: 0.3, 1152: 0.3, 512: 0.3, 640: 0.15, 256: 0.15}
IMAGES = {224: 1.0, 384: 0.4, 336: 0.4, 256: 0.4, 448: 0.3, 288: 0.15}
RESNETS = {("basic", (2, 2, 2, 2)): 1.0, ("bottleneck", (3, 4, 6, 3)): 1.0, ("basic", (3, 4, 6, 3)): 0.5}
RESNETS |= {("bottleneck", (3, 4, 23, 3)): 0.4}
SIDES = {224: 1.0, 256: 0.7, 128: 0.6, 320: 0.4, 160: 0.4, 192: 0.4, 288: 0.3}
LAYOUTS = (1.0, 0.8, 0.6, 0.5, 0.3, 0.25)
"""How common each of `KINDS` is but the last."""


def flat(inputs: int, outputs: int, length: int, groups: int) -> tuple[Any, ...]:
    """Return a convolution of kernel 1 over one dimension."""
    return 1, inputs, (length,), outputs, (1,), (1,), (0,), (1,), groups


def products() -> dict[tuple[int, int, int], float]:
    """Return how common channels of a rank, outputs and groups are, a rank being 1."""
    from litgpt.config import Config, configs

    found: Counter[tuple[int, int]] = Counter()
    for each in configs:
        config = Config.from_name(each["name"])
        found[config.n_head * config.head_size, config.n_query_groups * config.head_size] += 1
    common: dict[tuple[int, int, int], float] = {}
    for (query, key), count in found.items():
        often = math.sqrt(count) * (1.5 if query <= 2048 else 1 if query <= 4096 else 0.4)
        rows = [(2, 2 * query, 2, 1.0), (3, 3 * query, 3, 0.6)] if query == key else [(1, query, 1, 1), (1, key, 1, 1)]
        for channels, outputs, groups, share in rows:
            shape = channels, outputs, groups
            common[shape] = common.get(shape, 0) + often * share
    return common


def adapters() -> Iterator[Ask]:
    """Yield what LoRA asks."""
    shapes = products()
    for (channels, outputs, groups), often in shapes.items():
        for (rank, a), (length, b), (batch, c), (kind, d) in itertools.product(
            RANKS.items(), LENGTHS.items(), BATCHES.items(), DTYPES.items()
        ):
            yield often * a * b * c * d, flat(channels * rank, outputs, length, groups), batch, kind
    draw = random.Random(3)  # noqa: S311  # no secret
    names, weights = zip(*shapes.items(), strict=True)
    for _ in range(ODD):
        channels, outputs, groups = draw.choices(names, weights)[0]
        rank = draw.choices(list(RANKS), list(RANKS.values()))[0]
        batch = draw.choices(list(BATCHES), list(BATCHES.values()))[0]
        length = draw.choice((draw.randrange(32, 1200), draw.randrange(32, 4096), 8 * draw.randrange(4, 256)))
        yield 1e9, flat(channels * rank, outputs, length, groups), batch, draw.choice((1, 0, 2))


def patches() -> Iterator[Ask]:
    """Yield the first layers of ViTs."""
    for patch, (width, a), (size, b), batch in itertools.product(
        PATCHES, WIDTHS.items(), IMAGES.items(), range(1, 129)
    ):
        even = 0.6 if batch % 16 == 0 else 0.4 if batch % 8 == 0 else 0.2 if batch % 4 == 0 else 0.08
        for kind, share in DTYPES.items():
            shape = (1, 3, (size, size), width, (patch,) * 2, (patch,) * 2, (0, 0), (1, 1), 1)
            yield a * b * even * share / (1 + (patch == 32)), shape, batch, kind


def resnets() -> Iterator[Ask]:
    """Yield the layers of ResNets."""
    from transformers import ResNetConfig, ResNetModel

    for (block, depths), a in RESNETS.items():
        widths = [64 << stage + 2 * (block == "bottleneck") for stage in range(4)]
        with torch.device("meta"):
            network = ResNetModel(ResNetConfig(hidden_sizes=widths, depths=list(depths), layer_type=block))
        network = _bare(network.to("meta").train())
        for side, b in SIDES.items():
            watch = _Watch()
            with torch.no_grad(), watch:
                network(torch.empty(2, 3, side, side, device="meta"))
            for text in watch.found:
                times, inputs, spatial, outputs, *sizes, groups = json.loads(text)
                shape = (times, inputs, tuple(spatial), outputs, *map(tuple, sizes), groups)
                for batch in range(8, 129, 8):
                    even = 0.6 if batch % 32 == 0 else 0.5 if batch % 16 == 0 else 0.3
                    for kind, share in enumerate(LAYOUTS):
                        yield a * b * even * share, shape, batch, kind


def fresh(source: Iterator[Ask], known: set[tuple[int, ...]]) -> list[tuple[Any, ...]]:
    """Return what is not in the table, the most common first."""
    best: dict[tuple[Any, ...], float] = {}
    for often, *ask in source:
        best[tuple(ask)] = max(often, best.get(tuple(ask), 0))
    found = []
    for shape, batch, kind in sorted(best, key=lambda ask: -best[ask]):
        each = convolution(shape, batch, kind)
        if row_of(each) not in known and max(each.elements()) * each.item <= LARGEST:
            found.append((shape, batch, kind))
    return found


def main() -> None:
    """Write what to ask: a third of LoRA's, then patches and ResNets with the rest in turns."""
    output, count = sys.argv[1], int(sys.argv[2])
    known = {tuple(row) for row in load().rows.tolist()}
    lists = [fresh(source(), known) for source in (adapters, patches, resnets)]
    sys.stdout.write(f"{[len(each) for each in lists]} not in the table\n")
    first, later = lists[0][: count // 3], lists[0][count // 3 :]
    turns = itertools.chain(*itertools.zip_longest(lists[1], lists[2], later))
    shapes: dict[Any, int] = {}
    chosen = itertools.islice(itertools.chain(first, (each for each in turns if each)), count)
    asks = [(shapes.setdefault(shape, len(shapes)), batch, kind) for shape, batch, kind in chosen]
    text = json.dumps({"shapes": list(shapes), "asks": asks}, separators=(",", ":"))
    Path(output).write_bytes(gzip.compress(text.encode(), mtime=0))
    sys.stdout.write(f"{len(asks)} to ask, {len(shapes)} shapes, {Counter(KINDS[kind] for *_, kind in asks)}\n")


if __name__ == "__main__":
    main()
