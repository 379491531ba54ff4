"""fms-acceleration#14: Mistral-7B, 4 samples: resting, peak and reserved, LoRA and 4-bit."""

# ruff: noqa: INP001 - a script
import sys

import torch
from models import ALL, adapt, build, quantize, say, train

kind, seq = sys.argv[1], int(sys.argv[2])
model = build("mistral-7b")
if kind != "lora":
    quantize(model, torch.bfloat16, double=True)
model = adapt(model.cuda(), ALL, r=16, dropout=0.0)
model.gradient_checkpointing_enable({"use_reentrant": False})
model.enable_input_require_grads()
train(model, 2, 4, seq)
say()
