"""peft#785: a T4 and a large batch; LoRA in half precision, with 4-bit weights, and with the usual preparation."""

# ruff: noqa: INP001 - a script
import sys

import torch
from models import adapt, build, quantize, say, train
from peft import prepare_model_for_kbit_training

kind, mbs = sys.argv[1], int(sys.argv[2])
model = build("small", torch.float16, vocab_size=8192, num_hidden_layers=8)
if kind != "lora":
    quantize(model, torch.float16)
model = model.cuda()
if kind == "prepared":
    model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
train(adapt(model, ["q_proj", "v_proj"]), 2, mbs, 440, vocabulary=8192)
say()
