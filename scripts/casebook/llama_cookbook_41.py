"""llama-cookbook#41: the output of a step, logits and all, is still named when the next forward runs."""

# ruff: noqa: INP001 - a script
import sys

import torch
from models import adapt, batch, build, quantize, say

kind, name, mbs, seq = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])  # held, dropped
model = adapt(quantize(build(name), torch.bfloat16).cuda(), ["q_proj", "v_proj"])
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
losses = []
for _ in range(4):
    output = model(**batch(mbs, seq))
    output.loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(output.loss.detach() if kind == "dropped" else output.loss)
    if kind == "dropped":
        del output
say()
