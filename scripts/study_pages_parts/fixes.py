"""Causes taken away: predicted, simulated and measured savings."""

# ruff: noqa: ISC004, E501 - prose in lists of paragraphs
from __future__ import annotations

from typing import Any

from study_pages_parts.data import document, gb, markdown, mb, measured_points, percent, rows

WHAT = {
    "autocast-output": "quantized layers take and return autocast's dtype, as plain ones do",
    "bf16-true": "weights and activations in bfloat16, without autocast",
    "half-frozen-weights": "frozen linear weights are stored in autocast's dtype: no copy of them at every use",
    "checkpointed-loss": "output layer and loss for 128 tokens at a time under checkpointing: no logits are kept",
    "lm-head-chunk-32": "the output layer runs for 32 tokens at a time instead of 128",
}


def saving(fix: str, quant: str, mbs: int, name: str = "simulated") -> dict[str, Any] | None:
    """Return one row of savings."""
    for each in document(name)["fixes"]:
        config = each["config"]
        if (each["fix"], config["quant"], config["mbs"]) == (fix, quant, mbs):
            return dict(each)
    return None


def exact_points() -> tuple[int, int]:
    """Return how many simulated unfixed runs have the measured allocated peak to the byte, and of how many."""
    equal = 0
    both = 0
    for row in rows("h200-today"):
        point = measured_points()[row["quant"], row["mbs"]]
        both += 1
        equal += (point.figures.peak.size, point.figures.reserved) == (row["allocated"], row["reserved"])
    return equal, both


def pages() -> dict[str, str]:
    """Return the page."""
    equal, both = exact_points()
    body = []
    errors = []
    for each in document("simulated")["fixes"]:
        config = each["config"]
        before, after, predicted = each["before_bytes"], each["after_bytes"], each["predicted_bytes"]
        saved = before - after
        if abs(saved) < before / 1000 and each["fix"] != "autocast-output":
            continue
        off = ""
        if predicted is not None and saved:
            off = percent(before - predicted, saved)
            errors.append((abs((before - predicted) / saved - 1), each["fix"], config["quant"], config["mbs"]))
        real = saving(each["fix"], config["quant"], config["mbs"], "measured")
        body.append(
            [
                each["fix"],
                config["quant"],
                str(config["mbs"]),
                gb(before, 3),
                gb(after, 3),
                mb(saved),
                mb(before - predicted) if predicted is not None else "-",
                off,
                mb(real["before_bytes"] - real["after_bytes"]) if real else "-",
            ]
        )
    over = [error for error in errors if error[0] > 0.03]
    text = [
        "# Causes taken away\n",
        "A cause is proven by removing it. Each row is Pythia-70m, 16-mixed, 1037 tokens, once as it is and once with "
        f"the fix, on a simulated H200. {equal} of {both} simulated runs without a fix have the allocated and the reserved "
        "peak of the measured sweep to the byte.\n",
        "*Predicted* is computed from the runs without the fix only (`memprof/analysis/savings.py`): the recorded "
        "allocations with those of the cause gone. *Saves* is the difference of the two simulated peaks, and *measured* "
        "that of two runs on a real H200, where there are any. MB of 10^6 bytes.\n",
        "\n".join(f"- `{name}`: {what}." for name, what in WHAT.items()) + "\n",
        markdown(
            ["fix", "quant", "mbs", "before, GB", "after, GB", "saves, MB", "predicted, MB", "off", "measured, MB"],
            body,
            left=2,
        ),
        f"{len(errors) - len(over)} of {len(errors)} predictions are within 3 % of the saving; the others: "
        + ("; ".join(f"{fix} {quant} mbs {mbs} ({error:.1%})" for error, fix, quant, mbs in sorted(over)) or "none")
        + ". Runs that a fix changes by less than a thousandth are left out.\n",
        "## Commands\n\n```\nmemprof sweep --simulate h200 --mbs 1,8,16,32 --quant none,bnb.nf4 \\\n"
        "    --fix none,autocast-output,bf16-true,half-frozen-weights,checkpointed-loss,lm-head-chunk-32 -o OUT\n"
        "memprof fixes OUT\nsh scripts/study_gpu.sh OUT      # on a real card\n```\n",
    ]
    return {"fixes.md": "\n".join(text)}
