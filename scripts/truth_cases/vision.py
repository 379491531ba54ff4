"""Images: residual, depthwise, U-shaped and patch networks, in several layouts and precisions."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812  # the name that everybody gives it
from torch import nn
from wider_runs import resnet, train

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CASES", "unet", "unet_loss"]

CASES: dict[str, Callable[[], Any]] = {}


def case(function: Callable[[], Any]) -> Callable[[], Any]:
    """Register a case under its function's name."""
    CASES[function.__name__] = function
    return function


def class_loss(
    model: nn.Module, batch: int, side: int, *, layout: torch.memory_format = torch.contiguous_format
) -> Callable[[], torch.Tensor]:
    """Return the loss of a batch of random images."""

    def loss() -> torch.Tensor:
        images = torch.randn(batch, 3, side, side, device="cuda").contiguous(memory_format=layout)
        return F.cross_entropy(model(images), torch.randint(0, 100, (batch,), device="cuda"))

    return loss


class Basic(nn.Module):
    """Residual block of a ResNet-18 or -34."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.one, self.norm_one = nn.Conv2d(inputs, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.two, self.norm_two = nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        self.short = nn.Identity()
        if stride != 1 or inputs != width:
            self.short = nn.Sequential(nn.Conv2d(inputs, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add what two convolutions make of it."""
        y = F.relu(self.norm_one(self.one(x)))
        return F.relu(self.norm_two(self.two(y)) + self.short(x))


def basic_resnet(blocks: tuple[int, ...]) -> nn.Module:
    """Build a ResNet of basic blocks."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
    layers.append(nn.MaxPool2d(3, 2, 1))
    inputs = 64
    for stage, count in enumerate(blocks):
        for index in range(count):
            width = 64 << stage
            layers.append(Basic(inputs, width, 2 if stage and not index else 1))
            inputs = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 100)).cuda()


@case
def resnet18_fp32_adam() -> None:
    """Train a ResNet-18 in float32, 40 images of 160 pixels a side."""
    model = basic_resnet((2, 2, 2, 2))
    train(model, torch.optim.Adam(model.parameters()), class_loss(model, 40, 160))


@case
def resnet34_bf16_nesterov() -> None:
    """Train a ResNet-34 in bfloat16 autocast with Nesterov's momentum."""
    model = basic_resnet((3, 4, 6, 3))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, nesterov=True)
    train(model, optimizer, class_loss(model, 24, 192), autocast=torch.bfloat16)


@case
def resnet50_bf16_channels_last() -> None:
    """Train a ResNet-50 in bfloat16 autocast, channels last, 32 images."""
    model = resnet().cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    train(model, optimizer, class_loss(model, 32, 224, layout=torch.channels_last), autocast=torch.bfloat16)


@case
def vit_large_bf16() -> None:
    """Train two thirds of a dozen layers of a ViT-L, weights in bfloat16."""
    import transformers

    config = transformers.ViTConfig(
        hidden_size=1024, intermediate_size=4096, num_hidden_layers=8, num_attention_heads=16, num_labels=100
    )
    model = transformers.ViTForImageClassification(config).to(torch.bfloat16).cuda()

    def loss() -> torch.Tensor:
        images = torch.randn(12, 3, 224, 224, device="cuda", dtype=torch.bfloat16)
        result: torch.Tensor = model(pixel_values=images, labels=torch.randint(0, 100, (12,), device="cuda")).loss
        return result

    train(model, torch.optim.AdamW(model.parameters()), loss)


@case
def convnext_bf16() -> None:
    """Train a ConvNeXt in bfloat16 autocast: depthwise kernels of 7, layer norms."""
    import transformers

    config = transformers.ConvNextConfig(depths=[2, 2, 4, 2], num_labels=100)
    model = transformers.ConvNextForImageClassification(config).cuda()

    def loss() -> torch.Tensor:
        images = torch.randn(16, 3, 224, 224, device="cuda")
        result: torch.Tensor = model(pixel_values=images, labels=torch.randint(0, 100, (16,), device="cuda")).loss
        return result

    train(model, torch.optim.AdamW(model.parameters()), loss, autocast=torch.bfloat16)


