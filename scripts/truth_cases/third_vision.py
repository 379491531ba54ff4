"""Third round: images."""

from __future__ import annotations

import copy
import itertools
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812  # the name that everybody gives it
from torch import nn
from wider_runs import train

from truth_cases.registry import registry
from truth_cases.vision import class_loss

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CASES", "swin"]

CASES, case = registry()


def labelled(model: nn.Module, batch: int, side: int, classes: int = 100) -> Callable[[], torch.Tensor]:
    """Return the loss of one of transformers' image models on random images."""

    def loss() -> torch.Tensor:
        images = torch.randn(batch, 3, side, side, device="cuda")
        labels = torch.randint(0, classes, (batch,), device="cuda")
        result: torch.Tensor = model(pixel_values=images, labels=labels).loss
        return result

    return loss


def swin() -> nn.Module:
    """Build a small Swin v2."""
    import transformers

    config = transformers.Swinv2Config(
        image_size=192, window_size=6, embed_dim=72, depths=[2, 2, 4], num_heads=[3, 6, 12], num_labels=100
    )
    model: nn.Module = transformers.Swinv2ForImageClassification(config).cuda()
    return model


@case
def swinv2_bf16() -> None:
    """Train a Swin v2 (cosine attention, shifted windows) in bfloat16 autocast."""
    model = swin()
    train(model, torch.optim.AdamW(model.parameters(), 1e-4), labelled(model, 10, 192), autocast=torch.bfloat16)


@case
def dinov2_last_layers() -> None:
    """Train the last two layers and the head of a DINOv2, all else frozen, in float16 with a scaler."""
    import transformers

    config = transformers.Dinov2Config(
        hidden_size=512, num_hidden_layers=8, num_attention_heads=8, image_size=196, patch_size=14, num_labels=100
    )
    model = transformers.Dinov2ForImageClassification(config).cuda()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("layer.6." in name or "layer.7." in name or "classifier" in name)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, 1e-5)
    train(model, optimizer, labelled(model, 40, 196), autocast=torch.float16, scaler=True)


@case
def efficientnet_bf16() -> None:
    """Train an EfficientNet (depthwise, squeezed and excited) in bfloat16 autocast."""
    import transformers

    config = transformers.EfficientNetConfig(
        image_size=160, width_coefficient=1.0, depth_coefficient=1.0, hidden_dim=1280, num_labels=100
    )
    model = transformers.EfficientNetForImageClassification(config).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, weight_decay=1e-5)
    train(model, optimizer, labelled(model, 20, 160), autocast=torch.bfloat16)


@case
def regnet_fp32() -> None:
    """Train a RegNet, whose convolutions are grouped, in float32."""
    import transformers

    config = transformers.RegNetConfig(
        embedding_size=32,
        hidden_sizes=[48, 120, 336],
        depths=[1, 3, 5],
        groups_width=24,
        layer_type="y",
        num_labels=100,
    )
    model = transformers.RegNetForImageClassification(config).cuda()
    train(model, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9), labelled(model, 24, 176))


