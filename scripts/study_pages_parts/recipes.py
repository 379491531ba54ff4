"""The same model with lit-gpt of 2023, today's litgpt, and Hugging Face; litgpt#1112."""

# ruff: noqa: ISC004, E501 - prose in lists of paragraphs
from __future__ import annotations

import json
from typing import Any

from study_pages_parts.data import DATA, gb, markdown, mb, row

FOLDERS = (
    ("lit_gpt_2023", "lit-gpt of 2023"),
    ("litgpt", "litgpt today"),
    ("huggingface", "Hugging Face"),
    ("huggingface-prepare_kbit=true", "Hugging Face, prepare_model_for_kbit_training"),
    ("huggingface-gradient_checkpointing=true", "Hugging Face, gradient checkpointing"),
)
MODELS = ("pythia-70m", "tiny-llama-1.1b")
SHOWN = 12
CATEGORIES = ("weights", "gradients", "activations", "weight_casts", "dequantized", "temporaries")


def pages() -> dict[str, str]:
    """Return the page."""
    text = [
        "# The same model in other hands\n",
        "Simulated H200, bf16-true, LoRA r 8 on query and value, 512 tokens, mbs 8, allocated peak in GB.\n",
    ]
    for model in MODELS:
        body = []
        for folder, name in FOLDERS:
            for quant in ("none", "bnb.nf4"):
                found = row(folder, model=model, quant=quant)
                if found is None:
                    continue
                parts = found.get("categories", {})
                body.append([name, quant, gb(found["allocated"], 3), *(mb(parts.get(key, 0)) for key in CATEGORIES)])
        text += [
            f"## {model}\n",
            markdown(["recipe", "quant", "allocated, GB", *(f"{c}, MB" for c in CATEGORIES)], body, left=2),
        ]
    text += [_hands(), _largest(), _twins(), _issue()]
    text.append("## Commands\n\n```\nsh scripts/study_simulate.sh OUT\n```\n")
    return {"recipes.md": "\n".join(text)}


def _largest() -> str:
    lines = ["## What is largest at the peak, TinyLlama, nf4\n"]
    for folder, name in FOLDERS[:3]:
        found = row(folder, model="tiny-llama-1.1b", quant="bnb.nf4")
        if found:
            lines.append(f"{name} (the peak is made by `{found['peak']}`):\n")
            lines.append(_causes(found))
    return "\n".join(lines)


def _causes(found: dict[str, Any]) -> str:
    body = [
        [mb(size), " ".join(filter(None, (category, finer))), f"`{module or 'not known'}`", f"`{op}`", dtype or ""]
        for category, finer, module, op, dtype, size in found["causes"]
    ]
    return markdown(["MB", "category", "where", "op", "dtype"], body).replace(
        "|---|---:|---:|---:|---:|", "|---:|---|---|---|---|"
    )


def _order(known: list[dict[str, Any]]) -> str:
    """Tell why blocks of equal requests have other sizes."""
    hugging = next(each["sequence"] for each in known if each["run"] == "huggingface nf4")
    assert hugging["same_sizes"]
    return (
        f"Hugging Face's two runs make the same {hugging['measured']:,} requests, of the same sizes, {hugging['in_other_places']:,} of them in another place, the "
        f"last of these number {hugging['last_in_another_place']:,}: in the measured run transformers loaded weights on several threads, so that several stood on the "
        "card before they were quantized; in the simulated one on one thread. What loading leaves free is cut differently, and a block of the large pool "
        "is not split when at most 1 MiB would remain, so later requests get blocks that are larger by up to that. "
        f"Given again to the model of the allocator, each of the recordings of Hugging Face's comes to its own figure{_replayed(known)}."
    )


def _replayed(known: list[dict[str, Any]]) -> str:
    """Check that, and return nothing."""
    for each in known:
        if each["run"].startswith("huggingface"):
            assert all(each[side]["replayed"] == each[side]["allocated"] for side in ("measured", "simulated")), each
    return ""


def _before() -> str:
    """Return what another simulated run of the same came to, if it differs."""
    found = row("litgpt", model="tiny-llama-1.1b", quant="bnb.nf4")
    known = json.loads((DATA / "hands.json").read_text(encoding="utf-8"))["twins"]
    ours = next(each["simulated"]["allocated"] for each in known if each["run"] == "litgpt nf4")
    if found is None or found["allocated"] == ours:
        return ""
    return f", nor in the simulated run of the first table above, which came to {found['allocated']:,} bytes"


