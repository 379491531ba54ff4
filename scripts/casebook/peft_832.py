"""peft#832 and #1149: prepare_model_for_kbit_training on a model that is not quantized."""

# ruff: noqa: INP001 - a script
import sys

import torch
from models import adapt, build, say, train
from peft import prepare_model_for_kbit_training

model = build(sys.argv[2], torch.float16).cuda()
say()
if sys.argv[1] == "prepared":
    model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    say()
train(adapt(model, ["q_proj", "v_proj"]), 1, 1, 128)
say()
