"""pytorch#37250: allocated is 0, nvidia-smi shows gigabytes: cache, and the context."""

# ruff: noqa: INP001 - a script
import gc
import sys

import torch
from models import build, say, train

model = build("small", torch.float32).cuda()
train(model, 2, 16, 512)
del model
gc.collect()
say()
if sys.argv[1] == "emptied":
    torch.cuda.empty_cache()
    say()