def _issue() -> str:
    """Point to litgpt#1112, and tell what is left of it today."""
    return (
        "## litgpt#1112: QLoRA above LoRA\n\n"
        "Found, with litgpt of that time and to the percent: [the casebook](casebook.md#litgpt1112). Left of it today: "
        "litgpt replaces the embedding of a quantized model after it made the optimizer (`litgpt/finetune/lora.py`); the new "
        f"one is not frozen, and gets a gradient that nobody uses or clears.{_small()}\n"
    )


def _small() -> str:
    """Return what that embedding does to a small model, if it does."""
    plain, quantized = (row("litgpt", model="pythia-70m", quant=quant) for quant in ("none", "bnb.nf4"))
    if plain is None or quantized is None or quantized["allocated"] <= plain["allocated"]:
        return ""
    gradients = quantized["categories"]["gradients"] - plain["categories"]["gradients"]
    return (
        f" On Pythia-70m it is enough for nf4 to need {mb(quantized['allocated'] - plain['allocated'])} MB more than LoRA "
        f"today ({mb(gradients)} MB of it gradients)."
    )


def _hands() -> str:
    """Tell how Hugging Face's run differs from litgpt's, row by row."""
    known = json.loads((DATA / "hands.json").read_text(encoding="utf-8"))["hands"]
    text = [
        "## Where the same model differs, and why\n",
        "TinyLlama, today's litgpt against transformers with peft, what is alive at the peak by what it is for; both peak in "
        "the backward of the loss. The rows sum to the difference to the byte.\n",
    ]
    for quant, each in sorted(known.items(), reverse=True):
        rows = each["rows"]
        total = each["huggingface"] - each["litgpt"]
        assert sum(found["hf"] - found["litgpt"] for found in rows) == total
        shown, rest = rows[:SHOWN], rows[SHOWN:]
        body = [
            [
                f"{(found['hf'] - found['litgpt']) / 1e6:+,.1f}",
                found["role"],
                found["dtype"],
                mb(found["litgpt"]),
                mb(found["hf"]),
            ]
            for found in shown
        ]
        body.append([f"{sum(f['hf'] - f['litgpt'] for f in rest) / 1e6:+,.1f}", f"{len(rest)} others", "", "", ""])
        text.append(f"{quant}: Hugging Face - litgpt = {total:+,} bytes.\n")
        text.append(
            markdown(["MB", "what", "dtype", "litgpt, MB", "Hugging Face, MB"], body).replace(
                "|---|---:|---:|---:|---:|", "|---:|---|---|---:|---:|"
            )
        )
    text.append(
        "- **Dropout in front of the adapters.** peft keeps adapters in float32 and casts each adapted layer's input to it, "
        "once for query and once for value; litgpt has one fused projection, and stays in bfloat16.\n"
        "- **Attention.** litgpt repeats keys and values for every query head before the kernel, and keeps the output of its "
        "fused adapters (`aten::cat`) besides; transformers keeps queries and keys as the kernel takes them, not repeated.\n"
        "- **Logits.** transformers keeps them once in bfloat16 and takes the loss of all tokens at once in float32; litgpt "
        "has them in pieces of 128 tokens, which Lightning Fabric makes float32.\n"
        "- **nf4 only.** litgpt quantizes the output layer too, transformers leaves it; litgpt trains the replaced embedding "
        "by accident, below.\n"
    )
    return "\n".join(text)


def _twins() -> str:
    """Tell why a card and its simulation differ by a thousandth on quantized runs."""
    known = json.loads((DATA / "hands.json").read_text(encoding="utf-8"))["twins"]
    body = []
    for each in known:
        real, ours = each["measured"], each["simulated"]
        body.append(
            [
                each["run"],
                f"{ours['allocated'] - real['allocated']:+,}",
                f"{ours['requested'] - real['requested']:+,}",
                f"{ours['blocks'] - real['blocks']:+,}",
                f"{ours['of_init'] - real['of_init']:+,}",
            ]
        )
    return (
        "## Measured and simulated: the last thousandth\n\n"
        "Simulated less measured (H200), bytes at the peak. *Requested* is what the program asked for in the blocks that are "
        "alive.\n\n"
        + markdown(["run", "allocated", "requested", "blocks", "requested, left over from building"], body)
        + f"\n{_order(known)} "
        "In litgpt's nf4 run the rest is garbage: linear layers that "
        "litgpt's LoRA layers replaced, already quantized on the card, in reference cycles that Python's collector had not "
        f"yet found in the measured run{_before()}.\n"
    )
