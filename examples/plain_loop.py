"""A small GPT in a plain PyTorch loop, with evaluation. Nothing in it knows of memprof.

memprof run -o run.pickle examples/plain_loop.py
"""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int, default=512)
parser.add_argument("--layers", type=int, default=8)
parser.add_argument("--tokens", type=int, default=512)
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--steps", type=int, default=3)
args = parser.parse_args()
torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.heads = width // 64
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))

    def forward(self, x):
        q, k, v = (
            each.unflatten(-1, (self.heads, 64)).transpose(1, 2) for each in self.qkv(self.norm_1(x)).chunk(3, dim=-1)
        )
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(attended.transpose(1, 2).flatten(-2))
        return x + self.mlp(self.norm_2(x))


class GPT(nn.Module):
    def __init__(self, words=16000):
        super().__init__()
        self.words, self.places = nn.Embedding(words, args.width), nn.Embedding(args.tokens, args.width)
        self.blocks = nn.Sequential(*(Block(args.width) for _ in range(args.layers)))
        self.norm, self.head = nn.LayerNorm(args.width), nn.Linear(args.width, words, bias=False)

    def forward(self, tokens):
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        return self.head(self.norm(self.blocks(x)))


model = GPT().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)


def batch_loss():
    tokens = torch.randint(0, 16000, (args.batch, args.tokens + 1)).to(device)
    with torch.autocast(device, dtype=torch.bfloat16):
        logits = model(tokens[:, :-1])
    return nn.functional.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())


for step in range(args.steps):
    loss = batch_loss()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step}: loss {loss.item():.3f}")
model.eval()
with torch.no_grad():
    print(f"validation: loss {batch_loss().item():.3f}")