class Dense(nn.Module):
    """Layer of a DenseNet: its outputs are put behind its inputs."""

    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.BatchNorm2d(inputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(inputs, 4 * growth, 1, bias=False),
            nn.BatchNorm2d(4 * growth),
            nn.ReLU(inplace=True),
            nn.Conv2d(4 * growth, growth, 3, 1, 1, bias=False),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return inputs and outputs."""
        return torch.cat([x, self.body(x)], 1)


@case
def densenet_fp16_channels_last() -> None:
    """Train a DenseNet in float16 autocast, channels last."""
    layers: list[nn.Module] = [nn.Conv2d(3, 48, 7, 2, 3, bias=False), nn.BatchNorm2d(48), nn.ReLU(), nn.MaxPool2d(2)]
    inputs = 48
    for stage, count in enumerate((4, 6, 8)):
        for _ in range(count):
            layers.append(Dense(inputs, 24))
            inputs += 24
        if stage < 2:
            layers += [nn.BatchNorm2d(inputs), nn.ReLU(inplace=True), nn.Conv2d(inputs, inputs // 2, 1, bias=False)]
            layers.append(nn.AvgPool2d(2))
            inputs //= 2
    layers += [nn.BatchNorm2d(inputs), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 100)]
    model = nn.Sequential(*layers).cuda().to(memory_format=torch.channels_last)
    loss_of = class_loss(model, 32, 192, layout=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, nesterov=True)
    train(model, optimizer, loss_of, autocast=torch.float16, scaler=True)


@case
def segment_transposed_bf16() -> None:
    """Segment images by a decoder of transposed convolutions in bfloat16 autocast, with a Dice loss."""
    widths = (3, 24, 48, 96, 160)
    down: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(widths):
        down += [nn.Conv2d(inputs, outputs, 3, 2, 1), nn.BatchNorm2d(outputs), nn.LeakyReLU(0.1)]
    up: list[nn.Module] = []
    for inputs, outputs in zip(widths[:1:-1], widths[-2:0:-1], strict=True):
        up += [nn.ConvTranspose2d(inputs, outputs, 4, 2, 1), nn.BatchNorm2d(outputs), nn.ReLU()]
    model = nn.Sequential(*down, *up, nn.ConvTranspose2d(24, 6, 4, 2, 1)).cuda()

    def loss() -> torch.Tensor:
        images = torch.randn(8, 3, 256, 256, device="cuda")
        wanted = F.one_hot(torch.randint(0, 6, (8, 256, 256), device="cuda"), 6).permute(0, 3, 1, 2).float()
        found = model(images).float().softmax(1)
        overlap = (found * wanted).sum((2, 3))
        return 1 - (2 * overlap / (found.sum((2, 3)) + wanted.sum((2, 3)) + 1)).mean()

    train(model, torch.optim.AdamW(model.parameters(), 1e-3), loss, autocast=torch.bfloat16)


@case
def dcgan_fp32() -> None:
    """Train a generator against a discriminator in float32."""
    made: list[nn.Module] = [
        nn.ConvTranspose2d(100, 384, 4, 1, 0, bias=False),
        nn.BatchNorm2d(384),
        nn.ReLU(inplace=True),
    ]
    judged: list[nn.Module] = [nn.Conv2d(3, 48, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True)]
    for width in (192, 96, 48):
        made += [
            nn.ConvTranspose2d(2 * width, width, 4, 2, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
        ]
    for width in (96, 192, 384):
        judged += [nn.Conv2d(width // 2, width, 4, 2, 1, bias=False), nn.BatchNorm2d(width)]
        judged.append(nn.LeakyReLU(0.2, inplace=True))
    generator = nn.Sequential(*made, nn.ConvTranspose2d(48, 3, 4, 2, 1, bias=False), nn.Tanh()).cuda()
    critic = nn.Sequential(*judged, nn.Conv2d(384, 1, 4, 1, 0, bias=False), nn.Flatten(0)).cuda()
    first = torch.optim.Adam(generator.parameters(), 2e-4, betas=(0.5, 0.999))
    second = torch.optim.Adam(critic.parameters(), 2e-4, betas=(0.5, 0.999))
    for _ in range(3):
        real = torch.randn(96, 3, 64, 64, device="cuda")
        fake = generator(torch.randn(96, 100, 1, 1, device="cuda"))
        ones, zeros = torch.ones(96, device="cuda"), torch.zeros(96, device="cuda")
        second.zero_grad()
        F.binary_cross_entropy_with_logits(critic(real), ones).backward()
        F.binary_cross_entropy_with_logits(critic(fake.detach()), zeros).backward()
        second.step()
        first.zero_grad()
        F.binary_cross_entropy_with_logits(critic(fake), ones).backward()
        first.step()


@case
def autoencoder_variational_fp32() -> None:
    """Train a variational autoencoder of convolutions in float32, evaluating between steps."""
    encode = nn.Sequential(
        *(nn.Conv2d(3, 40, 3, 2, 1), nn.GELU(), nn.Conv2d(40, 80, 3, 2, 1), nn.GELU()),
        *(nn.Conv2d(80, 120, 3, 2, 1), nn.GELU(), nn.Flatten(), nn.Linear(120 * 144, 256)),
    )
    decode = nn.Sequential(
        *(nn.Linear(128, 120 * 144), nn.Unflatten(1, (120, 12, 12)), nn.Upsample(scale_factor=2)),
        *(nn.Conv2d(120, 80, 3, 1, 1), nn.GELU(), nn.Upsample(scale_factor=2), nn.Conv2d(80, 40, 3, 1, 1), nn.GELU()),
        *(nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(40, 3, 3, 1, 1)),
    )
    model = nn.ModuleList([encode, decode]).cuda()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)

    def loss() -> torch.Tensor:
        images = torch.rand(48, 3, 96, 96, device="cuda")
        mean, spread = encode(images).chunk(2, 1)
        found = decode(mean + torch.randn_like(mean) * (spread / 2).exp())
        apart = -0.5 * (1 + spread - mean.square() - spread.exp()).sum(1).mean()
        return F.mse_loss(found, images, reduction="sum") / 48 + apart

    for _ in range(3):
        train(model, optimizer, loss, steps=1)
        with torch.no_grad():
            loss()


class Denoiser(nn.Module):
    """Two scales with attention at the lower, told the time."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(64, width), nn.SiLU(), nn.Linear(width, width))
        self.first = nn.Conv2d(3, width, 3, 1, 1)
        self.upper = nn.Sequential(nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, width, 3, 1, 1))
        self.down = nn.Conv2d(width, 2 * width, 3, 2, 1)
        self.norm = nn.GroupNorm(8, 2 * width)
        self.attention = nn.MultiheadAttention(2 * width, 4, batch_first=True)
        self.up = nn.Conv2d(2 * width, width, 3, 1, 1)
        self.last = nn.Sequential(nn.GroupNorm(8, 2 * width), nn.SiLU(), nn.Conv2d(2 * width, 3, 3, 1, 1))

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        """Return the noise."""
        angles = time[:, None].float() * torch.logspace(0, -4, 32, device=x.device)
        told = self.time(torch.cat([angles.sin(), angles.cos()], 1))[:, :, None, None]
        upper = self.upper(self.first(x) + told) + told
        lower = self.down(upper)
        rows = self.norm(lower).flatten(2).transpose(1, 2)
        lower = lower + self.attention(rows, rows, rows, need_weights=False)[0].transpose(1, 2).reshape(lower.shape)
        raised = self.up(F.interpolate(lower, scale_factor=2, mode="nearest"))
        result: torch.Tensor = self.last(torch.cat([raised, upper], 1))
        return result


@case
def diffusion_averaged_bf16() -> None:
    """Train a small diffusion model in bfloat16 autocast, and move a copy of it along."""
    model = Denoiser(96).cuda()
    kept = copy.deepcopy(model).requires_grad_(requires_grad=False)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    decay = torch.linspace(1, 0.01, 1000, device="cuda")

    def loss() -> torch.Tensor:
        images, time = torch.randn(16, 3, 48, 48, device="cuda"), torch.randint(0, 1000, (16,), device="cuda")
        noise, share = torch.randn_like(images), decay[time][:, None, None, None]
        return F.mse_loss(model(share.sqrt() * images + (1 - share).sqrt() * noise, time), noise)

    for _ in range(3):
        train(model, optimizer, loss, autocast=torch.bfloat16, clip=1.0, steps=1)
        with torch.no_grad():
            for target, source in zip(kept.parameters(), model.parameters(), strict=True):
                target.mul_(0.999).add_(source, alpha=0.001)
