"""The runs of the study on a real card, beside the same runs simulated; no page where nothing was measured."""

from __future__ import annotations

from typing import Any

from study_pages_parts.data import document, markdown, percent, rows

SIMULATED = ("h200-2023", "fixes", "litgpt", "huggingface", "huggingface-prepare_kbit=true")
SETTINGS = ("recipe", "model", "precision", "quant", "seq", "mbs", "fix", "matmul_4bit", "fabric_output", "optimizer")
SWITCHES = ("prepare_kbit", "gradient_checkpointing")


def twin(measured: dict[str, Any]) -> dict[str, Any] | None:
    """Return the simulated capture with the same settings on the same card."""
    wanted = {name: measured.get(name) for name in (*SETTINGS, *SWITCHES, "card")}
    return next((found for part in SIMULATED for found in rows(part, **wanted)), None)


def pages() -> dict[str, str]:
    """Return the page, if there is one."""
    known = document("measured")
    body = []
    for part in sorted(known["parts"]):
        for each in known["parts"][part]:
            ours = twin(each)
            named = (each.get(name) for name in ("recipe", "model", "precision", "quant", "fix"))
            details = [f"mbs {each['mbs']}", f"seq {each['seq']}"]
            details += [name for name in ("matmul_4bit", "fabric_output", *SWITCHES) if each.get(name)]
            body.append(
                [
                    " ".join(filter(None, (*named, *details))),
                    f"{each['allocated']:,}",
                    f"{ours['allocated']:,}" if ours else "-",
                    percent(ours["allocated"], each["allocated"]) if ours else "-",
                    f"{each['reserved']:,}",
                    f"{ours['reserved']:,}" if ours else "-",
                ]
            )
    if not body:
        return {}
    environment = known["environment"]
    versions = ", ".join(f"{name} {environment[name]}" for name in ("torch", "cuda", "python") if name in environment)
    text = [
        "# Measured beside simulated\n",
        f"The runs of `scripts/study_gpu.sh` on a real card ({versions}), bytes.\n",
        markdown(["run", "allocated, measured", "simulated", "off", "reserved, measured", "simulated"], body),
        "## Commands\n\n```\nsh scripts/study_gpu.sh OUT && python scripts/study_collect.py OUT measured\n```\n",
    ]
    return {"measured.md": "\n".join(text)}
