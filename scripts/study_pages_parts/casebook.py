"""Sixteen public reports, each in small: what was said, what our runs come to, the finding, and the cause."""

# ruff: noqa: ISC004, E501 - prose in lists of paragraphs
from __future__ import annotations

import json
from functools import cache
from itertools import pairwise
from typing import Any

from study_pages_parts.data import DATA, gb, markdown

GIB, MIB = 1 << 30, 1 << 20


@cache
def runs(name: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the runs of the casebook by case and name."""
    path = DATA / f"casebook-{name}.json"
    rows = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    return {(row["case"], row["run"]): row for row in rows}


@cache
def reported() -> list[dict[str, Any]]:
    """Return what the reports state."""
    found: list[dict[str, Any]] = json.loads((DATA / "casebook-reported.json").read_text(encoding="utf-8"))
    return found


def size(case: str, run: str, key: str = "allocated") -> int:
    """Return one figure of a simulated run."""
    return int(runs("simulated")[case, run][key])


def measured(case: str, run: str) -> dict[str, Any] | None:
    """Return the run on the real card, if it ended well and the card is the one that was simulated."""
    real, ours = runs("measured").get((case, run)), runs("simulated")[case, run]
    return real if real and real["status"] == "ok" and real["card"] == ours["card"] else None


def finding(case: str, run: str, name: str) -> int:
    """Return the bytes of a finding; 0 where it was not found."""
    return next((int(each["bytes"]) for each in runs("simulated")[case, run]["findings"] if each["id"] == name), 0)


def pages() -> dict[str, str]:
    """Return the page."""
    if not runs("simulated"):
        return {}
    parts = [_case(known) for known in reported() if any(case == known["case"] for case, _ in runs("simulated"))]
    told = [known for known in reported() if any(case == known["case"] for case, _ in runs("simulated"))]
    both = [key for key in runs("measured") if key in runs("simulated") and measured(*key)]
    equal = sum(runs("measured")[key]["allocated"] == runs("simulated")[key]["allocated"] for key in both)
    note = (
        f" {len(both)} of them also ran on a real H200; {equal} of these have the simulated allocated peak to the byte."
        if both
        else ""
    )
    text = [
        "# The casebook\n",
        f"{len(told)} public reports of surprising memory, each as a small program in `scripts/casebook/` (models of the "
        f"reported shape with random weights), run by `memprof run` on a simulated card: {len(runs('simulated'))} runs.{note} "
        "*Found* is what `memprof explain` names in the file, in GB of 10^9 bytes. What a report leaves unsaid (length, "
        "adapters, versions) is chosen here, so only those figures are comparable of which all that matters is known: "
        "they stand in the column *reported*.\n",
        markdown(
            ["report", "cause", "found by"],
            [
                [f"[{known['case']}](#{_anchor(known['case'])})", SUMMARY[known["case"]][0], _found_by(known["case"])]
                for known in told
            ],
        ).replace("|---|---:|---:|", "|---|---|---|"),
        *parts,
        "## Commands\n\n```\npython scripts/casebook.py run OUT                  # simulated; --on cuda on a real card\n"
        "python scripts/casebook.py collect OUT simulated\nmemprof run --simulate h200 -o run.pickle "
        "scripts/casebook/megatron_4638.py resumed 1 && memprof explain run.pickle\n```\n",
    ]
    return {"casebook.md": "\n".join(text)}


SUMMARY = {
    "litgpt#1112": (
        "inputs kept by the 4-bit product, and kept on after backward, for the next step to stand on",
        "quantized-inputs-kept, held-after-backward",
    ),
    "litgpt#501": (
        "the subject of this study; here its nvidia-smi column: a validation makes the cache grow, which may be it",
        "fragmentation",
    ),
    "litgpt#477": (
        "activations: proportional to the length, and 4-bit changes none of them",
        "`memprof growth --over seq`",
    ),
    "torchtune#2255": (
        "not reproduced, with torchtune's own layers neither; a 4-bit product that keeps its inputs would do it",
        "quantized-inputs-kept",
    ),
    "torchtune#1398": ("only layers with adapters were quantized", "linears-not-quantized"),
    "peft#1514": (
        "a copy of the input for every adapter, and its dropout mask: per token more than the gradients saved",
        "dropout-masks, `memprof compare`",
    ),
    "peft#785": ("float32 norms make 4-bit layers return float32", "quantized-output-float32, weights-float32"),
    "peft#832": ("the preparation for quantized models, called on one that is not", "weights-float32"),
    "bitsandbytes#1569": (
        "the same preparation: float32 norms, and float32 through the MLP",
        "weights-float32, frozen-weight-casts, `memprof compare`",
    ),
    "bitsandbytes#1141": (
        "not reproduced: the same makes it need more than it should, not more than float16",
        "weights-float32, quantized-output-float32",
    ),
    "transformers#33902": ("a float32 copy of all logits", "logits-copied, logits-dominate"),
    "llama-cookbook#41": (
        "the output of every step is kept, logits and all",
        "grows-every-step",
    ),
    "transformers#26221": ("a model in eval() does not checkpoint", "checkpointing-not-working"),
    "LlamaFactory#1595": ("logits of every batch in a list", "evaluation-larger"),
    "Megatron-LM#4638": ("the optimizer's state is there in the first forward", "optimizer-state-before-forward"),
    "pytorch#37250": ("cached blocks and the context", "`memprof breakdown --at end`"),
    "fms-acceleration#14": ("4-bit saves weights, and nothing else", "three figures of `memprof breakdown`"),
}
"""Cause and what names it."""


def _found_by(case: str) -> str:
    """Return what names the cause: findings only where a run of the case has them."""
    there = {each["id"] for (key, _), row in runs("simulated").items() if key == case for each in row["findings"]}
    named = [name for name in SUMMARY[case][1].split(", ") if name in there or not name.replace("-", "").isalnum()]
    return ", ".join(named) or "`memprof compare`"


def _anchor(key: str) -> str:
    return key.replace("#", "").replace("/", "").lower()


def _case(known: dict[str, Any]) -> str:
    case = known["case"]
    body = []
    for (key, name), row in runs("simulated").items():
        if key != case:
            continue
        real = measured(key, name)
        found = ", ".join(f"{each['id']} {gb(each['bytes'])}" for each in row["findings"][:3])
        body.append(
            [
                f"`{name}`",
                str(known["stated"].get(name, "")),
                (
                    gb(row["allocated"], 3)
                    if row["status"] == "ok"
                    else f"{gb(row['allocated'], 3)}, then out of memory"
                ),
                gb(real["allocated"], 3) if real else "",
                gb(row["reserved"], 3),
                found,
            ]
        )
    head = [
        "run",
        f"reported ({known['unit']})" if known["unit"] else "reported",
        "allocated, simulated",
        "measured",
        "reserved",
        "found",
    ]
    row = next(row for (key, _), row in runs("simulated").items() if key == case)
    script = "`memprof capture`" if row["script"] == "capture" else f"`scripts/casebook/{row['script']}`"
    tell = TELL.get(case)
    return "\n".join(
        [
            f"## {case}\n",
            f"{known['what']}. In the thread: {known['thread']}. [The thread]({_url(case)}); {script}, {row['card']}.\n",
            markdown(head, body).replace("|---:|\n", "|---|\n", 1),
            tell() if tell else "",
        ]
    )


def _url(case: str) -> str:
    from casebook_runs import CASES

    return next(each.url for each in CASES if each.key == case)


def _litgpt_1112() -> str:
    held = finding("litgpt#1112", "then_nf4_512", "held-after-backward")
    kept = finding("litgpt#1112", "then_nf4_512", "quantized-inputs-kept")
    stated = reported()[0]["stated"]
    errors = {name: size("litgpt#1112", name) / 1e9 / stated[name] - 1 for name in stated if name.endswith("512")}
    dropped = size("litgpt#1112", "nf4_512") - size("litgpt#1112", "nf4_512_dropped")
    today = size("litgpt#1112", "nf4_512_today")
    return (
        "bitsandbytes 0.41, which litgpt required then, keeps the input of every 4-bit layer as an attribute of its "
        "autograd function. What autograd saves is released by backward; an attribute lives as long as the graph, and "
        "the graph lives as long as the script's name `logits`, until the next step's forward has ended. So at the peak, in "
        f"the second forward, these inputs stand twice: {gb(kept)} GB; {gb(held)} GB of them and of logits are of a step whose "
        "backward is over. With litgpt's own code of that day (the runs `then_`) the four configurations of 512 tokens come "
        f"out at {min(errors.values()):+.1%} to {max(errors.values()):+.1%} of what was stated, with nothing fitted. `del logits` "
        f"after backward alone saves {gb(dropped)} GB; with today's bitsandbytes the run needs {gb(today)} GB. The thread's own "
        "pair, 14.49 and 18.15 GB, is of longer batches than the 512 tokens of its printed settings: the two lengths of "
        "`then_lora_long` and `then_nf4_long` (512 tokens, then 755) were chosen to meet it, and show only that one cause "
        "suffices for both figures.\n"
    )


def _litgpt_477() -> str:
    first, last = size("litgpt#477", "nf4_512"), size("litgpt#477", "nf4_4096")
    weights = runs("simulated")["litgpt#477", "nf4_512"]["categories"]["weights"]
    slope = (last - first) / (4096 - 512)
    room = 24 * GIB
    return (
        f"A token costs {slope / 1e6:.2f} MB ({_between()}); the 4-bit weights are {gb(weights)} GB. A card of 24 GiB is full at "
        f"about {512 + (room - first) / slope:,.0f} tokens, with nothing outside of the allocator counted. What helps is "
        "checkpointing, or a shorter length: no kind of quantization.\n"
    )


def _between() -> str:
    """Return what a token costs between each two lengths."""
    lengths = (512, 1024, 2048, 4096)
    sizes = [size("litgpt#477", f"nf4_{n}") for n in lengths]
    steps = [(b - a) / (n - m) / 1e6 for (a, b), (m, n) in zip(pairwise(sizes), pairwise(lengths), strict=True)]
    return f"{min(steps):.2f} to {max(steps):.2f} between neighbouring lengths"


def _torchtune_2255() -> str:
    lora, qlora, old = (size("torchtune#2255", name) for name in ("lora", "qlora", "qlora_2023"))
    own = json.loads((DATA / "torchtune.json").read_text(encoding="utf-8"))
    return (
        f"With bitsandbytes' layers of today QLoRA needs {gb(lora - qlora)} GB less. With torchtune's own (0.6.1, torchao 0.9.0, not compiled; "
        f"`torchtune_2255_own.py`) {gb(own['lora']['peak'])} GB become {gb(own['qlora']['peak'])} GB at {own['lora']['samples']} x {own['lora']['tokens']} tokens: what a maintainer saw. "
        f"With the product of bitsandbytes 0.41, which keeps its inputs, QLoRA needs {gb(old - lora)} GB more than LoRA: on a model of this size, whose "
        "embedding of 128,256 rows is not quantized and whose logits are most of the peak, anything that a 4-bit layer keeps outweighs its weights. Of the "
        "reporter's run the excerpts that we could search name no figure and no cause: **open**.\n"
    )


def _torchtune_1398() -> str:
    loaded = {
        name: runs("simulated")["torchtune#1398", name]["said"][0]["now"] / GIB
        for name in ("adapted_only", "all_layers")
    }
    return (
        f"Once loaded: {loaded['adapted_only']:.2f} GiB with only query and value quantized (14.41 reported), "
        f"{loaded['all_layers']:.2f} GiB with every linear layer but the output layer (6.19 reported; torchtune's scales are "
        "quantized too).\n"
    )


def _peft_1514() -> str:
    lengths = (1024, 2048, 4096, 8192)
    gap = {
        n: size("peft#1514", f"lora_{n}") - size("peft#1514", f"full_{n}")
        for n in lengths
        if ("peft#1514", f"lora_{n}") in runs("simulated")
    }
    text = ", ".join(f"{n} tokens {gb(value)} GB" for n, value in gap.items())
    few = {
        n: size("peft#1514", f"qv_{n}") - size("peft#1514", f"full_{n}")
        for n in lengths
        if ("peft#1514", f"qv_{n}") in runs("simulated")
    }
    text_few = ", ".join(f"{n} tokens {gb(value)} GB" for n, value in few.items())
    return (
        f"LoRA (r 64 on every layer) less full training: {text}. What LoRA saves, gradients and optimizer state, does not grow; "
        "what it adds does: a float32 copy of every adapted layer's input, its dropout and the mask. So there is a crossover, as "
        f"the reporter found, and no fault. With adapters on query and value only (r 8): {text_few}.\n"
    )


def _peft_785() -> str:
    case = "peft#785"
    return (
        "The model is not named; this one is a small Llama. On it 4-bit weights save "
        f"{(size(case, 'lora') - size(case, 'nf4')) / 1e6:,.1f} MB, and `prepare_model_for_kbit_training` costs far more: it makes the "
        "norms float32, the 4-bit layers take float32 and return it "
        f"(quantized-output-float32: {gb(finding(case, 'prepared', 'quantized-output-float32'))} GB), and that grows with the batch. Without it 4-bit fits "
        "where LoRA fits.\n"
    )


def _peft_832() -> str:
    case = "peft#832"
    said = runs("simulated")[case, "prepared"]["said"]
    context = said[0]["used"] - said[0]["reserved"]
    loaded, most = said[0]["used"] / MIB, (said[1]["most reserved"] + context) / MIB
    stated = next(known["stated"] for known in reported() if known["case"] == case)
    return (
        f"Loaded, the card has {loaded:,.0f} MiB in use ({loaded / stated['as_loaded'] - 1:+.1%} of what was reported); while the call runs, up to "
        f"{most:,.0f} MiB ({most / stated['prepared'] - 1:+.1%}). Of these {said[1]['now'] / MIB:,.0f} MiB are the float32 weights; the rest is the context "
        "and cache, since the room of a float16 weight does not fit its float32 copy.\n"
    )


def _bnb_1569() -> str:
    case = "bitsandbytes#1569"
    lora, nf4, prepared = (size(case, name) for name in ("lora", "nf4", "prepared"))
    stated = next(known["stated"] for known in reported() if known["case"] == case)
    held = {name: runs("simulated")[case, name]["categories"] for name in ("nf4", "prepared")}
    more = {
        key: held["prepared"].get(key, 0) - held["nf4"].get(key, 0)
        for key in ("activations", "weights", "weight_casts")
    }
    return (
        f"LoRA less nf4: {(lora - nf4) / MIB:,.0f} MiB here, {stated['lora'] - stated['nf4']:,} reported: the weights. Prepared less LoRA: "
        f"{(prepared - lora) / MIB:+,.0f} MiB here, {stated['prepared'] - stated['lora']:+,} reported. Adapters (r 16 on every layer) and autocast are our choice, so the sizes "
        "are not comparable; order and causes are. The call makes norms, embedding and output layer float32: "
        f"{gb(more['weights'])} GB of weights, {gb(more['weight_casts'])} GB of autocast's copies of them, and {gb(more['activations'])} GB of activations, since 4-bit layers that "
        "are given float32 return it. What to do: leave the call out, or cast the norms back to bfloat16 after it.\n"
    )


def _bnb_1141() -> str:
    case = "bitsandbytes#1141"
    beyond = {
        name: size(case, name) - runs("simulated")[case, name]["categories"]["weights"]
        for name in ("fp16", "nf4", "prepared")
    }
    half, nf4, prepared = (size(case, name) for name in ("fp16", "nf4", "prepared"))
    return (
        f"**Not reproduced** with today's packages: nf4 needs {gb(half - nf4)} GB less than float16, and prepared for training still {gb(half - prepared)} GB less. What is "
        f"there is the direction: beyond its weights the prepared model needs {gb(beyond['prepared'])} GB, float16 {gb(beyond['fp16'])} GB and nf4 {gb(beyond['nf4'])} GB, since its "
        "MLP runs in float32. transformers of that time also made all logits float32 and kept keys and values; the report's figures are not in the excerpts that we could search.\n"
    )


def _transformers_33902() -> str:
    case = "transformers#33902"
    return (
        f"8,192 tokens, nf4, no gradients: the float32 copy costs {gb(size(case, 'float') - size(case, 'half'))} GB, and all logits but the last token's another "
        f"{gb(size(case, 'half') - size(case, 'last'))} GB (`logits_to_keep=1`).\n"
    )


def _llama_cookbook_41() -> str:
    case = "llama-cookbook#41"
    return (
        f"Four steps whose outputs are kept in a list cost {gb(size(case, 'held') - size(case, 'dropped'))} GB here: their logits. Keep "
        "`output.loss.detach()`, and `del output`.\n"
    )


def _transformers_26221() -> str:
    case = "transformers#26221"
    none, on, off = (size(case, name) for name in ("none", "on", "eval"))
    return (
        f"Checkpointing saves {(none - on) / 1e6:,.1f} MB; in `eval()` it saves {(none - off) / 1e6:,.1f} MB: transformers' layers checkpoint only while "
        "`self.training`.\n"
    )


def _llamafactory_1595() -> str:
    case = "LlamaFactory#1595"
    return (
        f"Twelve batches: {gb(size(case, 'collected'))} GB, against {gb(size(case, 'reduced'))} GB where only the predictions are kept; the first grows with the "
        "evaluation set, and every step of it is small.\n"
    )


def _megatron_4638() -> str:
    case = "Megatron-LM#4638"
    fresh, resumed, longer = (size(case, name) for name in ("fresh", "resumed", "fresh_longer"))
    return (
        f"The first step of a resumed run peaks {(resumed - fresh) / 1e6:,.1f} MB above that of a fresh one: Adam's two moments are there before the first forward. A fresh run "
        f"that goes on peaks at {gb(longer, 3)} GB, {(longer - resumed) / 1e6:+,.1f} MB from the resumed one: size the batch by a step after the first optimizer step.\n"
    )


def _pytorch_37250() -> str:
    row = runs("simulated")["pytorch#37250", "kept"]
    before = row["said"][0]
    after = runs("simulated")["pytorch#37250", "emptied"]["said"][-1]
    return (
        f"The model is gone: {before['now'] / 1e6:,.1f} MB are allocated (cuBLAS' workspaces, which live as long as their handles), {gb(before['reserved'])} GB are reserved, and the card has "
        f"{gb(before['used'])} GB in use. After `empty_cache()`: {after['reserved'] / 1e6:,.1f} MB reserved, {gb(after['used'])} GB in use. "
        f"A workspace of {after['now'] / 1e6:,.1f} MB keeps the whole segment that it lies in; the other {gb(after['used'] - after['reserved'])} GB are the context, which goes with "
        "the process.\n"
    )


def _fms_14() -> str:
    case = "fms-acceleration#14"
    body = []
    for name in ("lora", "nf4"):
        row = runs("simulated")[case, name]
        body.append(
            [
                name,
                *(f"{row[key] / GIB:.2f}" for key in ("reserved", "allocated", "at_the_end")),
                f"{(row['allocated'] - row['at_the_end']) / GIB:.2f}",
            ]
        )
    return (
        markdown(["run, GiB", "reserved", "peak", "at rest", "peak less rest"], body)
        + "\nThe length and the adapters are not stated (4,096 tokens with checkpointing here). Peak less rest is nearly the same in both, as reported: what 4-bit "
        "saves is weights, at rest and at the peak alike.\n"
    )


def added_by_validation(run: str) -> int:
    """Return the reserved bytes that a validation batch of 540 tokens adds, after one of 520."""
    said = runs("simulated")["litgpt#501", run]["said"]
    return int(said[-1]["reserved"] - said[-2]["reserved"])


def _litgpt_501() -> str:
    text = []
    for name in ("none_8", "nf4_8"):
        said = runs("simulated")["litgpt#501", name]["said"]
        text.append(
            f"`{name}`: {gb(said[0]['reserved'])} GB reserved after the longest batch, {gb(said[-3]['reserved'])} GB after shorter ones, {gb(said[-2]['reserved'])} GB "
            f"after a validation batch of 520 tokens, {gb(said[-1]['reserved'])} GB after one of 540"
        )
    return (
        "lit-gpt validates first, trains on the longest sample, then on shorter ones, and validates again every 100 optimizer steps, then with the logits of a "
        f"batch in one piece (lengths drawn here). {'; '.join(text)}. As soon as no cached block is as large as a whole batch's logits, each "
        "validation batch that is longer than all before takes segments of its own, which stay. So what nvidia-smi shows "
        "after a validation is a matter of its longest batch. That this happened in the reported run is not known: **open**.\n"
    )


TELL = {
    "litgpt#1112": _litgpt_1112, "litgpt#501": _litgpt_501, "litgpt#477": _litgpt_477, "torchtune#2255": _torchtune_2255,
    "torchtune#1398": _torchtune_1398, "peft#1514": _peft_1514, "peft#785": _peft_785, "peft#832": _peft_832,
    "bitsandbytes#1569": _bnb_1569, "bitsandbytes#1141": _bnb_1141, "transformers#33902": _transformers_33902,
    "llama-cookbook#41": _llama_cookbook_41, "transformers#26221": _transformers_26221,
    "LlamaFactory#1595": _llamafactory_1595, "Megatron-LM#4638": _megatron_4638, "pytorch#37250": _pytorch_37250,
    "fms-acceleration#14": _fms_14,
}  # fmt: skip
"""What each case says beyond its table."""
