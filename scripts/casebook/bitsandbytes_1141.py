"""bitsandbytes#1141: Mistral-7B, a forward of 32 x 384 tokens under no_grad: float16, nf4, nf4 prepared to train."""

# ruff: noqa: INP001 - a script
import sys

import torch
from models import build, quantize, say
from peft import prepare_model_for_kbit_training

kind, name, mbs = sys.argv[1], sys.argv[2], int(sys.argv[3])  # fp16, nf4, prepared
model = build(name, torch.float16)
if kind != "fp16":
    quantize(model, torch.bfloat16, double=True)
model = model.cuda()
if kind == "prepared":
    model = prepare_model_for_kbit_training(model)
with torch.no_grad():
    model(input_ids=torch.randint(1000, (mbs, 384)).cuda())
say()
