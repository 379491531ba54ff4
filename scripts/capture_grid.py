"""Many kinds of training recorded on a CUDA device: whether every byte is explained, and the peak the allocator's.

python scripts/capture_grid.py cases                 # one name a line
python scripts/capture_grid.py run CASE FOLDER       # writes FOLDER/CASE.json
python scripts/capture_grid.py table FOLDER          # writes docs/captures.md from those
"""

# ruff: noqa: INP001 - a folder of scripts is no package
from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

RECIPES = {
    f"{quant} {precision}": {"quant": quant, "precision": precision}
    for quant in ("none", "bnb.nf4", "bnb.nf4-dq", "bnb.int8-training")
    for precision in ("16-mixed", "bf16-true")
} | {
    "8-bit AdamW": {"optimizer": "adamw8bit"},
    "paged AdamW": {"optimizer": "paged-adamw"},
    "out of memory, capture": {"mbs": 16, "seq": 1037},
}
"""Captures of memprof's recipe: Pythia-70m with LoRA."""
FRACTIONS = {"out of memory, capture": 0.03, "out of memory, record": 0.002}
"""What `set_per_process_memory_fraction` leaves of the card."""
LOOPS: dict[str, Callable[[Callable[[], None]], object]] = {}
"""Plain loops, under `memprof.record` with nothing told but the steps; each returns what is to stay alive."""


def loop(name: str) -> Callable[[Any], Any]:
    """Add a loop."""

    def add(function: Any) -> Any:
        LOOPS[name] = function
        return function

    return add


def main() -> int:
    """Do what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("cases", "run", "judge", "table"))
    parser.add_argument("words", nargs="*")
    options = parser.parse_args()
    if options.what == "cases":
        print("\n".join([*RECIPES, *LOOPS]))  # noqa: T201 - a script's output
    elif options.what == "run":
        case, folder = options.words
        found = run(case)
        name = case.replace(" ", "_").replace(",", "")
        (Path(folder) / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(json.dumps(found))  # noqa: T201 - a script's output
    elif options.what == "judge":
        for file in options.words:
            found = judge(Path(file))
            del found["environment"]
            print(json.dumps({"file": Path(file).name, **found}))  # noqa: T201 - a script's output
    else:
        write_table(Path(options.words[0]))
    return 0


def run(case: str) -> dict[str, Any]:
    """Record one case and judge its file."""
    import torch

    from memprof import record
    from memprof.capture import capture
    from memprof.recipes.lit_gpt_2023 import LitGpt2023

    if case in FRACTIONS:
        torch.cuda.set_per_process_memory_fraction(FRACTIONS[case])
    raised = None
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "run.pickle"
        if case in RECIPES:
            config = LitGpt2023(**{"model": "pythia-70m", "mbs": 2, "seq": 256, "cycles": 2, **RECIPES[case]})
            result = capture(config, output=path, device="cuda")
        else:
            torch.manual_seed(0)
            try:
                with record(path, device="cuda") as recording:
                    alive = LOOPS[case](recording.step)
            except torch.OutOfMemoryError as error:
                raised = str(error)
                alive = None
            del alive
            assert recording.result is not None
            result = recording.result
        return {"case": case, "status": result.status, "raised": raised, "unmatched": result.unmatched, **judge(path)}


def judge(path: Path) -> dict[str, Any]:
    """Say what a file explains, and whether its peak is torch's."""
    import numpy as np

    from memprof.analysis.account import open_account
    from memprof.analysis.breakdown import break_down
    from memprof.analysis.state import state_at
    from memprof.categories.category import Category
    from memprof.errors import MemprofError
    from memprof.trace import load

    trace = load(str(path))
    device = next(each for each in trace.devices if len(each.events))
    account = open_account(trace, device)
    replay, classified = account.replay, account.classification
    unknown = classified.category == Category.UNKNOWN.code
    rows, count = replay.allocations, len(device.events)
    change = np.zeros(count + 2, np.int64)
    np.add.at(change, rows.born[unknown] + 1, rows.size[unknown])
    np.add.at(change, np.minimum(rows.freed[unknown], count) + 1, -rows.size[unknown])
    live_unknown = np.cumsum(change)[: count + 1]
    share = live_unknown / np.maximum(replay.allocated, 1)
    state = state_at(account, replay.peak_event)
    found: dict[str, Any] = {
        "events": count,
        "peak_bytes": int(replay.allocated.max()),
        "torch_peak_bytes": max(each.max_allocated_bytes or 0 for each in device.stats),
        "reserved_bytes": None if replay.reserved is None else int(replay.reserved.max()),
        "torch_reserved_bytes": max(each.max_reserved_bytes or 0 for each in device.stats),
        "unknown_at_peak_bytes": int(live_unknown[replay.peak_event + 1]),
        "unknown_most_bytes": int(live_unknown.max()),
        "unknown_most_share": float(share[replay.allocated > 0].max()),
        "classified_by": classified.by,
        "categories": {each.value: size for each, size in state.categories.items() if size},
        "environment": dict(trace.environment or {}),
        "notes": list(account.notes),
    }
    try:
        failed = break_down(trace, at="oom", top=3).devices[0]
    except MemprofError:
        return found
    found["oom"] = [
        {
            "requested_bytes": each.requested,
            "free_bytes": each.free,
            "categories": {kind.value: size for kind, size in each.state.categories.items() if size},
        }
        for each in failed.oom
    ]
    return found


