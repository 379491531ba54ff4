# ruff: noqa: INP001  # a script, not a package
"""Write the table of cuDNN's workspaces from what ``scripts/convolution_grid.py`` recorded.

    python scripts/convolution_table.py GRID.json ...

Writes ``memprof/simulate/data/cudnn_convolutions_h200.json.gz``: for each shape, dtype and layout the batches with
their three workspaces; a dtype that says the same as another shares its rows.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

OUTPUT = Path(__file__).parents[1] / "memprof/simulate/data/cudnn_convolutions_h200.json.gz"


LORA_SHAPE = "[16,[1037],1024,[1],[1],[0],[1],2,0]"
LORA_WEIGHT_GRADIENTS = {1: 2583232, 2: 5067872, 32: 70661408}
"""lit-gpt's grouped LoRA of Pythia-70m, as recorded in ``traces/sweep-pythia-70m`` (float16, mbs 1 to 32): nothing
forward; copies of input and output, and 32 bytes, backward; at mbs 1, 2 and 32 more for the weight."""


def lora_workspaces(batch: int) -> list[int]:
    """Return the three workspaces of that LoRA."""
    copies = batch * 1037 * (16 + 1024) * 2 + 32
    return [0, copies, LORA_WEIGHT_GRADIENTS.get(batch, copies)]


def workspace(events: list[int] | None) -> int | None:
    """Return what was taken beside the output; None if that was not one temporary, taken and given back."""
    if events is None:
        return None
    if len(events) == 1:
        return 0
    return events[1] if len(events) == 3 and events[1] == -events[2] else None


def main() -> None:
    """Group the recorded cases by shape, and write them."""
    grids = [json.loads(Path(name).read_text(encoding="utf-8")) for name in sys.argv[1:]]
    shapes: dict[str, dict[str, dict[str, dict[int, list[Any]]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(dict))
    )
    for key, events in (item for grid in grids for item in grid["cases"].items()):
        _, batch, *shape, dtype, layout = json.loads(key)
        there = shapes[json.dumps(shape)][layout][dtype]
        known = there.get(batch, [None, None, None])
        fresh = [workspace(each) for each in events]
        there[batch] = [new if old is None else old for old, new in zip(known, fresh, strict=True)]
    shapes[LORA_SHAPE]["cf"]["f16"] = {batch: lora_workspaces(batch) for batch in (1, 2, 4, 8, 16, 32)}
    rows = []
    for shape, layouts in sorted(shapes.items(), key=lambda item: json.loads(item[0])):
        variants: dict[str, list[tuple[int, list[Any]]]] = {}
        for layout, dtypes in layouts.items():
            half, brain = dtypes.get("f16", {}), dtypes.get("bf16", {})
            same = {batch: found for batch, found in half.items() if brain.get(batch) == found}
            for name, batches in (
                ("f32", dtypes.get("f32", {})),
                ("f16+bf16", same),
                ("f16", {batch: found for batch, found in half.items() if batch not in same}),
                ("bf16", {batch: found for batch, found in brain.items() if batch not in same}),
            ):
                if batches:
                    variants[f"{name} {layout}"] = sorted(batches.items())
        rows.append([json.loads(shape), variants])
    text = json.dumps({"made_by": grids[0]["made_by"], "shapes": rows}, separators=(",", ":"))
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main()
