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
    # As read from a checkpoint: on the host, until load_state_dict brings it to the card.
    state = {}
    for number, parameter in enumerate(model.parameters()):
        moments = {name: torch.zeros_like(parameter, device="cpu") for name in ("exp_avg", "exp_avg_sq")}
        state[number] = {"step": torch.tensor(1.0), **moments}
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
for _ in range(steps):
    loss = model(**batch(8, 512)).loss
    loss.backward()
    say()
    optimizer.step()
    optimizer.zero_grad()
say()
