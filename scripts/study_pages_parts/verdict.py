"""README.md: the verdict, on one page."""

# ruff: noqa: E501 - prose in lists of paragraphs
from __future__ import annotations

from study_pages_parts.cost import crossing
from study_pages_parts.data import (
    BATCHES,
    document,
    gb,
    markdown,
    mb,
    measured_growth,
    measured_points,
    reported,
    row,
    rows,
    slope,
)
from study_pages_parts.fixes import exact_points, saving
from study_pages_parts.models import MODELS
from study_pages_parts.models import verdict as verdict_of
from study_pages_parts.table import LENGTH, beyond_reserved, errors, simulated_cell, slopes


def pages() -> dict[str, str]:
    """Return the page."""
    found = errors()
    worst = max(abs(value) for value in found.values())
    close = sum(abs(value) <= 0.02 for value in found.values())
    growth = measured_growth()
    groups = {str(group.config["quant"]): group for group in growth.groups}
    today = {quant: float(group.total.line.slope) for quant, group in groups.items()}
    cross = growth.crossovers[0]
    then = crossing("h200-2023")
    kept = _kept_inputs()
    equal, both = exact_points()
    beyond = max(map(abs, beyond_reserved().values()))
    weights = {quant: measured_points()[quant, 16].figures for quant in ("none", "bnb.nf4")}
    by_name = {
        quant: {category.value: amount.size for category, amount in figures.categories.items()}
        for quant, figures in weights.items()
    }
    implied = [LENGTH * theirs / ours for theirs, ours in (slopes(quant) for quant in ("none", "bnb.nf4"))]
    text = f"""# Why 4-bit saved memory at micro batch 1 and cost memory at 16

You fine-tuned Pythia-70m with LoRA in 16-mixed, plain and with `bnb.nf4`, and saw nf4 win at a micro batch of 1 and
lose from 16 on. Was that expected, or a fault?

**Both. That 4-bit stops paying for a small model is expected; that it *cost* memory was a fault of the libraries of
2023, and part of it is there today.** Quantization shrinks weights, and weights do not grow with the batch. Everything
else does.

- **What 4-bit saves, once:** weights {mb(by_name["none"]["weights"])} → {mb(by_name["bnb.nf4"]["weights"])} MB, and
  {mb(by_name["none"]["weight_casts"])} MB of float16 copies that autocast makes of frozen weights: most of it copies of the
  output layer, one for every 128 tokens, because autocast caches only casts of weights that are trained. That is most of what nf4
  won at small batches, and it is not quantization that is needed to be rid of it.
- **What 4-bit cost per sample, then:** {mb(slopes("bnb.nf4")[0] - slopes("none")[0])} MB in your table, {mb(slopes("bnb.nf4")[1] - slopes("none")[1])} MB in our
  simulation of the packages of that time. {kept}
- **What it costs per sample today:** {mb(today["bnb.nf4"] - today["none"])} MB (measured, H200): bitsandbytes no longer keeps the inputs. What is
  left is that its layers return the dtype of their input, which is float32 under autocast, where a plain layer returns
  float16.
- **So the lines cross** at mbs {f"{then:.1f}" if then else "-"} with the packages of 2023 (simulated), and at {float(cross.at):.1f} today (measured).
  The measured runs take the loss inside autocast. Lightning Fabric, which lit-gpt uses, makes the output float32 for
  the plain model too{_fabric()}

## Your table

{_table()}
Allocated, GB. {close} of {len(found)} cells within 2 %, all within {worst * 100:.1f} % ([cell by cell](table.md)). The length of your longest
sample is not in the report; the slopes of the two columns imply {implied[0]:.0f} and {implied[1]:.0f} tokens, and {LENGTH} is what we ran.

## What to change

{_fixes()}
Pythia-70m, 16-mixed, {LENGTH} tokens, mbs 16, allocated on a simulated H200 ({equal} of {both} of its runs without a fix equal the
measured allocated and reserved peaks to the byte; [all fixes, and how well each was predicted](fixes.md)).
{_measured_note()}
In short: train in `bf16-true`, and do not keep all logits. With a vocabulary of 50,304 and 512 channels the logits, not
the weights, are what this run's memory is about. For other models: in `bf16-true` nf4 saves the same at every batch; in mixed
precision it pays up to a batch that [depends on the model]({_models()}).

## What is open

- The cells of the table above are no independent test: that Fabric's float32 output and the rebuilding of weights in
  half precision belong to that run was found by comparing variants with the reported cells, each then confirmed in the
  libraries' sources. The length is estimated from the same set-up.
- The rules that predict what a fix saves were adjusted on the simulated runs that they are shown beside; the runs on
  the real card came after.
- The nvidia-smi column: taken as MiB / 1000 it is a context above our reserved bytes in most cells, and up to {gb(beyond, 1)} GB off
  in others. A validation batch makes the cache grow by about as much ([table](table.md#nvidia-smi)); whether one did is not known.
- T4 and A10G figures are simulated. Only the H200 was measured.
- That {LENGTH} is the longest sample of the data of that time follows from both slopes; the data was not at hand.

## Pages

- [The reported table](table.md), the sequence length
- [What a sample costs](cost.md): categories, crossover, the whole difference down to tensors
- [Causes taken away](fixes.md): predicted and shown
- [Measured beside simulated](measured.md): the runs on the real card
- [When does 4-bit pay](models.md): six models, five precisions, four kinds of quantization
- [The same model in other hands](recipes.md): litgpt today and Hugging Face
- [The casebook](casebook.md): other people's reports, each in small, with its cause

All pages are computed: `python scripts/study_pages.py` writes them, this one too, from `data/` and
`traces/sweep-pythia-70m`, and `tests/test_study.py` checks that they are what it writes.
"""
    return {"README.md": text}


