"""litgpt#1112 as ``litgpt/finetune/lora.py`` of March 2024 ran it: TinyLlama, bf16-true, mbs 8, LoRA or QLoRA.

    memprof run --simulate h200 -o run.pickle scripts/casebook/litgpt_1112.py --quant bnb.nf4 --lengths 512,512,512

The names ``logits`` and ``loss`` live in the loop, as there: what they hold is held until the next step's forward is
done. With a checkout of litgpt of that time on PYTHONPATH (commit 4a9b7e62) its model is used instead of today's.
"""

# ruff: noqa: INP001 - a script
from __future__ import annotations

import argparse
import sys
from pathlib import Path
from types import MethodType

import torch
from lightning.fabric import Fabric
from lightning.fabric.plugins import BitsandbytesPrecision
from litgpt.lora import GPT, Config, mark_only_lora_as_trainable
from litgpt.utils import chunked_cross_entropy

sys.path.insert(0, str(Path(__file__).parents[2]))


def main() -> None:
    """Build, and train one step for each length."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="tiny-llama-1.1b")
    parser.add_argument("--quant", default="none")
    parser.add_argument("--matmul", default="2023", help="2023: as bitsandbytes 0.41, which litgpt required; or today")
    parser.add_argument("--lengths", default="512,512,512", help="tokens of each batch")
    parser.add_argument("--mbs", type=int, default=8)
    parser.add_argument("--lora-r", type=int, default=32)
    parser.add_argument("--lora-all", action="store_true", help="adapters on every linear layer but the output layer")
    parser.add_argument("--drop-names", action="store_true", help="del logits, loss after backward")
    options = parser.parse_args()
    plugins, precision = None, "bf16-true"
    if options.quant != "none":
        plugins, precision = BitsandbytesPrecision(options.quant.removeprefix("bnb."), torch.bfloat16), None
    fabric = Fabric(accelerator="cuda", devices=1, precision=precision, plugins=plugins)
    rest = options.lora_all
    config = Config.from_name(
        options.model, lora_r=options.lora_r, lora_alpha=16, lora_dropout=0.05, lora_query=True, lora_key=rest,
        lora_value=True, lora_projection=rest, lora_mlp=rest, lora_head=False,
    )  # fmt: skip
    with fabric.init_module(empty_init=False):
        model = GPT(config)
    mark_only_lora_as_trainable(model)
    if options.quant != "none" and options.matmul == "2023":
        compute_as_in_2023(model)
    model = fabric.setup_module(model)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if options.quant == "none":
        optimizer = torch.optim.AdamW(trained, lr=2e-4, weight_decay=0.0)
    else:
        import bitsandbytes

        optimizer = bitsandbytes.optim.PagedAdamW(trained, lr=2e-4, weight_decay=0.0)
    optimizer = fabric.setup_optimizers(optimizer)
    lengths = [int(length) for length in options.lengths.split(",")]
    model.max_seq_length = max(lengths)
    model.train()
    for length in lengths:
        tokens = torch.randint(0, config.vocab_size, (options.mbs, length), device=fabric.device)
        logits = model(tokens, lm_head_chunk_size=128)
        logits[-1] = logits[-1][..., :-1, :]
        loss = chunked_cross_entropy(logits, tokens[..., 1:])
        fabric.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        # The script read the running mean into this name after every step.
        loss = loss.item()
        if options.drop_names:
            del logits
    print(f"Memory used: {torch.cuda.max_memory_allocated() / 1e9:.02f} GB")  # noqa: T201 - as the script does


def compute_as_in_2023(model: torch.nn.Module) -> None:
    """Give the 4-bit layers the forward pass of bitsandbytes 0.41."""
    import bitsandbytes

    from memprof.recipes.bitsandbytes_2023 import Linear4bit2023

    for module in model.modules():
        if isinstance(module, bitsandbytes.nn.Linear4bit):
            module.forward = MethodType(Linear4bit2023.forward, module)


if __name__ == "__main__":
    main()