def train(model: Any, optimizer: Any, end_step: Callable[[], None], *, steps: int = 3, rows: int = 8) -> object:
    """Train on random tokens."""
    import torch

    for _ in range(steps):
        tokens = torch.randint(0, 1000, (rows, 128), device="cuda")
        loss = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss.item()
        end_step()
    return model, optimizer


def transformer(*, checkpointed: bool = False) -> Any:
    """Return a small transformer; `checkpointed` runs each block under non-reentrant checkpointing."""
    import torch
    from torch.utils.checkpoint import checkpoint

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = torch.nn.Embedding(1000, 256)
            blocks = (torch.nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True) for _ in range(4))
            self.blocks = torch.nn.ModuleList(blocks)
            self.head = torch.nn.Linear(256, 1000)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            x = self.embedding(tokens)
            for block in self.blocks:
                x = checkpoint(block, x, use_reentrant=False) if checkpointed else block(x)
            return self.head(x)

    return Model().cuda()


@loop("gradient checkpointing")
def _checkpointing(end_step: Callable[[], None]) -> object:
    import torch

    model = transformer(checkpointed=True)
    return train(model, torch.optim.AdamW(model.parameters()), end_step)


@loop("full fine-tuning")
def _full(end_step: Callable[[], None]) -> object:
    import torch

    model = transformer()
    return train(model, torch.optim.AdamW(model.parameters()), end_step)


@loop("torch.compile")
def _compiled(end_step: Callable[[], None]) -> object:
    import torch

    model = transformer()
    return train(torch.compile(model), torch.optim.AdamW(model.parameters()), end_step)


@loop("evaluation")
def _evaluation(end_step: Callable[[], None]) -> object:
    import torch

    model = transformer().eval()
    with torch.no_grad():
        logits = [model(torch.randint(0, 1000, (8, 128), device="cuda")) for _ in range(3)]
    end_step()
    return model, logits


