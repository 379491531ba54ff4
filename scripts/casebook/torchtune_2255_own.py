"""torchtune#2255 with torchtune's own layers: Llama-3.2-1B, LoRA against QLoRA.

Needs torchtune 0.6.1 and torchao 0.9.0. Not under ``memprof run``: torchtune swaps tensors, which torch refuses while
a recorder looks at them.

    python -m memprof.simulate --card h200 scripts/casebook/torchtune_2255_own.py OUT.json lora
"""

# ruff: noqa: INP001 - a script
from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from torchtune.models.llama3_2 import lora_llama3_2_1b, qlora_llama3_2_1b
from torchtune.modules.loss import CEWithChunkedOutputLoss

SAMPLES, TOKENS = 4, 512


def train(quantized: bool) -> dict[str, int]:  # noqa: FBT001 - one switch
    """Build and train two steps; return bytes once loaded and at the peak."""
    torch.cuda.reset_peak_memory_stats()
    make = qlora_llama3_2_1b if quantized else lora_llama3_2_1b
    with torch.device("cuda"):
        model = make(["q_proj", "v_proj", "output_proj"], apply_lora_to_mlp=True, lora_rank=64, lora_alpha=128)
    loaded = torch.cuda.memory_allocated()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("lora" in name)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4, fused=True)
    loss_of = CEWithChunkedOutputLoss()
    model.set_num_output_chunks(loss_of.num_output_chunks)
    for _ in range(2):
        tokens = torch.randint(0, 128000, (SAMPLES, TOKENS), device="cuda")
        loss = loss_of(model(tokens), tokens)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return {"loaded": loaded, "peak": torch.cuda.max_memory_allocated()}


def main() -> None:
    """Run one kind and add it to the file."""
    target, kind = Path(sys.argv[1]), sys.argv[2]
    torch.nn.init.kaiming_uniform_ = lambda tensor, *_, **__: tensor  # values change no allocation
    torch.set_default_dtype(torch.bfloat16)
    known = json.loads(target.read_text(encoding="utf-8")) if target.exists() else {}
    known[kind] = {"samples": SAMPLES, "tokens": TOKENS, **train(kind == "qlora")}
    target.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
