"""A GPT that is small enough to count what it saves on paper. Nothing in it is masked, dropped or shared."""

from __future__ import annotations

import torch

BATCH, LENGTH, WIDTH, HEADS, LAYERS, VOCABULARY = 2, 16, 32, 4, 2, 100


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm_1 = torch.nn.LayerNorm(WIDTH)
        self.qkv = torch.nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.proj = torch.nn.Linear(WIDTH, WIDTH, bias=False)
        self.norm_2 = torch.nn.LayerNorm(WIDTH)
        self.fc = torch.nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.out = torch.nn.Linear(4 * WIDTH, WIDTH, bias=False)
        self.dropout = torch.nn.Dropout(0.1)

    def forward(self, x):
        # Written out, so that every tensor of attention is one of ours.
        heads = (BATCH, LENGTH, HEADS, WIDTH // HEADS)
        q, k, v = (part.view(heads).transpose(1, 2) for part in self.qkv(self.norm_1(x)).chunk(3, dim=-1))
        scores = (q @ k.transpose(-2, -1)).softmax(dim=-1)
        mixed = (scores @ v).transpose(1, 2).reshape(BATCH, LENGTH, WIDTH)
        x = x + self.dropout(self.proj(mixed))
        return x + self.out(torch.nn.functional.gelu(self.fc(self.norm_2(x))))


class GPT(torch.nn.Module):
    def __init__(self, *, checkpointed=False):
        super().__init__()
        self.tokens = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = torch.nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.head = torch.nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.checkpointed = checkpointed

    def forward(self, tokens):
        x = self.tokens(tokens)
        for block in self.blocks:
            x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        return self.head(self.norm(x))


def train(model, optimizer, steps=1):
    for _ in range(steps):
        tokens = torch.randint(0, VOCABULARY, (BATCH, LENGTH))
        targets = torch.randint(0, VOCABULARY, (BATCH * LENGTH,))
        logits = model(tokens)
        torch.nn.functional.cross_entropy(logits.view(-1, VOCABULARY), targets).backward()
        optimizer.step()
        optimizer.zero_grad()
        del logits
