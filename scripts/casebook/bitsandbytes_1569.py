"""bitsandbytes#1569: Ministral-8B, 4096 tokens: LoRA, nf4, and nf4 after prepare_model_for_kbit_training."""

# ruff: noqa: INP001 - a script
import sys

import torch
from models import ALL, adapt, build, quantize, say, train
from peft import prepare_model_for_kbit_training

kind, name, seq = sys.argv[1], sys.argv[2], int(sys.argv[3])  # lora, nf4, prepared
model = build(name)
if kind != "lora":
    quantize(model, torch.bfloat16, double=True)
model = model.cuda()
if kind == "prepared":
    model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
with torch.autocast("cuda", torch.bfloat16):  # as Trainer does with bf16=True
    train(adapt(model, ALL, r=16), 2, 1, seq)
say()
