"""Practice: image networks that no frozen round had."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812  # the name that everybody gives it
from torch import nn
from torch.utils.checkpoint import checkpoint_sequential
from wider_runs import Bottleneck, image_loss, largest_batch, resnet, train

from truth_cases.registry import registry
from truth_cases.third_vision import labelled
from truth_cases.vision import Basic, basic_resnet, class_loss, unet, unet_loss

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CASES", "settled"]

CASES, case = registry()
BF16, F16 = torch.bfloat16, torch.float16
LAST = torch.channels_last


def settled(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loss_of: Callable[[], torch.Tensor],
    *,
    steps: int = 12,
    start: float = 1024.0,
) -> None:
    """Train in float16 autocast for as many steps as a loss scale takes to settle."""
    scaler = torch.amp.GradScaler("cuda", init_scale=start)
    model.train()
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", F16):
            loss = loss_of()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


class Grouped(nn.Module):
    """Residual block of a ResNeXt: its middle is grouped."""

    def __init__(self, inputs: int, width: int, stride: int, groups: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, width, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, groups=groups, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, 2 * width, 1, bias=False),
            nn.BatchNorm2d(2 * width),
        )
        self.short: nn.Module = nn.Identity()
        if stride != 1 or inputs != 2 * width:
            self.short = nn.Sequential(nn.Conv2d(inputs, 2 * width, 1, stride, bias=False), nn.BatchNorm2d(2 * width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add the body to the short cut."""
        return F.relu(self.body(x) + self.short(x), inplace=True)


def stem() -> list[nn.Module]:
    """Return the first layers of a ResNet."""
    return [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
    ]


def ended(layers: list[nn.Module], width: int, classes: int = 100) -> nn.Module:
    """Pool and classify."""
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes)).cuda()


@case
def resnet101_bf16_adamw() -> None:
    """Train a ResNet-101 in bfloat16 autocast with fused AdamW."""
    layers = stem()
    inputs = 64
    for blocks, width, stride in ((3, 64, 1), (4, 128, 2), (23, 256, 2), (3, 512, 2)):
        for index in range(blocks):
            layers.append(Bottleneck(inputs, width, 1 if index else stride))
            inputs = 4 * width
    model = ended(layers, 2048)
    train(model, torch.optim.AdamW(model.parameters(), 1e-4, fused=True), class_loss(model, 16, 224), autocast=BF16)


@case
def resnext50_fp32_sgd() -> None:
    """Train a ResNeXt-50 (32 groups of 4) in float32."""
    layers = stem()
    inputs = 64
    for blocks, width, stride in ((3, 128, 1), (4, 256, 2), (6, 512, 2), (3, 1024, 2)):
        for index in range(blocks):
            layers.append(Grouped(inputs, width, 1 if index else stride, 32))
            inputs = 2 * width
    model = ended(layers, 2048)
    train(model, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9), class_loss(model, 12, 224))


@case
def wide_resnet_cifar_fp16() -> None:
    """Train a wide ResNet on small images in float16, channels last, until the scale has settled."""
    layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, 1, 1, bias=False)]
    inputs = 16
    for width, stride in ((160, 1), (320, 2), (640, 2)):
        for index in range(2):
            layers.append(Basic(inputs, width, 1 if index else stride))
            inputs = width
    model = ended(layers, 640, 10).to(memory_format=LAST)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, nesterov=True, weight_decay=5e-4)
    settled(model, optimizer, class_loss(model, 128, 32, layout=LAST))


@case
def resnet18_cifar_fp32_ema() -> None:
    """Train a ResNet-18 on small images in float32 with averaged weights by torch's own tool."""
    from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

    model = basic_resnet((2, 2, 2, 2))
    kept = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.999))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for _ in range(4):
        train(model, optimizer, class_loss(model, 256, 32), steps=1)
        kept.update_parameters(model)
    with torch.no_grad():
        kept(torch.randn(512, 3, 32, 32, device="cuda"))


