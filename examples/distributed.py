"""The same small transformer under DistributedDataParallel (ddp) or FSDP2 (fsdp). Nothing in it knows of memprof.

torchrun --nproc-per-node 2 -m memprof run -o run.pickle examples/distributed.py fsdp
"""

import argparse
import os

import torch
from torch import distributed, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("how", choices=("ddp", "fsdp"))
parser.add_argument("--width", type=int, default=512)
parser.add_argument("--layers", type=int, default=4)
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--steps", type=int, default=3)
args = parser.parse_args()

gpu = torch.cuda.is_available()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpu else torch.device("cpu")
if gpu:
    torch.cuda.set_device(device)
distributed.init_process_group("nccl" if gpu else "gloo")
torch.manual_seed(0)


class Model(nn.Module):
    def __init__(self, words=1000):
        super().__init__()
        self.words = nn.Embedding(words, args.width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(args.width, args.width // 32, 4 * args.width, batch_first=True)
            for _ in range(args.layers)
        )
        self.head = nn.Linear(args.width, words)

    def forward(self, tokens):
        x = self.words(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


model = Model().to(device)
if args.how == "ddp":
    model = DistributedDataParallel(model, device_ids=[device.index] if gpu else None)
else:
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
torch.manual_seed(distributed.get_rank())
for step in range(args.steps):
    tokens = torch.randint(0, 1000, (args.batch, 128)).to(device)
    loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"rank {distributed.get_rank()}, step {step}: loss {loss.item():.3f}", flush=True)
distributed.destroy_process_group()