@loop("ResNet")
def _resnet(end_step: Callable[[], None]) -> object:
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self, inner: int, outer: int, stride: int) -> None:
            super().__init__()
            self.first = nn.Conv2d(inner, outer, 3, stride, 1, bias=False)
            self.first_norm = nn.BatchNorm2d(outer)
            self.second = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
            self.second_norm = nn.BatchNorm2d(outer)
            self.short = nn.Conv2d(inner, outer, 1, stride, bias=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = torch.relu(self.first_norm(self.first(x)))
            return torch.relu(self.second_norm(self.second(y)) + self.short(x))

    stem = [nn.Conv2d(3, 64, 7, 2, 3), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    blocks = [Block(64, 64, 1), Block(64, 128, 2), Block(128, 256, 2)]
    model = nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 100)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for _ in range(3):
        images = torch.randn(16, 3, 224, 224, device="cuda")
        classes = torch.randint(0, 100, (16,), device="cuda")
        nn.functional.cross_entropy(model(images), classes).backward()
        optimizer.step()
        optimizer.zero_grad()
        end_step()
    return model, optimizer


@loop("generation with a KV cache")
def _generation(end_step: Callable[[], None]) -> object:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 4}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=2000, **sizes)).cuda().eval()
    tokens = torch.randint(0, 2000, (4, 16), device="cuda")
    with torch.no_grad():
        model.generate(tokens, max_new_tokens=24, do_sample=False, pad_token_id=0)
    end_step()
    return model


@loop("transformers and peft")
def _peft(end_step: Callable[[], None]) -> object:
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 8}
    lora = LoraConfig(task_type="CAUSAL_LM", r=8, target_modules=["q_proj", "v_proj"], lora_dropout=0.05)
    model = get_peft_model(LlamaForCausalLM(LlamaConfig(vocab_size=8000, **sizes)), lora).cuda()
    optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad])
    for _ in range(3):
        tokens = torch.randint(0, 8000, (4, 512), device="cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss.item()
        end_step()
    return model, optimizer


@loop("out of memory, record")
def _out_of_memory(end_step: Callable[[], None]) -> object:
    import torch

    model = transformer()
    optimizer = torch.optim.AdamW(model.parameters())
    for doubled in range(12):
        train(model, optimizer, end_step, steps=1, rows=8 << doubled)
    return None


def write_table(folder: Path) -> None:
    """Put the figures into a page."""
    found = {}
    for path in sorted(folder.glob("*.json")):
        each = json.loads(path.read_text(encoding="utf-8"))
        found[each["case"]] = each
    order = [case for case in [*RECIPES, *LOOPS] if case in found]
    lines, ooms = [], []
    for case in order:
        each = found[case]
        same = each["peak_bytes"] == each["torch_peak_bytes"]
        reserved = each["reserved_bytes"] == each["torch_reserved_bytes"]
        cells = [case, each["status"], f"{each['events']:,}", f"{each['peak_bytes']:,}", "yes" if same else "NO"]
        cells += [
            "yes" if reserved else "NO",
            f"{each['unknown_at_peak_bytes']:,}",
            f"{each['unknown_most_share']:.3%}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
        ooms += [
            f"- *{case}*: asked for {oom['requested_bytes']:,} bytes, {oom['free_bytes']:,} were free; held "
            + ", ".join(f"{name} {size:,}" for name, size in oom["categories"].items())
            + "."
            for oom in each.get("oom", ())
        ]
    environment = found[order[0]]["environment"]
    versions = ", ".join(f"{name} {version}" for name, version in environment["packages"].items())
    page = f"""# Captures on a GPU

`scripts/capture_grid.py`, each row in a process of its own, on one {environment["card"]}, driver
{environment["driver"]}, torch {environment["torch"]},
{versions}.

Rows up to *paged AdamW* and *out of memory, capture* are `memprof capture` (Pythia-70m with LoRA, micro-batches of 2,
256 tokens, two optimizer cycles); the others are plain loops under `memprof.record`, with nothing told but where steps
end. *peak* is the highest allocated of the replay; *torch's* says whether `torch.cuda.max_memory_allocated()` is the
same to the byte, *reserved* the same of `max_memory_reserved()`; *most unknown* is the largest share of allocated that
is `unknown` at any event.

| run | status | events | peak | torch's | reserved | unknown at the peak | most unknown |
|---|---|---|---|---|---|---|---|
{chr(10).join(lines)}

## Out of memory

The process was given a small part of the card with `torch.cuda.set_per_process_memory_fraction`; what is free is of the
whole card, as torch reports it. The file is complete, and says:

{chr(10).join(ooms)}
"""
    (ROOT / "docs" / "captures.md").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