def _models() -> str:
    """Return where that is told; checks that it is what the grid says."""
    true = {verdict_of(model, "bf16-true", "bnb.nf4") for model in MODELS}
    mixed = [verdict_of(model, "16-mixed", "bnb.nf4") for model in MODELS]
    assert true <= {"always", "-"}, true
    assert all(each.startswith("up to") for each in mixed), mixed
    return "models.md"


def _fabric() -> str:
    """Return what today's bitsandbytes makes of the report's own set-up."""
    gaps = {}
    for mbs in BATCHES:
        plain = row("h200-2023", quant="none", mbs=mbs)
        quantized = row("h200-fabric", quant="bnb.nf4", mbs=mbs)
        if plain and quantized:
            gaps[mbs] = quantized["allocated"] - plain["allocated"]
    if not gaps:
        return "."
    ends = f"{gb(-gaps[min(gaps)])} GB less at mbs {min(gaps)}, {gb(-gaps[max(gaps)])} GB less at mbs {max(gaps)}"
    if all(gap < 0 for gap in gaps.values()):
        return f": there, with today's bitsandbytes,\n  nf4 needs less than plain at every batch of your table ({ends}; simulated)."
    return f" (nf4 with today's bitsandbytes: {ends}; simulated)."


def _kept_inputs() -> str:
    small = [mbs for mbs in BATCHES if mbs >= 4]  # from where on the peak is at the same place in both
    old, new = (
        slope({each["mbs"]: each["allocated"] for each in rows(part, quant="bnb.nf4") if each["mbs"] in small})
        for part in ("h200-2023", "h200-today")
    )
    share = old - new
    return (
        f"{mb(share)} MB of it are the inputs of the 4-bit layers, which bitsandbytes 0.41 kept for backward although\n"
        "  only the gradient of the weight needs them, and a quantized weight has none."
    )


def _table() -> str:
    body = []
    for mbs in BATCHES:
        line = [str(mbs)]
        for quant in ("none", "bnb.nf4"):
            line += [f"{reported()[quant, mbs][0]:.2f}", gb(simulated_cell(quant, mbs)[0])]
            line.append(gb(measured_points()[quant, mbs].figures.peak.size))
        body.append(line)
    head = ["mbs"]
    for name in ("plain", "nf4"):
        head += [f"{name}: reported", "2023, simulated", "today, H200"]
    return markdown(head, body)


def _fixes() -> str:
    body = []
    for fix in ("autocast-output", "half-frozen-weights", "bf16-true", "checkpointed-loss"):
        line = [f"`--fix {fix}`"]
        for quant in ("none", "bnb.nf4"):
            each = saving(fix, quant, 16)
            line += [gb(each["before_bytes"], 2), gb(each["after_bytes"], 2)] if each else ["-", "-"]
        body.append(line)
    return markdown(["fix", "plain", "with it", "nf4", "with it"], body)


def _measured_note() -> str:
    measured = document("measured")["fixes"]
    if not measured:
        return ""
    errors_ = []
    for each in measured:
        ours = saving(each["fix"], each["config"]["quant"], each["config"]["mbs"])
        if ours:
            real = each["before_bytes"] - each["after_bytes"]
            errors_.append(abs((ours["before_bytes"] - ours["after_bytes"]) / real - 1))
    return (
        f"{len(errors_)} of them were also measured on a real H200; the simulated saving is off by at most "
        f"{max(errors_):.2%}.\n"
    )
