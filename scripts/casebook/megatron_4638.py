"""Megatron-LM#4638: out of memory only after a resume: Adam's state is on the card before the first forward."""

# ruff: noqa: INP001 - a script
import sys

import torch
from models import batch, build, say

kind = sys.argv[1]  # fresh, resumed
steps = int(sys.argv[2])
model = build("small", torch.float32).cuda()
optimizer = torch.optim.AdamW(model.parameters())
if kind == "resumed":
    whole = {i: {"step": torch.tensor(1.0), "exp_avg": torch.zeros_like(p, device="cpu"),
                 "exp_avg_sq": torch.zeros_like(p, device="cpu")} for i, p in enumerate(model.parameters())}  # fmt: skip
    optimizer.load_state_dict({"state": whole, "param_groups": optimizer.state_dict()["param_groups"]})
for _ in range(steps):
    loss = model(**batch(8, 512)).loss
    loss.backward()
    say()
    optimizer.step()
    optimizer.zero_grad()
say()
