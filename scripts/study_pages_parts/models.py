"""When does 4-bit pay: models, precisions, kinds of quantization."""

# ruff: noqa: ISC004, E501 - prose in lists of paragraphs
from __future__ import annotations

import json
from functools import cache
from itertools import pairwise
from typing import Any

from study_pages_parts.data import DATA, gb, markdown, percent

MODELS = ("pythia-70m", "pythia-160m", "pythia-410m", "pythia-1b", "tiny-llama-1.1b", "Llama-2-7b-hf")
PRECISIONS = ("32-true", "16-mixed", "bf16-mixed", "16-true", "bf16-true")
KINDS = ("bnb.nf4", "bnb.nf4-dq", "bnb.fp4", "bnb.int8-training")
POINTS = (1, 4, 16, 64)
SAME = 0.002
"""Slopes that differ by less than this share of a sample's cost are the same."""


@cache
def grid(name: str) -> dict[tuple[str, str, str, int], dict[str, Any]]:
    """Return the runs of the grid by model, precision, quantization and mbs."""
    path = DATA / f"grid-{name}.json"
    rows = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    return {(row["model"], row["precision"], row["quant"], row["mbs"]): row for row in rows}


def size(model: str, precision: str, quant: str, mbs: int, name: str = "simulated") -> int | None:
    """Return the allocated peak of a run that ended well."""
    found = grid(name).get((model, precision, quant, mbs))
    return int(found["allocated"]) if found and found["status"] == "ok" else None


def gaps(model: str, precision: str, quant: str) -> dict[int, int]:
    """Return quantized - plain over mbs, where both ran."""
    found = {}
    for mbs in POINTS:
        plain, ours = size(model, precision, "none", mbs), size(model, precision, quant, mbs)
        if plain is not None and ours is not None:
            found[mbs] = ours - plain
    return found


def verdict(model: str, precision: str, quant: str) -> str:
    """Say up to which mbs it pays."""
    gap = gaps(model, precision, quant)
    known = sorted(gap)
    if len(known) < 2:
        return "-"
    if gap[known[0]] >= 0:
        return "never"
    for low, high in pairwise(known):
        if gap[low] < 0 <= gap[high]:
            return f"up to {low + (high - low) * -gap[low] / (gap[high] - gap[low]):.0f}"
    low, high = known[-2:]
    slope = (gap[high] - gap[low]) / (high - low)
    plain = [size(model, precision, "none", mbs) for mbs in (low, high)]
    assert plain[0] is not None
    assert plain[1] is not None
    if slope <= SAME * (plain[1] - plain[0]) / (high - low):
        return "always"
    return f"up to about {high + -gap[high] / slope:.0f} (from {low} and {high})"


def pages() -> dict[str, str]:
    """Return the page."""
    if not grid("simulated"):
        return {}
    runs = len(grid("simulated"))
    out_of_memory = sum(row["status"] != "ok" for row in grid("simulated").values())
    body = [[model, *(verdict(model, precision, "bnb.nf4") for precision in PRECISIONS)] for model in MODELS]
    eight = [[model, *(verdict(model, precision, "bnb.int8-training") for precision in PRECISIONS)] for model in MODELS]
    text = [
        "# When does 4-bit pay?\n",
        _answer(),
        f"All of it: {runs} runs on a simulated H200 ({out_of_memory} of them out of memory), recipe `lit_gpt_2023` with "
        "today's bitsandbytes, LoRA r 8 on query and value, 512 tokens, mbs "
        + ", ".join(map(str, POINTS))
        + "; allocated peaks. [Some were measured](#measured).\n",
        "## Up to which micro batch nf4 needs less than plain\n",
        markdown(["model", *PRECISIONS], body),
        "*always*: the saving is the same at every batch that fits. *up to N*: the lines cross at N (linear between the "
        "two neighbouring runs; *about*: extrapolated beyond the largest two that fit).\n",
        "## What nf4 saves, GB\n",
        "Plain - nf4; negative where nf4 costs memory, `-` where one of the two is out of memory.\n",
        markdown(
            ["model", "precision", *(f"mbs {mbs}" for mbs in POINTS), "of plain at mbs 1", "at the largest"],
            [_saved(model, precision) for model in MODELS for precision in PRECISIONS],
            left=2,
        ),
        "## Kinds of quantization, GB allocated\n",
        _kinds(),
        f"fp4 is nf4 to the byte{_fp4()}. nf4-dq saves its second quantization of the scales, once: {_double()}. "
        "int8-training keeps the weights as they are beside the 8-bit ones "
        f"(Llama-2-7b in 32-true at mbs 1: {gb(gaps('Llama-2-7b-hf', '32-true', 'bnb.int8-training')[1])} GB more than plain), and a sample costs more. It needs "
        "less than plain only in mixed precision, where plain keeps autocast's copies of its weights:\n",
        markdown(["model", *PRECISIONS], eight),
        *_measured(),
        "## Commands\n\n```\nsh scripts/study_simulate.sh OUT    # its last sweep, then\n"
        "python scripts/study_grid.py OUT-grid.jsonl simulated\n"
        "python scripts/study_cell.py --json --device cuda --labels none --model MODEL ... > R/POINT.json\n"
        "python scripts/study_grid.py R measured\n```\n",
    ]
    return {"models.md": "\n".join(text)}


