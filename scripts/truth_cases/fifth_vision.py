"""Fifth round: image networks."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812  # the name that everybody gives it
from torch import nn
from wider_runs import resnet, train

from truth_cases.fifth_language import train_scaled
from truth_cases.registry import registry
from truth_cases.third_vision import labelled
from truth_cases.vision import basic_resnet, class_loss

__all__ = ["CASES", "vit"]

CASES, case = registry()
BF16 = torch.bfloat16
LAST = torch.channels_last


def vit(**options: int) -> nn.Module:
    """Build a vision transformer on the host."""
    import transformers

    model: nn.Module = transformers.ViTForImageClassification(transformers.ViTConfig(num_labels=100, **options))
    return model


@case
def resnet34_fp32_batch48() -> None:
    """Train a ResNet-34 on 48 images of 224 in float32 with SGD and momentum."""
    model = basic_resnet((3, 4, 6, 3))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
    train(model, optimizer, class_loss(model, 48, 224))


@case
def resnet50_fp16_batch64_channels_last() -> None:
    """Train a ResNet-50 on 64 images of 224 in float16 with a scaler, channels last, labels smoothed."""
    model = resnet().cuda().to(memory_format=LAST)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4, nesterov=True)

    def loss() -> torch.Tensor:
        images = torch.randn(64, 3, 224, 224).cuda().contiguous(memory_format=LAST)
        return F.cross_entropy(model(images), torch.randint(0, 1000, (64,)).cuda(), label_smoothing=0.1)

    train_scaled(model, optimizer, loss)


@case
def vit_b32_accumulates_bf16() -> None:
    """Train a ViT-B/32 on 64 images in bfloat16 autocast with fused AdamW, two batches a step, clipping."""
    model = vit(patch_size=32).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, weight_decay=0.1, fused=True)
    train(model, optimizer, labelled(model, 64, 224), autocast=BF16, accumulate=2, clip=1.0, steps=2)


@case
def vit_small_fp16() -> None:
    """Train a ViT-S/16 with dropout on 56 images in float16 with a scaler, SGD and momentum."""
    model = vit(hidden_size=384, intermediate_size=1536, num_attention_heads=6, hidden_dropout_prob=0.1).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    train_scaled(model, optimizer, labelled(model, 56, 224), clip=1.0)


@case
def vit_probed_then_evaluated() -> None:
    """Train a linear classifier on a frozen ViT-B/16's vectors in bfloat16 autocast, then count right answers."""
    import transformers

    body = transformers.ViTModel(transformers.ViTConfig(), add_pooling_layer=False).cuda().eval()
    body.requires_grad_(requires_grad=False)
    head = nn.Linear(768, 100).cuda()

    def scores(batch: int) -> torch.Tensor:
        with torch.no_grad():
            found = body(pixel_values=torch.randn(batch, 3, 224, 224).cuda()).last_hidden_state[:, 0]
        result: torch.Tensor = head(found)
        return result

    optimizer = torch.optim.SGD(head.parameters(), 0.1, momentum=0.9)
    train(head, optimizer, lambda: F.cross_entropy(scores(40), torch.randint(0, 100, (40,)).cuda()), autocast=BF16)
    right = 0
    with torch.no_grad(), torch.autocast("cuda", BF16):
        for _ in range(2):
            right += (scores(72).argmax(-1) == torch.randint(0, 100, (72,)).cuda()).sum().item()
