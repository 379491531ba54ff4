"""DataParallel on the GPUs that are there, batches from the host: nothing in it knows of memprof."""

# ruff: noqa: T201  # scripts print

import copy

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1000))
model = nn.DataParallel(model.cuda(), device_ids=[0])
average = copy.deepcopy(model.module)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for _step in range(3):
    with torch.cuda.nvtx.range("step"):
        images, targets = torch.randn(512, 1024), torch.randint(0, 1000, (512,), device="cuda")
        loss = nn.functional.cross_entropy(model(images), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        for kept, new in zip(average.parameters(), model.module.parameters(), strict=True):
            kept.lerp_(new, 0.1)
print("peak", torch.cuda.max_memory_allocated())
print("reserved", torch.cuda.max_memory_reserved())
