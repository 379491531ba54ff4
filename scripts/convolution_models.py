# ruff: noqa: INP001  # a script, not a package
"""Ask cuDNN on a card about the convolutions of networks that people train, without running them.

    python scripts/convolution_models.py order ZOO.json.gz ASKS.json.gz COUNT
    python scripts/convolution_models.py ask ASKS.json.gz OUTPUT_FOLDER PARTS SECONDS [FIRST]

``order`` puts the networks of ``convolution_zoo.py`` in order, each at a size of input, a batch size, a dtype and a
layout, by how common that is; needs torch and no card. ``ask`` asks from number FIRST on, in that many processes, for
the usual choice of engines and for deterministic ones; and records some, so that it can be seen whether the answers are
what is taken.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from memprof.simulate.convolutions import Convolution, Pass, load, row_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

BATCHES = {32: 1.0, 16: 0.9, 64: 0.9, 8: 0.8, 128: 0.6, 4: 0.5, 256: 0.35, 2: 0.35, 1: 0.25, 96: 0.4, 24: 0.5}
BATCHES |= {48: 0.45, 12: 0.5, 192: 0.2, 6: 0.35, 10: 0.3, 20: 0.3, 512: 0.1, 3: 0.25, 5: 0.15, 40: 0.15, 80: 0.1}
KINDS = (("f32", False, True), ("bf16", False, True), ("f16", False, True), ("bf16", True, True), ("f16", True, True))
KINDS += (("f32", True, True), ("f32", False, False))
"""Dtype, whether channels last, whether TF32 is allowed."""
COMMON = (1.0, 0.8, 0.55, 0.4, 0.25, 0.25, 0.12)
"""How common each of `KINDS` is."""
SMALL = 1.8
"""By how much more a batch is common where an image is small, and less where it is large."""
LARGEST = 1 << 32
"""Bytes of the largest operand."""
MEASURED = 24


def convolution(shape: Sequence[Any], batch: int, kind: int) -> Convolution:
    """Return a shape of the zoo as a convolution."""
    times, inputs, spatial, outputs, kernel, stride, padding, dilation, groups = shape
    dtype, channels_last, tf32 = KINDS[kind]
    return Convolution(
        batch=batch * times,
        inputs=inputs,
        spatial=tuple(spatial),
        outputs=outputs,
        kernel=tuple(kernel),
        stride=tuple(stride),
        padding=tuple(padding),
        dilation=tuple(dilation),
        groups=groups,
        transposed=False,
        dtype=dtype,
        channels_last=channels_last,
        tf32=tf32,
    )


def runs(networks: Sequence[Any]) -> list[tuple[float, int, int, int]]:
    """Return how common, network, batch and kind of every run, the most common first."""
    found = []
    for number, (_, size, common, _) in enumerate(networks):
        pixels = 1
        for side in size[1:]:
            pixels *= side
        for batch, often in BATCHES.items():
            tilt = SMALL if (pixels > 200_000) == (batch <= 8) else 1 / SMALL
            tilt = 1.0 if 20_000 < pixels <= 200_000 else tilt
            found += [(common * often * tilt * share, number, batch, kind) for kind, share in enumerate(COMMON)]
    return sorted(found, key=lambda each: -each[0])


def ordered(zoo: Any, count: int) -> Iterator[tuple[int, int, int]]:
    """Yield shape, batch and kind of what is not in the table; what is there comes last."""
    from convolution_table import by_torch

    known = {tuple(row) for row in load().rows.tolist()}
    seen = set()
    later = []
    fresh = 0
    for _, number, batch, kind in runs(zoo["networks"]):
        for at in zoo["networks"][number][3]:
            ask = at, batch, kind
            shape = zoo["shapes"][at]
            if ask in seen or (KINDS[kind][1] and len(shape[2]) != 2):
                continue
            seen.add(ask)
            each = convolution(shape, batch, kind)
            if max(each.elements()) * each.item > LARGEST or by_torch(each):
                continue
            if row_of(each) in known:
                later.append(ask)
                continue
            yield ask
            fresh += 1
            if fresh == count:
                yield from later
                return


def order(zoo_path: str, output: str, count: str) -> None:
    """Write what to ask."""
    zoo = json.loads(gzip.decompress(Path(zoo_path).read_bytes()))
    asks = list(ordered(zoo, int(count)))
    text = json.dumps({"shapes": zoo["shapes"], "asks": asks}, separators=(",", ":"))
    Path(output).write_bytes(gzip.compress(text.encode(), mtime=0))
    sys.stdout.write(f"{len(asks)} to ask\n")


def part(asks_path: str, output: Path, *, number: int, parts: int, deadline: float, first: int) -> None:
    """Ask for every `parts`-th until the time is over."""
    import torch
    from convolution_backend import Asker
    from convolution_grid import key_of, measure

    torch.nn.functional.conv2d(torch.zeros(1, 1, 8, 8, device="cuda"), torch.zeros(1, 1, 3, 3, device="cuda"))
    asker = Asker.of_card()
    todo = json.loads(gzip.decompress(Path(asks_path).read_bytes()))
    cases: dict[str, list[int | None]] = {}
    engines: dict[str, list[int | None]] = {}
    measured = []
    mine = todo["asks"][first + number :: parts]
    for count, (at, batch, kind) in enumerate(mine):
        if time.time() > deadline:
            break
        each = convolution(todo["shapes"][at], batch, kind)
        choices = [(each.tf32, False), (each.tf32, True)][: 2 if each.tf32 else 1]
        answers = [asker.ask_choices(each, which, choices) for which in Pass]
        for row, (_, deterministic) in enumerate(choices):
            key = key_of(replace(each, deterministic=deterministic))
            cases[key] = [answer[row] and answer[row][0] for answer in answers]  # type: ignore[index]  # not None there
            engines[key] = [answer[row] and answer[row][1] for answer in answers]  # type: ignore[index]  # as above
        small = max(each.elements()) * each.item < 1 << 28
        if count % 40 == number % 40 and small and len(measured) < MEASURED:
            chosen = replace(each, deterministic=each.tf32 and len(measured) % 2 == 1)
            torch.backends.cudnn.allow_tf32 = each.tf32
            torch.backends.cudnn.deterministic = chosen.deterministic
            measured.append([key_of(chosen), cases[key_of(chosen)], measure(chosen)])
    result = {"cases": cases, "engines": engines, "measured": measured}
    text = json.dumps(result, separators=(",", ":"))
    (output / f"models_{first}_{number}.json.gz").write_bytes(gzip.compress(text.encode(), 3, mtime=0))
    right = sum(
        answer == (0 if len(events) == 1 else events[1])
        for _, answers, recorded in measured
        for answer, events in zip(answers, recorded, strict=True)
        if len(events) in (1, 3)
    )
    of = sum(len(events) in (1, 3) for _, _, recorded in measured for events in recorded)
    sys.stdout.write(f"{number}: {len(cases)} of {len(mine)}; {right} of {of} as recorded\n")


def main() -> None:
    """Do as the first argument says."""
    if sys.argv[1] == "order":
        order(*sys.argv[2:5])
        return
    asks, output, parts, seconds, *rest = sys.argv[2:]
    if len(rest) == 3:
        part(asks, Path(output), number=int(rest[1]), parts=int(parts), deadline=float(rest[2]), first=int(rest[0]))
        return
    deadline = time.time() + float(seconds)
    command = [sys.executable, __file__, *sys.argv[1:6], rest[0] if rest else "0"]
    children = [subprocess.Popen([*command, str(number), str(deadline)]) for number in range(int(parts))]  # noqa: S603  # itself
    for child in children:
        child.wait()


if __name__ == "__main__":
    main()
