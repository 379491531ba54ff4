"""torchtune#2255: Llama-3.2-1B, QLoRA above LoRA; with bitsandbytes' 4-bit layers, of today and of 2023."""

# ruff: noqa: INP001 - a script
import sys

import torch
from litgpt_1112 import compute_as_in_2023
from models import ALL, adapt, build, quantize, say, train

kind, mbs, seq = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])  # lora, qlora, qlora-2023
model = build("llama-3.2-1b")
if kind != "lora":
    quantize(model, torch.bfloat16)
if kind == "qlora-2023":
    compute_as_in_2023(model)
train(adapt(model.cuda(), ALL, r=64, dropout=0.0), 2, mbs, seq)
say()
