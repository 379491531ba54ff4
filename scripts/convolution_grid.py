# ruff: noqa: INP001  # a script, not a package
"""Record what convolutions ask a card's allocator for: what the table of cuDNN's workspaces is made from.

    python scripts/convolution_grid.py OUTPUT.json WHAT PART PARTS SECONDS

WHAT is ``bf16`` (every convolution of the table that was recorded in float16, in bfloat16) or ``random`` (shapes drawn
from what networks are made of). Convolutions that are in the table are left out. Each is recorded as three lists, for
the output and the gradients of input and weight: bytes taken, and bytes given back as negative numbers, in order.
"""

from __future__ import annotations

import json
import random
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from memprof.simulate.convolutions import Convolution, table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
CHANNELS = (3, 8, 12, 16, 24, 32, 40, 48, 56, 64, 72, 80, 96, 112, 128, 144, 160, 192, 224, 256, 288, 320, 384, 448)
CHANNELS += (512, 576, 640, 768, 896, 960, 1024, 1280, 1536, 2048)
SIDES = (7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256)
BATCHES = (1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 32, 40, 48, 64, 96, 128)
LARGEST = 1 << 30
"""Bytes of the largest operand that is recorded."""


def in_bfloat16() -> Iterator[Convolution]:
    """Yield what is known in float16."""
    for each in table():
        if each.dtype == "f16":
            yield replace(each, dtype="bf16")


def drawn() -> Iterator[Convolution]:
    """Yield random convolutions, each in one dtype and layout."""
    draw = random.Random(0)  # noqa: S311  # no secret
    for _ in range(40_000):
        kernel = draw.choice((1, 1, 3, 3, 3, 5, 7))
        inputs, outputs, side = draw.choice(CHANNELS), draw.choice(CHANNELS), draw.choice(SIDES)
        kind = draw.choice(("plain",) * 6 + ("depthwise", "transposed"))
        stride = draw.choice((1, 1, 1, 2))
        if kind == "transposed":
            kernel, stride = draw.choice(((2, 2), (4, 2), (3, 2)))
        yield Convolution(
            batch=draw.choice(BATCHES),
            inputs=inputs,
            spatial=(side, side),
            outputs=inputs if kind == "depthwise" else outputs,
            kernel=(kernel, kernel),
            stride=(stride, stride),
            padding=((kernel - 1) // 2,) * 2,
            dilation=(1, 1),
            groups=inputs if kind == "depthwise" else 1,
            transposed=kind == "transposed",
            dtype=draw.choice(tuple(DTYPES)),
            channels_last=draw.random() < 0.4,
        )


def recorded(run: Callable[[], Any]) -> list[int]:
    """Return what a call takes (positive) and gives back (negative)."""
    torch.cuda.memory._record_memory_history(context=None, max_entries=10_000, clear_history=True)
    result = run()
    trace = torch.cuda.memory._snapshot()["device_traces"][0]
    torch.cuda.memory._record_memory_history(enabled=None)
    del result
    signs = {"alloc": 1, "free_requested": -1}
    return [signs[entry["action"]] * entry["size"] for entry in trace if entry["action"] in signs]


def measure(each: Convolution) -> list[list[int]]:
    """Record the three computations of a convolution."""
    layout = torch.channels_last if each.channels_last else torch.contiguous_format

    def zeros(*size: int) -> torch.Tensor:
        return torch.zeros(size, device="cuda", dtype=DTYPES[each.dtype]).contiguous(memory_format=layout)

    sizes = (each.inputs, each.outputs) if each.transposed else (each.outputs, each.inputs)
    source = zeros(each.batch, each.inputs, *each.spatial)
    weight = zeros(sizes[0], sizes[1] // each.groups, *each.kernel)
    options = (each.stride, each.padding, each.dilation, each.transposed, [0] * len(each.kernel), each.groups)
    forward = recorded(lambda: torch.ops.aten.convolution(source, weight, None, *options))
    gradient = zeros(each.batch, each.outputs, *each.output_spatial())

    def backward(mask: list[bool]) -> Any:
        return torch.ops.aten.convolution_backward(gradient, source, weight, None, *options, mask)

    masks = ([True, False, False], [False, True, False])
    return [forward, *(recorded(lambda mask=mask: backward(mask)) for mask in masks)]


def key_of(each: Convolution) -> str:
    """Return the key of a convolution in the file."""
    shape = (each.inputs, each.spatial, each.outputs, each.kernel, each.stride, each.padding, each.dilation)
    last = "cl" if each.channels_last else "cf"
    parts = [len(each.kernel), each.batch, *shape, each.groups, int(each.transposed), each.dtype, last]
    if not each.tf32 or each.deterministic:
        parts.append("s" * (not each.tf32) + "d" * each.deterministic)
    return json.dumps(parts, separators=(",", ":"))


def main() -> None:
    """Record one part until the time is over."""
    output, what, part, parts, seconds = sys.argv[1:]
    known = table()
    wanted = {"bf16": in_bfloat16, "random": drawn}[what]()
    cases = [each for each in dict.fromkeys(wanted) if each not in known]
    random.Random(1).shuffle(cases)  # noqa: S311  # no secret
    found: dict[str, list[list[int]]] = {}
    started = time.monotonic()
    for each in cases[int(part) :: int(parts)]:
        if time.monotonic() - started > float(seconds):
            break
        if max(each.elements()) * each.item > LARGEST or min(each.output_spatial()) < 1:
            continue
        if torch.cuda.memory_reserved() > 8 << 30:
            torch.cuda.empty_cache()
        try:
            found[key_of(each)] = measure(each)
        except RuntimeError as error:
            sys.stderr.write(f"{key_of(each)}: {error}\n")
            torch.cuda.empty_cache()
    cudnn = torch.backends.cudnn.version()
    made_by = f"scripts/convolution_grid.py, {torch.cuda.get_device_name(0)}, torch {torch.__version__}, cuDNN {cudnn}"
    Path(output).write_text(json.dumps({"made_by": made_by, "cases": found}), encoding="utf-8")
    sys.stdout.write(f"{what} {part}: {len(found)} of {len(cases[int(part) :: int(parts)])}\n")


if __name__ == "__main__":
    main()