@case
def resnet50_settled_fp16_channels_last() -> None:
    """Train a ResNet-50 in float16, channels last, until the scale has settled."""
    model = resnet().cuda().to(memory_format=LAST)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    settled(model, optimizer, image_loss(model, LAST), start=65536.0)


@case
def resnet50_evaluates_large_batches() -> None:
    """Train a ResNet-34 and evaluate on larger batches without gradients, twice."""
    model = basic_resnet((3, 4, 6, 3))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(2):
        train(model, optimizer, class_loss(model, 32, 128), steps=2)
        model.eval()
        right = torch.zeros((), device="cuda")
        with torch.no_grad():
            for _ in range(2):
                images = torch.randn(128, 3, 128, 128, device="cuda")
                right += (model(images).argmax(1) == torch.randint(0, 100, (128,), device="cuda")).sum()
        right.item()


@case
def resnet34_frozen_norms_bf16() -> None:
    """Fine-tune the last stage of a ResNet-34 in bfloat16, the norms in evaluation mode."""
    model = basic_resnet((3, 4, 6, 3))
    for parameter in list(model.parameters())[:-30]:
        parameter.requires_grad_(requires_grad=False)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, 1e-4)
    loss_of = class_loss(model, 48, 160)
    for _ in range(3):
        model.train()
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eval()
        with torch.autocast("cuda", BF16):
            loss = loss_of()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


@case
def vgg16_norms_fp32_checkpointed() -> None:
    """Train a VGG-16 with batch norms in float32, four segments of it checkpointed."""
    layers: list[nn.Module] = []
    inputs = 3
    for width, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            layers += [nn.Conv2d(inputs, width, 3, 1, 1), nn.BatchNorm2d(width), nn.ReLU()]
            inputs = width
        layers.append(nn.MaxPool2d(2))
    body = nn.Sequential(*layers).cuda()
    head = nn.Sequential(nn.Flatten(), nn.Linear(512 * 16, 2048), nn.ReLU(), nn.Dropout(), nn.Linear(2048, 100)).cuda()
    model = nn.ModuleList([body, head])

    def loss() -> torch.Tensor:
        images = torch.randn(16, 3, 128, 128, device="cuda")
        found = checkpoint_sequential(body, 4, images, use_reentrant=False)
        return F.cross_entropy(head(found), torch.randint(0, 100, (16,), device="cuda"))

    train(model, torch.optim.SGD(model.parameters(), 0.01, momentum=0.9), loss)


@case
def mobilenet_v2_transformers_fp16() -> None:
    """Train transformers' MobileNetV2 in float16 until the scale has settled."""
    import transformers

    config = transformers.MobileNetV2Config(image_size=160, num_labels=100)
    model = transformers.MobileNetV2ForImageClassification(config).cuda()
    settled(model, torch.optim.RMSprop(model.parameters(), 1e-3, momentum=0.9), labelled(model, 32, 160))


@case
def convnextv2_fp32_lamb_free() -> None:
    """Train a ConvNeXt V2 (its response norms) in float32."""
    import transformers

    config = transformers.ConvNextV2Config(
        hidden_sizes=[48, 96, 192, 384], depths=[2, 2, 4, 2], image_size=160, num_labels=100
    )
    model = transformers.ConvNextV2ForImageClassification(config).cuda()
    train(model, torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=0.05), labelled(model, 20, 160))


@case
def deit_distilled_bf16() -> None:
    """Train a DeiT in bfloat16 autocast with mixed-up images and soft labels."""
    import transformers

    config = transformers.DeiTConfig(
        hidden_size=384, num_hidden_layers=8, num_attention_heads=6, intermediate_size=1536, num_labels=100
    )
    model = transformers.DeiTForImageClassification(config).cuda()

    def loss() -> torch.Tensor:
        images = torch.randn(32, 3, 224, 224, device="cuda")
        labels = F.one_hot(torch.randint(0, 100, (32,), device="cuda"), 100).float()
        share = 0.3
        mixed = share * images + (1 - share) * images.flip(0)
        wanted = share * labels + (1 - share) * labels.flip(0)
        return F.cross_entropy(model(pixel_values=mixed).logits, wanted)

    train(model, torch.optim.AdamW(model.parameters(), 1e-3), loss, autocast=BF16, clip=1.0)