class Inverted(nn.Module):
    """Inverted residual block of a MobileNet."""

    def __init__(self, inputs: int, outputs: int, stride: int, expand: int) -> None:
        super().__init__()
        hidden = inputs * expand
        self.body = nn.Sequential(
            nn.Conv2d(inputs, hidden, 1, bias=False),
            nn.BatchNorm2d(hidden),
            nn.ReLU6(),
            nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False),
            nn.BatchNorm2d(hidden),
            nn.ReLU6(),
            nn.Conv2d(hidden, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Widen, filter, narrow; add where the shape allows."""
        y: torch.Tensor = self.body(x)
        return x + y if self.adds else y


@case
def mobilenet_fp32_rmsprop() -> None:
    """Train a MobileNetV2 in float32 with RMSprop."""
    layers: list[nn.Module] = [nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU6()]
    inputs = 32
    for expand, outputs, count, stride in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 3, 2), (6, 96, 2, 1)):
        for index in range(count):
            layers.append(Inverted(inputs, outputs, 1 if index else stride, expand))
            inputs = outputs
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 100)).cuda()
    train(model, torch.optim.RMSprop(model.parameters(), 0.01, momentum=0.9), class_loss(model, 32, 224))


def twice(inputs: int, outputs: int) -> nn.Module:
    """Convolve twice, with group norms."""
    layers: list[nn.Module] = []
    for source in (inputs, outputs):
        layers += [nn.Conv2d(source, outputs, 3, 1, 1), nn.GroupNorm(8, outputs), nn.SiLU()]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """A U-Net of four scales."""

    def __init__(self, base: int) -> None:
        super().__init__()
        widths = [base << scale for scale in range(4)]
        self.down = nn.ModuleList(twice(a, b) for a, b in zip([3, *widths], widths, strict=False))
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in itertools.pairwise(widths))
        self.merge = nn.ModuleList(twice(2 * a, a) for a in widths[:-1])
        self.head = nn.Conv2d(base, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Go down and up again, with short cuts."""
        kept = []
        for layer in self.down:
            x = layer(x if not kept else F.max_pool2d(x, 2))
            kept.append(x)
        for scale in reversed(range(3)):
            x = self.merge[scale](torch.cat([self.up[scale](x), kept[scale]], 1))
        result: torch.Tensor = self.head(x)
        return result


def unet(base: int) -> nn.Module:
    """Build a small U-Net."""
    return UNet(base).cuda()


def unet_loss(model: nn.Module, batch: int, side: int) -> Callable[[], torch.Tensor]:
    """Return the loss of segmenting random images."""

    def loss() -> torch.Tensor:
        images = torch.randn(batch, 3, side, side, device="cuda")
        return F.cross_entropy(model(images), torch.randint(0, 2, (batch, side, side), device="cuda"))

    return loss


@case
def unet_fp32() -> None:
    """Train a small U-Net in float32; its widths are not in the table of workspaces."""
    model = unet(48)
    train(model, torch.optim.AdamW(model.parameters()), unet_loss(model, 6, 192))


@case
def unet_fp16_channels_last() -> None:
    """Train a small U-Net in float16 autocast, channels last."""
    model = unet(32).to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-5)
    train(model, optimizer, unet_loss(model, 8, 128), autocast=torch.float16, scaler=True)


@case
def vgg_bf16() -> None:
    """Train a small VGG with dropout in bfloat16 autocast."""
    layers: list[nn.Module] = []
    inputs = 3
    for width, count in ((64, 2), (128, 2), (256, 3)):
        for _ in range(count):
            layers += [nn.Conv2d(inputs, width, 3, 1, 1), nn.ReLU(inplace=True)]
            inputs = width
        layers.append(nn.MaxPool2d(2))
    head = [nn.Flatten(), nn.Linear(256 * 64, 1024), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(1024, 100)]
    model = nn.Sequential(*layers, *head).cuda()
    train(
        model,
        torch.optim.SGD(model.parameters(), 0.1, momentum=0.9),
        class_loss(model, 48, 64),
        autocast=torch.bfloat16,
    )


@case
def swin_fp16_scaler() -> None:
    """Train a Swin: shifted windows, in float16 autocast with a scaler."""
    import transformers

    config = transformers.SwinConfig(depths=[2, 2, 2, 2], num_labels=100)
    model = transformers.SwinForImageClassification(config).cuda()

    def loss() -> torch.Tensor:
        images = torch.randn(8, 3, 224, 224, device="cuda")
        result: torch.Tensor = model(pixel_values=images, labels=torch.randint(0, 100, (8,), device="cuda")).loss
        return result

    optimizer = torch.optim.AdamW(model.parameters(), 1e-5)
    train(model, optimizer, loss, autocast=torch.float16, scaler=True)
