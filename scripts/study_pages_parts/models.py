"""When does 4-bit pay: models, precisions, kinds of quantization."""

# ruff: noqa: ISC004, E501 - prose in lists of paragraphs
from __future__ import annotations

from study_pages_parts.data import gb, markdown, percent, row, rows

PARTS = {"models": "nf4 against plain", "kinds": "kinds"}


def pages() -> dict[str, str]:
    """Return the page."""
    models = list(dict.fromkeys(each["model"] for each in rows("models")))
    order = ["pythia-70m", "pythia-160m", "pythia-410m", "pythia-1b", "tiny-llama-1.1b"]
    body = []
    losses = []
    for model in sorted(models, key=order.index):
        for precision in ("16-mixed", "bf16-true"):
            for mbs in sorted({each["mbs"] for each in rows("models", model=model)}):
                wanted = {"model": model, "precision": precision, "mbs": mbs}
                plain = row("models", quant="none", **wanted)
                quantized = row("models", quant="bnb.nf4", **wanted)
                if plain and quantized:
                    if quantized["allocated"] > plain["allocated"]:
                        losses.append(f"{model} {precision} mbs {mbs}")
                    body.append(
                        [
                            model,
                            precision,
                            str(mbs),
                            gb(plain["allocated"]),
                            gb(quantized["allocated"]),
                            gb(quantized["allocated"] - plain["allocated"]),
                            percent(quantized["allocated"], plain["allocated"]),
                        ]
                    )
    kinds = []
    for precision in ("32-true", "16-mixed", "bf16-mixed", "16-true", "bf16-true"):
        for mbs in (8,):
            line = [precision, str(mbs)]
            for quant in ("none", "bnb.nf4", "bnb.nf4-dq", "bnb.fp4", "bnb.int8-training"):
                found = row("kinds", quant=quant, precision=precision, mbs=mbs)
                line.append(gb(found["allocated"], 3) if found else "-")
            if set(line[2:]) != {"-"}:
                kinds.append(line)
    text = [
        "# When does 4-bit pay?\n",
        "Simulated H200, recipe `lit_gpt_2023` with today's bitsandbytes, LoRA r 8 on query and value, 512 tokens; "
        "allocated peak in GB. Quantization saves weights, which do not grow with the batch; what it costs grows. So it "
        f"pays most at small batches. It costs memory here in: {', '.join(losses) or 'none of these runs'}.\n",
        markdown(["model", "precision", "mbs", "plain", "nf4", "nf4 - plain", "off"], body, left=2),
        "## Kinds of quantization, Pythia-410m\n",
        markdown(["precision", "mbs", "none", "nf4", "nf4-dq", "fp4", "int8-training"], kinds),
        "A dash is a run that is not there.\n",
        "## Commands\n\n```\nsh scripts/study_simulate.sh OUT    # its last two sweeps\n```\n",
    ]
    return {"models.md": "\n".join(text)}
