"""A training loop as people write it: nothing in it knows of memprof."""

# ruff: noqa: T201, PLW2901  # scripts print, and name what they move to a device as before

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=32)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--save")
args = parser.parse_args()

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
print("training on", device, torch.cuda.get_device_name() if device.type == "cuda" else "")


class Block(nn.Module):
    def __init__(self, inner, outer, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inner, outer, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outer)
        self.conv2 = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outer)
        self.short = nn.Conv2d(inner, outer, 1, stride, bias=False)

    def forward(self, x):
        y = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(y)) + self.short(x))


model = nn.Sequential(
    nn.Conv2d(3, 32, 3, 1, 1), Block(32, 64, 2), Block(64, 128, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    nn.Dropout(0.1), nn.Linear(128, 10),
).to(device)  # fmt: skip
data = TensorDataset(torch.randn(4 * args.batch, 3, 32, 32), torch.randint(0, 10, (4 * args.batch,)))
train = DataLoader(data, batch_size=args.batch, shuffle=True, num_workers=2, pin_memory=True, drop_last=True)
test = DataLoader(data, batch_size=2 * args.batch)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * len(train))
scaler = torch.amp.GradScaler(device.type)

for epoch in range(args.epochs):
    model.train()
    total = 0.0
    for images, targets in train:
        images, targets = images.to(device, non_blocking=True), targets.to(device, non_blocking=True)
        with torch.autocast(device.type, dtype=torch.float16):
            loss = nn.functional.cross_entropy(model(images), targets)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        schedule.step()
        total += loss.item()
    model.eval()
    correct = 0
    with torch.no_grad():
        for images, targets in test:
            predicted = model(images.to(device)).argmax(dim=1).cpu()
            correct += (predicted == targets).sum().item()
    print(f"epoch {epoch}: loss {total / len(train):.3f}, accuracy {correct / len(data):.3f}")

if args.save:
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, args.save)
if device.type == "cuda":
    print("peak", torch.cuda.max_memory_allocated())
