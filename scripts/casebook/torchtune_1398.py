"""torchtune#1398: layers without adapters were not quantized. Llama-3.1-8B; every linear layer, or query and value."""

# ruff: noqa: INP001 - a script
import sys

import torch
from models import ALL, adapt, build, quantize, say, train

targets = ALL if sys.argv[1] == "all" else ["q_proj", "v_proj"]
model = quantize(build(sys.argv[2]), torch.bfloat16, only=targets).cuda()
say()
train(adapt(model, targets), 1, 1, 128)
say()
