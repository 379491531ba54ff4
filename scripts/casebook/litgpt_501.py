"""litgpt#501 as lit-gpt's ``finetune/lora.py`` of September 2023 ran it: Pythia-70m, 16-mixed; the longest batch first.

Then come batches of other lengths, as the data has them: what the cache of the allocator does then is what nvidia-smi
shows.
"""

# ruff: noqa: INP001 - a script
from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path

import torch
from lightning.fabric import Fabric
from litgpt.lora import GPT, Config, mark_only_lora_as_trainable
from litgpt.utils import chunked_cross_entropy
from models import say

sys.path.insert(0, str(Path(__file__).parents[2]))


def main() -> None:
    """Build, and train: one batch of the longest length, then shorter ones."""
    from memprof.recipes.quantization import quantized_linear

    parser = argparse.ArgumentParser()
    parser.add_argument("--quant", default="none")
    parser.add_argument("--mbs", type=int, default=8)
    parser.add_argument("--longest", type=int, default=1037)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--validate", type=int, default=20, help="batches of the check before the training")
    parser.add_argument("--then-validate", default="", help="tokens of the batches of a validation after it")
    options = parser.parse_args()
    fabric = Fabric(accelerator="cuda", devices=1, precision="16-mixed")
    config = Config.from_name(
        "pythia-70m", lora_r=8, lora_alpha=16, lora_dropout=0.05, lora_query=True, lora_value=True
    )
    with quantized_linear(options.quant, matmul_of_2023=options.quant != "none", cast_inputs=False):
        model = GPT(config)
    mark_only_lora_as_trainable(model)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if options.quant == "none":
        optimizer = torch.optim.AdamW(trained, lr=3e-4)
    else:
        import bitsandbytes

        optimizer = bitsandbytes.optim.PagedAdamW(trained, lr=3e-4)
    model, optimizer = fabric.setup(model, optimizer)
    model.max_seq_length = options.longest
    draw = random.Random(1337)  # noqa: S311 - lengths, not secrets

    def length() -> int:
        """Draw a length: Alpaca's samples are short with a long tail, and a batch is as long as its longest."""
        return max(min(options.longest, max(40, int(draw.lognormvariate(4.6, 0.55)))) for _ in range(options.mbs))

    def validate(now: int) -> None:
        """Take the loss of a batch, all logits at once, as there."""
        with torch.no_grad():
            tokens = torch.randint(0, config.vocab_size, (options.mbs, now), device=fabric.device)
            logits = model(tokens)
            chunked_cross_entropy(logits[..., :-1, :], tokens[..., 1:], chunk_size=0)

    model.eval()
    for _ in range(options.validate):
        validate(length())
    model.train()
    for step in range(options.steps):
        now = options.longest if step == 0 else length()
        tokens = torch.randint(0, config.vocab_size, (options.mbs, now), device=fabric.device)
        logits = model(tokens, lm_head_chunk_size=128)
        logits[-1] = logits[-1][..., :-1, :]
        loss = chunked_cross_entropy(logits, tokens[..., 1:])
        fabric.backward(loss / 32)
        if step in (0, 1):
            say()
        if (step + 1) % 32 == 0:
            optimizer.step()
            optimizer.zero_grad()
    say()
    model.eval()
    for now in options.then_validate.split(",") if options.then_validate else []:
        validate(int(now))
        say()


if __name__ == "__main__":
    main()
