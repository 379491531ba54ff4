"""llama-cookbook#41: the output of every step, logits and all, is still there when the next one runs."""

# ruff: noqa: INP001 - a script
import sys

import torch
from models import adapt, batch, build, quantize, say

kind, name, mbs, seq = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])  # held, dropped
model = adapt(quantize(build(name), torch.bfloat16).cuda(), ["q_proj", "v_proj"])
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
outputs = []
for _ in range(4):
    output = model(**batch(mbs, seq))
    output.loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    outputs.append(output if kind == "held" else output.loss.detach())
    del output
say()