@case
def beit_bf16() -> None:
    """Train a BEiT (relative positions) in bfloat16 autocast."""
    import transformers

    config = transformers.BeitConfig(
        hidden_size=384,
        num_hidden_layers=6,
        num_attention_heads=6,
        intermediate_size=1536,
        image_size=192,
        use_relative_position_bias=True,
        num_labels=100,
    )
    model = transformers.BeitForImageClassification(config).cuda()
    train(model, torch.optim.AdamW(model.parameters(), 1e-3), labelled(model, 24, 192), autocast=BF16)


@case
def mae_pretrains_fp32() -> None:
    """Train a masked autoencoder in float32: sorting, gathering, patches of a loss."""
    import transformers

    config = transformers.ViTMAEConfig(
        hidden_size=384,
        num_hidden_layers=6,
        num_attention_heads=6,
        intermediate_size=1536,
        decoder_hidden_size=192,
        decoder_num_hidden_layers=3,
        decoder_num_attention_heads=6,
        decoder_intermediate_size=768,
    )
    model = transformers.ViTMAEForPreTraining(config).cuda()

    def loss() -> torch.Tensor:
        result: torch.Tensor = model(pixel_values=torch.randn(32, 3, 224, 224, device="cuda")).loss
        return result

    train(model, torch.optim.AdamW(model.parameters(), 1e-3, betas=(0.9, 0.95)), loss)


@case
def siglip_pairs_bf16() -> None:
    """Train a SigLIP on pairs in bfloat16 throughout."""
    import transformers

    config = transformers.SiglipConfig(
        text_config={
            "vocab_size": 16000,
            "hidden_size": 384,
            "intermediate_size": 1536,
            "num_hidden_layers": 4,
            "num_attention_heads": 6,
        },
        vision_config={
            "hidden_size": 384,
            "intermediate_size": 1536,
            "num_hidden_layers": 5,
            "num_attention_heads": 6,
            "image_size": 192,
        },
    )
    model = transformers.SiglipModel(config).to(BF16).cuda()

    def loss() -> torch.Tensor:
        tokens = torch.randint(3, 16000, (40, 64), device="cuda")
        images = torch.randn(40, 3, 192, 192, device="cuda", dtype=BF16)
        result: torch.Tensor = model(input_ids=tokens, pixel_values=images, return_loss=True).loss
        return result

    train(model, torch.optim.AdamW(model.parameters(), 1e-4), loss)


@case
def segformer_bf16() -> None:
    """Train a SegFormer in bfloat16 autocast: attention over reduced rows, a decoder that resizes."""
    import transformers

    config = transformers.SegformerConfig(depths=[2, 2, 2, 2], num_labels=19)
    model = transformers.SegformerForSemanticSegmentation(config).cuda()

    def loss() -> torch.Tensor:
        images = torch.randn(6, 3, 256, 256, device="cuda")
        labels = torch.randint(0, 19, (6, 256, 256), device="cuda")
        result: torch.Tensor = model(pixel_values=images, labels=labels).loss
        return result

    train(model, torch.optim.AdamW(model.parameters(), 6e-5), loss, autocast=BF16)


