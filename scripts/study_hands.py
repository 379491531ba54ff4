"""Boil down what litgpt and Hugging Face hold at the peak, and what a card and its simulation hold of one run.

    python scripts/study_hands.py SIMULATED MEASURED

SIMULATED has the folders ``litgpt``, ``huggingface`` and ``huggingface-prepare_kbit=true`` of ``study_simulate.sh``,
MEASURED those of ``study_gpu.sh``. Writes ``docs/study/data/hands.json``.
"""

# ruff: noqa: INP001, T201, E402 - a script, and the path is set first
from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1])]

import numpy as np

from memprof.allocator.driver import AddressOrder
from memprof.allocator.whatif import what_if
from memprof.analysis.account import open_account
from memprof.analysis.sweep import point_of
from memprof.trace import load
from memprof.trace.model import Action

DATA = Path(__file__).parents[1] / "docs" / "study" / "data"
MODEL = "tiny-llama-1.1b_bf16-true_{}_seq512_mbs8.pickle"
PAIRS = (
    ("litgpt nf4", "litgpt", "bnb.nf4", "litgpt/nf4.pickle"),
    ("litgpt none", "litgpt", "none", "litgpt/none.pickle"),
    ("huggingface nf4", "huggingface", "bnb.nf4", "huggingface/nf4.pickle"),
    ("huggingface nf4, prepare_kbit", "huggingface-prepare_kbit=true", "bnb.nf4", "huggingface/nf4-prepared.pickle"),
)


def main() -> None:
    """Read the captures and write what the page needs."""
    simulated, measured = Path(sys.argv[1]), Path(sys.argv[2])
    hands = {}
    for quant in ("none", "bnb.nf4"):
        ours, theirs = (by_role(load(simulated / folder / MODEL.format(quant))) for folder in ("litgpt", "huggingface"))
        rows = [
            {"role": role, "dtype": dtype, "litgpt": ours.get((role, dtype), 0), "hf": theirs.get((role, dtype), 0)}
            for role, dtype in sorted({*ours, *theirs}, key=str)
        ]
        total = sum(theirs.values()) - sum(ours.values())
        assert sum(row["hf"] - row["litgpt"] for row in rows) == total
        rows.sort(key=lambda row: -abs(row["hf"] - row["litgpt"]))
        hands[quant] = {"litgpt": sum(ours.values()), "huggingface": sum(theirs.values()), "rows": rows}
    twins = []
    for name, folder, quant, file in PAIRS:
        real, simulated_run = load(measured / file), load(simulated / folder / MODEL.format(quant))
        twins.append(
            {
                "run": name,
                "measured": held(real),
                "simulated": held(simulated_run),
                "sequence": sequence(real, simulated_run),
            }
        )
    target = DATA / "hands.json"
    target.write_text(json.dumps({"hands": hands, "twins": twins}, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    print(f"wrote {target.name}")


def held(trace: Any) -> dict[str, int]:
    """Return the blocks at the peak: how many, their bytes, and what was asked for in them."""
    figures = point_of(trace, "").figures
    assert figures is not None
    account = open_account(trace, trace.devices[0])
    peak = account.replay.peak_event
    leftovers = [
        amount
        for cause, amount in figures.causes.items()
        if cause.category.value == "temporaries" and (cause.finer or "") == "init"
    ]
    return {
        "blocks": len(account.replay.allocations.live_at(peak)),
        "allocated": figures.peak.size,
        "requested": figures.peak.requested,
        "of_init": sum(amount.requested for amount in leftovers),
        "replayed": what_if(
            account.device, trace.settings, trace.settings, trace.source, orders=(AddressOrder.CUDA,)
        ).allocated_peak,
    }


def sequence(a: Any, b: Any) -> dict[str, Any]:
    """Say how the requests of two recordings differ: their sizes, and their order."""
    sizes = [trace.devices[0].events.size[trace.devices[0].events.action == Action.ALLOC] for trace in (a, b)]
    known = {"measured": len(sizes[0]), "simulated": len(sizes[1])}
    same = len(sizes[0]) == len(sizes[1]) and bool((np.sort(sizes[0]) == np.sort(sizes[1])).all())
    shorter = min(map(len, sizes))
    other = np.flatnonzero(sizes[0][:shorter] != sizes[1][:shorter])
    return {
        **known,
        "same_sizes": same,
        "in_other_places": len(other),
        "last_in_another_place": int(other[-1]) if len(other) else None,
    }


def by_role(trace: Any) -> dict[tuple[str, str], int]:
    """Sum what is alive at the peak by what it is for, whatever the modules are called."""
    figures = point_of(trace, "").figures
    assert figures is not None
    found: dict[tuple[str, str], int] = {}
    for cause, amount in figures.causes.items():
        key = (role(cause), cause.dtype or "-")
        found[key] = found.get(key, 0) + amount.size
    return found


def role(cause: Any) -> str:
    """Say what an allocation is for, in words that fit both programs."""
    module, finer, category = cause.module or "", cause.finer or "", cause.category.value
    if category == "weights":
        return {"quantized": "4-bit weights", "quant_state": "their scales", "adapter": "trained weights"}.get(
            finer, "weights that are not quantized"
        )
    if category == "gradients" and finer == "parameter":
        return "gradients of weights"
    if category in ("workspace", "inputs", "temporaries", "weight_casts", "dequantized"):
        return category
    for part, name in (
        ("lora_dropout", "dropout in front of the adapters"),
        ("lora_", "adapters' own"),
        ("mlp", "MLP"),
        ("norm", "norms"),
        ("ln_f", "norms"),
        ("attn", "attention"),
        ("rotary", "attention"),
        ("wte", "embedding"),
        ("embed_tokens", "embedding"),
    ):
        if part in module:
            return name
    return "logits, loss and their gradients"


if __name__ == "__main__":
    main()
