# ruff: noqa: INP001  # a script, not a package
"""Add to the table of cuDNN's workspaces what was recorded, or what cuDNN answered.

    python scripts/convolution_table.py FILE.json[.gz] ...

FILE is what ``scripts/convolution_grid.py`` recorded, or ``convolution_widened.py`` or ``convolution_models.py`` asked.
What is in ``memprof/simulate/data/cudnn_convolutions_h200.npz`` stays as it is. A convolution that is transposed
becomes its mirror; one that torch computes itself is left out, whatever cuDNN would take for it.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from memprof.simulate.convolutions import (
    COLUMNS,
    DETERMINISTIC,
    STRICT,
    Convolution,
    Pass,
    load,
    plain,
    row_of,
)
from memprof.simulate.kernels.depthwise import computed_by_torch

if TYPE_CHECKING:
    from collections.abc import Iterator

Found = dict[tuple[int, ...], list[int]]
"""Workspaces of each row of `COLUMNS`."""
CHOICE = COLUMNS.index("choice")
OUTPUT = Path(__file__).parents[1] / "memprof/simulate/data/cudnn_convolutions_h200.npz"
CHOICES = {"": {}, "s": {"tf32": False}, "d": {"deterministic": True}}
"""What a key may end with: TF32 is not allowed, only deterministic engines are."""


def from_key(key: str) -> Convolution:
    """Return the convolution of a key of ``convolution_grid.key_of``, with one of `CHOICES` behind it or not."""
    _, batch, inputs, spatial, outputs, kernel, stride, padding, dilation, *rest = json.loads(key)
    groups, transposed, dtype, layout, *choice = rest
    return Convolution(
        batch=batch,
        inputs=inputs,
        spatial=tuple(spatial),
        outputs=outputs,
        kernel=tuple(kernel),
        stride=tuple(stride),
        padding=tuple(padding),
        dilation=tuple(dilation),
        groups=groups,
        transposed=bool(transposed),
        dtype=dtype,
        channels_last=layout == "cl",
        **CHOICES[choice[0] if choice else ""],
    )


def workspace(found: int | list[int] | None) -> int:
    """Return what was answered, or taken beside the output; -1 if that was not one temporary, taken and given back."""
    if found is None or isinstance(found, int):
        return -1 if found is None else found
    if len(found) == 1:
        return 0
    return found[1] if len(found) == 3 and found[1] == -found[2] else -1


def by_torch(each: Convolution) -> bool:
    """Tell whether torch computes a convolution itself."""
    if each.groups == 1:
        return False
    dtype = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[each.dtype]
    source = torch.empty(each.batch, each.inputs, *each.spatial, dtype=dtype, device="meta")
    weight = torch.empty(each.outputs, each.inputs // each.groups, *each.kernel, device="meta")
    options = (each.stride, each.padding, each.dilation, each.transposed, (0,), each.groups)
    layout = torch.channels_last if each.channels_last else torch.contiguous_format
    return computed_by_torch(source, weight, options, layout)


def read(path: str) -> Iterator[tuple[Convolution, list[int]]]:
    """Yield the convolutions of a file, and their workspaces."""
    packed = Path(path).read_bytes()
    cases = json.loads(gzip.decompress(packed) if path.endswith(".gz") else packed)["cases"]
    for key, found in cases.items():
        convolution = from_key(key)
        places = [plain(convolution, which) for which in Pass]
        if places[0][0].transposed or by_torch(convolution):
            continue
        workspaces = [-1, -1, -1]
        for (_, which), each in zip(places, found, strict=True):
            workspaces[which] = workspace(each)
        yield places[0][0], workspaces


def known_ones() -> Found:
    """Return what is in the table, with a row for each choice of engines."""
    known = load()
    found: Found = {}
    for row, workspaces, same in zip(known.rows.tolist(), known.workspaces.tolist(), known.same.tolist(), strict=True):
        for choice in (row[CHOICE], *(each for each in (STRICT, DETERMINISTIC) if same & each)):
            found[(*row[:CHOICE], choice, *row[CHOICE + 1 :])] = [*workspaces]
    return found


def write(found: Found) -> None:
    """Write the table, sorted, in the least columns of numbers that hold it."""
    same = dict.fromkeys(found, 0)
    for row, workspaces in found.items():
        usual = (*row[:CHOICE], 0, *row[CHOICE + 1 :])
        if row[CHOICE] and found.get(usual) == workspaces:
            same[usual] |= row[CHOICE]
            del same[row]
    rows = sorted(same)
    columns: dict[str, Any] = {"same": np.array([same[row] for row in rows], dtype=np.uint8)}
    for at, name in enumerate(COLUMNS):
        column = np.array([row[at] for row in rows])
        columns[name] = column.astype(np.min_scalar_type(column.max()))
    for which in Pass:
        columns[which.name.lower()] = np.array([found[row][which] for row in rows], dtype="<i8")
    OUTPUT.parent.mkdir(exist_ok=True)
    np.savez_compressed(OUTPUT, **columns)


def main() -> None:
    """Add every file to the table."""
    found = known_ones()
    for path in sys.argv[1:]:
        before = len(found)
        for convolution, workspaces in read(path):
            there = found.setdefault(row_of(convolution), workspaces)
            there[:] = [new if old < 0 else old for old, new in zip(there, workspaces, strict=True)]
        sys.stdout.write(f"{path}: {len(found) - before} more\n")
    write(found)
    sys.stdout.write(f"{len(found)} convolutions, {OUTPUT.stat().st_size} bytes\n")


if __name__ == "__main__":
    main()