class Detector(nn.Module):
    """A small DETR: a backbone, an encoder-decoder, queries."""

    def __init__(self, width: int = 256, queries: int = 50, classes: int = 20) -> None:
        super().__init__()
        self.backbone = nn.Sequential(*list(basic_resnet((2, 2, 2, 2)).children())[:-3])
        self.narrow = nn.Conv2d(512, width, 1)
        self.body = nn.Transformer(width, 8, 3, 3, 1024, batch_first=True)
        self.queries = nn.Parameter(torch.rand(queries, width))
        self.columns, self.rows = (nn.Parameter(torch.rand(50, width // 2)) for _ in range(2))
        self.classes, self.boxes = nn.Linear(width, classes + 1), nn.Linear(width, 4)

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return scores of classes, and boxes."""
        x = self.narrow(self.backbone(images))
        high, wide = x.shape[-2:]
        columns = self.columns[:wide].unsqueeze(0).repeat(high, 1, 1)
        rows = self.rows[:high].unsqueeze(1).repeat(1, wide, 1)
        places = torch.cat([columns, rows], -1).flatten(0, 1).unsqueeze(0)
        found = self.body(places + 0.1 * x.flatten(2).transpose(1, 2), self.queries.expand(x.shape[0], -1, -1))
        return self.classes(found), self.boxes(found).sigmoid()


@case
def detr_matches_fp32() -> None:
    """Train a small DETR in float32: costs of all pairs, a greedy match on the host, several losses."""
    model = Detector().cuda()

    def loss() -> torch.Tensor:
        classes, boxes = model(torch.randn(4, 3, 320, 320, device="cuda"))
        wanted = torch.randint(0, 20, (4, 7), device="cuda")
        places = torch.rand(4, 7, 4, device="cuda")
        with torch.no_grad():
            cost = torch.cdist(boxes, places, p=1) - classes.softmax(-1).gather(2, wanted[:, None].expand(-1, 50, -1))
            chosen = cost.cpu().argsort(1)[:, 0, :].cuda()
        labels = torch.full((4, 50), 20, device="cuda").scatter(1, chosen, wanted)
        near = boxes.gather(1, chosen[..., None].expand(-1, -1, 4))
        return F.cross_entropy(classes.transpose(1, 2), labels) + 5 * F.l1_loss(near, places)

    groups: list[dict[str, Any]] = [
        {"params": model.backbone.parameters(), "lr": 1e-5},
        {"params": [p for n, p in model.named_parameters() if not n.startswith("backbone")]},
    ]
    train(model, torch.optim.AdamW(groups, 1e-4), loss, clip=0.1)


@case
def clip_frozen_image_tower_fp16() -> None:
    """Train CLIP's texts against images that are encoded without gradients, in float16, until settled."""
    import transformers

    config = transformers.CLIPConfig(
        text_config={
            "vocab_size": 18000,
            "hidden_size": 320,
            "intermediate_size": 1280,
            "num_hidden_layers": 4,
            "num_attention_heads": 5,
        },
        vision_config={
            "hidden_size": 448,
            "intermediate_size": 1792,
            "num_hidden_layers": 4,
            "num_attention_heads": 7,
            "image_size": 128,
            "patch_size": 16,
        },
        projection_dim=192,
    )
    model = transformers.CLIPModel(config).cuda()
    model.vision_model.requires_grad_(requires_grad=False)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]

    def loss() -> torch.Tensor:
        tokens = torch.randint(3, 18000, (64, 50), device="cuda")
        images = torch.randn(64, 3, 128, 128, device="cuda")
        result: torch.Tensor = model(input_ids=tokens, pixel_values=images, return_loss=True).loss
        return result

    settled(model, torch.optim.AdamW(trained, 1e-5), loss)


@case
def oom_unet_bf16() -> int:
    """Find the batch size at which a capped card is full, for a U-Net in bfloat16 autocast."""
    model = unet(32)

    def step(batch: int) -> torch.Tensor:
        with torch.autocast("cuda", BF16):
            return unet_loss(model, batch, 128)()

    return largest_batch(lambda: (model, step))


@case
def oom_resnet50_channels_last() -> int:
    """Find the batch size at which a capped card is full, for a ResNet-50, channels last."""
    model = resnet().cuda().to(memory_format=LAST)
    return largest_batch(lambda: (model, lambda n: class_loss(model, n, 160, layout=LAST)()))