def _answer() -> str:
    true = [verdict(model, precision, "bnb.nf4") for model in MODELS for precision in PRECISIONS if "true" in precision]
    mixed = [
        f"{model} {verdict(model, '16-mixed', 'bnb.nf4').split(' (')[0]}"
        for model in MODELS
        if verdict(model, "16-mixed", "bnb.nf4") != "-"
    ]
    shares = [
        -gaps(model, "bf16-true", "bnb.nf4")[1] / (size(model, "bf16-true", "none", 1) or 1)
        for model in MODELS
        if 1 in gaps(model, "bf16-true", "bnb.nf4")
    ]
    return (
        f"**In a `-true` precision: always** ({true.count('always')} of {len(true)} pairs of model and precision). There a "
        "4-bit layer returns what a plain one returns, so a sample costs the same and what the weights shrink by is saved at "
        "every batch. It only matters less: with bf16-true nf4 saves "
        f"{min(shares):.0%} to {max(shares):.0%} of the peak at mbs 1, and a share that falls with every sample.\n\n"
        f"**In mixed precision: only {'; '.join(mixed)}.** There the 4-bit layers return float32 where plain ones return "
        "half precision, and each sample pays for it.\n\n"
        f"**8-bit training (`bnb.int8-training`): never in a `-true` precision, in a mixed one {_eight()}.**\n"
    )


def _fp4() -> str:
    """Say whether that holds in every run."""
    same = [
        size(*key, "bnb.nf4", mbs) == size(*key, "bnb.fp4", mbs)
        for key in ((model, precision) for model in MODELS for precision in PRECISIONS)
        for mbs in POINTS
    ]
    return "" if all(same) else f" in {sum(same)} of {len(same)} runs"


def _eight() -> str:
    """Say where 8-bit training pays."""
    true = {
        verdict(model, precision, "bnb.int8-training")
        for model in MODELS
        for precision in PRECISIONS
        if "true" in precision
    }
    assert true <= {"never", "-"}, true
    found = [
        int(each.split()[2])
        for model in MODELS
        if (each := verdict(model, "16-mixed", "bnb.int8-training")).startswith("up to")
    ]
    return f"up to a batch of {min(found)} to {max(found)}"


def _saved(model: str, precision: str) -> list[str]:
    gap = gaps(model, precision, "bnb.nf4")
    line = [model, precision, *(gb(-gap[mbs]) if mbs in gap else "-" for mbs in POINTS)]
    for mbs in (min(gap, default=None), max(gap, default=None)):
        plain = size(model, precision, "none", mbs) if mbs else None
        line.append(f"{-gap[mbs] / plain:.1%}" if mbs and plain else "-")
    return line


def _kinds() -> str:
    body = []
    for model in MODELS:
        for precision in PRECISIONS:
            line = [model, precision, "4"]
            line += [gb(size(model, precision, quant, 4), 3) for quant in ("none", *KINDS)]
            body.append(line)
    return markdown(["model", "precision", "mbs", "none", "nf4", "nf4-dq", "fp4", "int8-training"], body, left=2)


def _double() -> str:
    found = []
    for model in MODELS:
        whole, double = (size(model, "bf16-true", quant, 16) for quant in ("bnb.nf4", "bnb.nf4-dq"))
        if whole and double:
            found.append(f"{model} {(whole - double) / 1e6:,.0f} MB")
    return ", ".join(found) + " at mbs 16 in bf16-true"


def _measured() -> list[str]:
    body = []
    for (model, precision, quant, mbs), row in sorted(grid("measured").items()):
        ours = grid("simulated").get((model, precision, quant, mbs))
        if ours is None or row["status"] != "ok" or ours["status"] != "ok":
            continue
        body.append(
            [
                f"{model} {precision} {quant} mbs {mbs}",
                f"{row['allocated']:,}",
                f"{ours['allocated']:,}",
                percent(ours["allocated"], row["allocated"]),
                f"{row['reserved']:,}",
                f"{ours['reserved']:,}",
            ]
        )
    if not body:
        return []
    equal = sum(line[1] == line[2] for line in body)
    return [
        "## Measured\n",
        f"Cells of the grid on a real H200, bytes; {equal} of {len(body)} allocated peaks are equal to the byte.\n",
        markdown(["run", "allocated, measured", "simulated", "off", "reserved, measured", "simulated"], body),
    ]
