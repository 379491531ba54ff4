"""The same model with lit-gpt of 2023, today's litgpt, and Hugging Face; litgpt#1112."""

# ruff: noqa: E501 - prose in lists of paragraphs
from __future__ import annotations

from typing import Any

from study_pages_parts.data import gb, markdown, mb, row, stated

FOLDERS = (
    ("lit_gpt_2023", "lit-gpt of 2023"),
    ("litgpt", "litgpt today"),
    ("huggingface", "Hugging Face"),
    ("huggingface-prepare_kbit=true", "Hugging Face, prepare_model_for_kbit_training"),
    ("huggingface-gradient_checkpointing=true", "Hugging Face, gradient checkpointing"),
)
MODELS = ("pythia-70m", "tiny-llama-1.1b")
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
    text += [_largest(), _issue()]
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


def _issue() -> str:
    plain, quantized = (row("litgpt-1112", quant=quant) for quant in ("none", "bnb.nf4"))
    old = row("litgpt-1112-2023", quant="bnb.nf4")
    if plain is None or quantized is None or old is None:
        return ""
    lora, qlora = stated("litgpt-1112")["none"], stated("litgpt-1112")["bnb.nf4"]
    kept = old["allocated"] - quantized["allocated"]
    return (
        "## litgpt#1112: QLoRA above LoRA\n\n"
        f"TinyLlama, bf16-true, mbs 8; the thread states {lora} GB for LoRA and {qlora} GB with nf4, and no cause. The length "
        f"is not stated; {plain['seq']} tokens meet the plain figure. Today's litgpt, simulated H200, allocated peak:\n\n"
        + markdown(
            ["run", "allocated, GB", "reported"],
            [
                ["LoRA", gb(plain["allocated"], 3), str(lora)],
                ["nf4", gb(quantized["allocated"], 3), ""],
                ["nf4, 4-bit product of bitsandbytes 0.41", gb(old["allocated"], 3), str(qlora)],
            ],
        )
        + f"\nThe tensors are the inputs of the quantized layers: kept for backward although the weights are frozen, "
        f"{gb(kept)} GB of them. That alone turns nf4 from less than LoRA into more. "
        f"{qlora - old['allocated'] / 1e9:.2f} GB of the reported nf4 figure remain **open**. A smaller part: litgpt replaces "
        "the embedding of a quantized model after it made the optimizer (`litgpt/finetune/lora.py`); the new one is not "
        f"frozen, and gets a gradient that nobody uses or clears.{_small()}\n"
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
