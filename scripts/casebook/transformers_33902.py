"""transformers#33902: Llama-3.1-8B; logits of every token and a float32 copy of them, or only what is needed."""

# ruff: noqa: INP001 - a script
import sys

import torch
from models import build, quantize, say

kind, name, seq = sys.argv[1], sys.argv[2], int(sys.argv[3])  # float, half, last
model = quantize(build(name), torch.bfloat16).cuda()
tokens = torch.randint(0, 32000, (1, seq)).cuda()
with torch.no_grad():
    output = model(input_ids=tokens, logits_to_keep=1 if kind == "last" else 0)
    logits = output.logits.float() if kind == "float" else output.logits
say()
