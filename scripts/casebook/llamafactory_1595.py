"""LlamaFactory#1595: out of memory in evaluation, where the logits of every batch are collected on the card."""

# ruff: noqa: INP001 - a script
import sys

import torch
from models import adapt, batch, build, say, train

kind, batches = sys.argv[1], int(sys.argv[2])  # collected, reduced
model = adapt(build("small").cuda(), ["q_proj", "v_proj"])
train(model, 2, 4, 512)
model.eval()
kept = []
with torch.no_grad():
    for _ in range(batches):
        logits = model(**batch(4, 512)).logits
        kept.append(logits if kind == "collected" else logits.argmax(-1))
say()
