"""Fourth round: image networks."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F  # noqa: N812  # the name that everybody gives it
from torch import nn
from wider_runs import Bottleneck, resnet, train

from truth_cases.registry import registry
from truth_cases.third_vision import labelled
from truth_cases.vision import basic_resnet, class_loss

__all__ = ["CASES"]

CASES, case = registry()
BF16 = torch.bfloat16
LAST = torch.channels_last


def _sgd(model: nn.Module, rate: float = 0.1, **options: bool) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), rate, momentum=0.9, weight_decay=1e-4, **options)


@case
def resnet18_fp32_batch64() -> None:
    """Train a ResNet-18 on 64 images of 224 in float32 with SGD and momentum."""
    model = basic_resnet((2, 2, 2, 2))
    train(model, _sgd(model), class_loss(model, 64, 224))


@case
def resnet34_bf16_256_channels_last() -> None:
    """Train a ResNet-34 on 32 images of 256 in bfloat16 autocast, channels last, AdamW."""
    model = basic_resnet((3, 4, 6, 3)).to(memory_format=LAST)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=0.05)
    train(model, optimizer, class_loss(model, 32, 256, layout=LAST), autocast=BF16)


@case
def resnet50_fp32_trains_and_evaluates() -> None:
    """Train a ResNet-50 on 32 images of 224 in float32, labels smoothed, then count right answers on 64, twice."""
    model = resnet().cuda()
    optimizer = _sgd(model, nesterov=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 90)

    def loss() -> torch.Tensor:
        images, labels = torch.randn(32, 3, 224, 224).cuda(), torch.randint(0, 1000, (32,)).cuda()
        return F.cross_entropy(model(images), labels, label_smoothing=0.1)

    for _ in range(2):
        train(model, optimizer, loss, steps=2)
        schedule.step()
        model.eval()
        right = 0
        with torch.no_grad():
            for _ in range(2):
                images, labels = torch.randn(64, 3, 224, 224).cuda(), torch.randint(0, 1000, (64,)).cuda()
                right += (model(images).argmax(1) == labels).sum().item()


@case
def resnet50_progressive_expandable() -> None:
    """Train a ResNet-50 on images that get larger, bfloat16 autocast, channels last, expandable segments."""
    model = resnet().cuda().to(memory_format=LAST)
    optimizer = _sgd(model, 0.5, nesterov=True)
    for side, batch in ((128, 64), (160, 48), (192, 32)):
        train(model, optimizer, class_loss(model, batch, side, layout=LAST), autocast=BF16, steps=2)


@case
def resnet101_fp32_accumulates() -> None:
    """Train a ResNet-101 on 12 images of 224 in float32, two batches a step."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
    layers.append(nn.MaxPool2d(3, 2, 1))
    inputs = 64
    for blocks, width, stride in ((3, 64, 1), (4, 128, 2), (23, 256, 2), (3, 512, 2)):
        for index in range(blocks):
            layers.append(Bottleneck(inputs, width, 1 if index else stride))
            inputs = 4 * width
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 100)).cuda()
    train(model, _sgd(model), class_loss(model, 12, 224), accumulate=2, steps=2)


def twice(inputs: int, outputs: int) -> nn.Module:
    """Convolve twice, with batch norms."""
    layers: list[nn.Module] = []
    for source in (inputs, outputs):
        layers += [nn.Conv2d(source, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs)]
        layers.append(nn.ReLU(inplace=True))
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """The U-Net of five scales, 64 to 1,024 wide."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        widths = (64, 128, 256, 512, 1024)
        self.down = nn.ModuleList(twice(a, b) for a, b in zip((3, *widths[:-1]), widths, strict=True))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * width, width, 2, 2) for width in widths[-2::-1])
        self.merge = nn.ModuleList(twice(2 * width, width) for width in widths[-2::-1])
        self.head = nn.Conv2d(64, classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Go down and up again, with short cuts."""
        kept: list[torch.Tensor] = []
        for index, layer in enumerate(self.down):
            x = layer(F.max_pool2d(x, 2) if index else x)
            kept.append(x)
        for raised, merged, short in zip(self.up, self.merge, kept[-2::-1], strict=True):
            x = merged(torch.cat([short, raised(x)], 1))
        result: torch.Tensor = self.head(x)
        return result


@case
def unet_full_width_bf16_rmsprop() -> None:
    """Segment four images of 256 by a U-Net of full width, bfloat16 autocast, RMSprop, Dice beside cross-entropy."""
    model = UNet(3).cuda()
    optimizer = torch.optim.RMSprop(model.parameters(), 1e-5, weight_decay=1e-8, momentum=0.999, foreach=True)

    def loss() -> torch.Tensor:
        images, wanted = torch.rand(4, 3, 256, 256).cuda(), torch.randint(0, 3, (4, 256, 256)).cuda()
        found = model(images)
        chances, truth = F.softmax(found, 1).float(), F.one_hot(wanted, 3).permute(0, 3, 1, 2).float()
        overlap = 2 * (chances * truth).sum((-1, -2))
        sums = chances.sum((-1, -2)) + truth.sum((-1, -2))
        dice = 1 - ((overlap + 1e-6) / (sums + 1e-6)).mean()
        return F.cross_entropy(found, wanted) + dice

    train(model, optimizer, loss, autocast=BF16, clip=1.0)


@case
def vit_base_fp32_sgd() -> None:
    """Fine-tune a ViT-B/16 on 16 images in float32 with SGD and momentum."""
    import transformers

    model = transformers.ViTForImageClassification(transformers.ViTConfig(num_labels=100)).cuda()
    train(model, _sgd(model, 0.003), labelled(model, 16, 224), clip=1.0)


@case
def deit_small_averaged_bf16() -> None:
    """Train a DeiT-S on 48 mixed images in bfloat16 autocast, with a moving average of its weights."""
    import transformers

    config = transformers.ViTConfig(
        hidden_size=384, intermediate_size=1536, num_attention_heads=6, num_labels=1000, hidden_dropout_prob=0.1
    )
    model = transformers.ViTForImageClassification(config).cuda()
    kept = copy.deepcopy(model).eval().requires_grad_(requires_grad=False)
    optimizer = torch.optim.AdamW(model.parameters(), 5e-4, weight_decay=0.05)

    def loss() -> torch.Tensor:
        images, labels = torch.randn(48, 3, 224, 224).cuda(), torch.randint(0, 1000, (48,)).cuda()
        mixed = images.mul_(0.7).add_(images.flip(0).mul_(0.3))
        wanted = F.one_hot(labels, 1000).float()
        wanted = 0.7 * wanted + 0.3 * wanted.flip(0)
        return torch.sum(-wanted * F.log_softmax(model(pixel_values=mixed).logits, -1), -1).mean()

    for _ in range(3):
        train(model, optimizer, loss, autocast=BF16, steps=1)
        with torch.no_grad():
            for average, weight in zip(kept.state_dict().values(), model.state_dict().values(), strict=True):
                average.copy_(average * 0.9999 + weight * 0.0001)
