"""Practice, second set: images and sound, more kinds."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812  # the name that everybody gives it
from torch import nn
from torch.nn.utils import parametrizations
from wider_runs import largest_batch, train

from truth_cases.practice_vision import settled
from truth_cases.registry import registry
from truth_cases.third_vision import labelled
from truth_cases.vision import basic_resnet, class_loss

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CASES"]

CASES, case = registry()
BF16, F16 = torch.bfloat16, torch.float16
LAST = torch.channels_last


def rows(*size: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return random numbers on the device."""
    return torch.randn(*size, device="cuda", dtype=dtype)


def labels(most: int, *size: int) -> torch.Tensor:
    """Return random classes on the device."""
    return torch.randint(0, most, size, device="cuda")


def built(name: str, **options: Any) -> nn.Module:
    """Build one of transformers' models by the names of its class and configuration."""
    import transformers

    head = name.rpartition("For")[0]
    config = getattr(transformers, f"{head.removesuffix('Model')}Config")(**options)
    model: nn.Module = getattr(transformers, name)(config).cuda()
    return model


@case
def dinov2_registers_bf16() -> None:
    """Train a DINOv2 with registers and gated units in bfloat16 autocast."""
    model = built(
        "Dinov2WithRegistersForImageClassification",
        hidden_size=384,
        num_hidden_layers=6,
        num_attention_heads=6,
        image_size=224,
        patch_size=14,
        use_swiglu_ffn=True,
        num_labels=100,
    )
    train(model, torch.optim.AdamW(model.parameters(), 1e-4), labelled(model, 24, 224), autocast=BF16)


@case
def poolformer_fp32() -> None:
    """Train a PoolFormer: pooling in place of attention, group norms over all channels."""
    model = built("PoolFormerForImageClassification", depths=[2, 2, 4, 2], num_labels=100)
    train(model, torch.optim.AdamW(model.parameters(), 1e-3), labelled(model, 20, 192))


@case
def levit_bf16() -> None:
    """Train a LeViT: batch norms in attention, biases by offset."""
    model = built("LevitForImageClassification", num_labels=100)
    train(model, torch.optim.AdamW(model.parameters(), 1e-3), labelled(model, 48, 224), autocast=BF16)


@case
def cvt_settled_fp16() -> None:
    """Train a CvT: convolutions make queries, keys and values; float16 until settled."""
    model = built(
        "CvtForImageClassification", embed_dim=[48, 96, 192], num_heads=[1, 3, 6], depth=[1, 2, 4], num_labels=100
    )
    settled(model, torch.optim.AdamW(model.parameters(), 1e-4), labelled(model, 24, 160))


@case
def pvt_fp32() -> None:
    """Train a pyramid vision transformer v2 with linear spatial reduction."""
    model = built("PvtV2ForImageClassification", depths=[2, 2, 2, 2], linear_attention=True, num_labels=100)
    train(model, torch.optim.AdamW(model.parameters(), 1e-4), labelled(model, 16, 224))


@case
def focalnet_bf16() -> None:
    """Train a FocalNet: gated contexts of depthwise kernels."""
    model = built("FocalNetForImageClassification", embed_dim=64, depths=[2, 2, 4, 2], num_labels=100)
    train(model, torch.optim.AdamW(model.parameters(), 1e-4), labelled(model, 16, 192), autocast=BF16)


@case
def mobilevit_settled_fp16() -> None:
    """Train a MobileViT: unfolded patches between convolutions, float16 until settled."""
    model = built("MobileViTForImageClassification", image_size=192, num_labels=100)
    settled(model, torch.optim.AdamW(model.parameters(), 1e-4), labelled(model, 16, 192))


@case
def hiera_bf16() -> None:
    """Train a Hiera, pooled queries in mask units."""
    model = built("HieraForImageClassification", embed_dim=64, depths=[1, 2, 4, 2], num_labels=100)
    train(model, torch.optim.AdamW(model.parameters(), 1e-4), labelled(model, 20, 224), autocast=BF16)


@case
def yolos_detects_fp32() -> None:
    """Train a YOLOS without its matcher: detection tokens, losses of classes and boxes."""
    model = built(
        "YolosForObjectDetection",
        hidden_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=1024,
        image_size=[224, 320],
        num_detection_tokens=40,
        num_labels=20,
    )

    def loss() -> torch.Tensor:
        found = model(pixel_values=rows(8, 3, 224, 320))
        return F.cross_entropy(found.logits.transpose(1, 2), labels(21, 8, 40)) + F.l1_loss(
            found.pred_boxes, torch.rand(8, 40, 4, device="cuda")
        )

    train(model, torch.optim.AdamW(model.parameters(), 1e-4), loss, clip=0.1)


@case
def dpt_depth_bf16() -> None:
    """Train a DPT to tell depth, with a scale-invariant loss."""
    model = built(
        "DPTForDepthEstimation",
        hidden_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=1024,
        image_size=160,
        backbone_out_indices=[0, 1, 2, 3],
        neck_hidden_sizes=[32, 64, 128, 256],
        fusion_hidden_size=64,
    )

    def loss() -> torch.Tensor:
        found = model(pixel_values=rows(6, 3, 160, 160)).predicted_depth.float()
        apart = torch.log(found.clamp(min=1e-3)) - torch.rand_like(found)
        return apart.square().mean() - 0.5 * apart.mean().square()

    train(model, torch.optim.AdamW(model.parameters(), 1e-4), loss, autocast=BF16)


@case
def video_mae_bf16() -> None:
    """Pretrain a VideoMAE: tubes of three-dimensional patches, a mask on the host."""
    model = built(
        "VideoMAEForPreTraining",
        image_size=112,
        num_frames=8,
        hidden_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=1024,
        decoder_hidden_size=192,
        decoder_num_hidden_layers=2,
        decoder_num_attention_heads=3,
        decoder_intermediate_size=768,
    )

    def loss() -> torch.Tensor:
        hidden = torch.zeros(8, 196, dtype=torch.bool)
        hidden[:, :150] = True
        result: torch.Tensor = model(pixel_values=rows(8, 8, 3, 112, 112), bool_masked_pos=hidden.cuda()).loss
        return result

    train(model, torch.optim.AdamW(model.parameters(), 1e-4), loss, autocast=BF16)


@case
def wavlm_bf16() -> None:
    """Train a WavLM: positions gated by the hidden states."""
    model = built(
        "WavLMForSequenceClassification",
        hidden_size=256,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=1024,
        conv_dim=(128,) * 7,
        num_conv_pos_embeddings=32,
        num_conv_pos_embedding_groups=8,
        layerdrop=0.0,
        num_labels=9,
    )

    def loss() -> torch.Tensor:
        result: torch.Tensor = model(input_values=rows(6, 24000), labels=labels(9, 6)).loss
        return result

    train(model, torch.optim.AdamW(model.parameters(), 1e-4), loss, autocast=BF16)


@case
def speech_to_text_fp32() -> None:
    """Train a Speech2Text: strided convolutions with gates, an encoder-decoder."""
    model = built(
        "Speech2TextForConditionalGeneration",
        vocab_size=6000,
        d_model=256,
        encoder_layers=3,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=1024,
        decoder_ffn_dim=1024,
    )

    def loss() -> torch.Tensor:
        result: torch.Tensor = model(input_features=rows(8, 600, 80), labels=labels(6000, 8, 50)).loss
        return result

    train(model, torch.optim.AdamW(model.parameters(), 1e-4), loss)


@case
def patch_series_fp32() -> None:
    """Train a PatchTST to foretell series."""
    model = built(
        "PatchTSTForPrediction",
        num_input_channels=7,
        context_length=512,
        prediction_length=96,
        patch_length=16,
        patch_stride=8,
        d_model=128,
        num_hidden_layers=3,
        num_attention_heads=8,
        ffn_dim=512,
    )

    def loss() -> torch.Tensor:
        result: torch.Tensor = model(past_values=rows(64, 512, 7), future_values=rows(64, 96, 7)).loss
        return result

    train(model, torch.optim.AdamW(model.parameters(), 1e-4), loss)


def convolved(inputs: int, outputs: int, kernel: int, stride: int = 1, **options: int) -> list[nn.Module]:
    """Return a convolution with its norm and activation."""
    padding = options.pop("padding", kernel // 2)
    return [
        nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False, **options),
        nn.BatchNorm2d(outputs),
        nn.SiLU(inplace=True),
    ]


def ended(layers: list[nn.Module], width: int, classes: int = 100) -> nn.Module:
    """Pool and classify."""
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes)).cuda()


class Sum(nn.Module):
    """A body and its short cut."""

    def __init__(self, *body: nn.Module) -> None:
        super().__init__()
        self.body = nn.Sequential(*body)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add them."""
        result: torch.Tensor = x + self.body(x)
        return result


@case
def convmixer_bf16_channels_last() -> None:
    """Train a ConvMixer: depthwise kernels of 9 with padding, pointwise mixes; bfloat16, channels last."""
    width = 256
    layers: list[nn.Module] = [nn.Conv2d(3, width, 8, 8), nn.GELU(), nn.BatchNorm2d(width)]
    for _ in range(6):
        layers.append(Sum(nn.Conv2d(width, width, 9, padding="same", groups=width), nn.GELU(), nn.BatchNorm2d(width)))
        layers += [nn.Conv2d(width, width, 1), nn.GELU(), nn.BatchNorm2d(width)]
    model = ended(layers, width).to(memory_format=LAST)
    train(model, torch.optim.AdamW(model.parameters(), 1e-3), class_loss(model, 24, 224, layout=LAST), autocast=BF16)


class Mixer(nn.Module):
    """Mix rows, then channels."""

    def __init__(self, count: int, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.across = nn.Sequential(nn.Linear(count, 256), nn.GELU(), nn.Dropout(0.1), nn.Linear(256, count))
        self.along = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(0.1), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return rows."""
        x = x + self.across(self.first(x).transpose(1, 2)).transpose(1, 2)
        result: torch.Tensor = x + self.along(self.second(x))
        return result


@case
def mlp_mixer_fp32() -> None:
    """Train an MLP-Mixer in float32 with RAdam."""
    patches, body = nn.Conv2d(3, 320, 16, 16), nn.Sequential(*(Mixer(196, 320) for _ in range(6)))
    head = nn.Linear(320, 100)
    model = nn.ModuleList([patches, body, head]).cuda()

    def loss() -> torch.Tensor:
        x = body(patches(rows(32, 3, 224, 224)).flatten(2).transpose(1, 2))
        return F.cross_entropy(head(x.mean(1)), labels(100, 32))

    train(model, torch.optim.RAdam(model.parameters(), 1e-3), loss)


class Shuffled(nn.Module):
    """Unit of a ShuffleNet: half goes through, half is convolved, channels are shuffled."""

    def __init__(self, width: int) -> None:
        super().__init__()
        half = width // 2
        self.body = nn.Sequential(
            *convolved(half, half, 1),
            nn.Conv2d(half, half, 3, 1, 1, groups=half, bias=False),
            nn.BatchNorm2d(half),
            *convolved(half, half, 1),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return channels of both halves in turn."""
        left, right = x.chunk(2, 1)
        return F.channel_shuffle(torch.cat([left, self.body(right)], 1), 2)


@case
def shufflenet_settled_fp16() -> None:
    """Train a ShuffleNet in float16 until settled."""
    layers = [*convolved(3, 24, 3, 2), nn.MaxPool2d(3, 2, 1)]
    inputs = 24
    for width, count in ((116, 4), (232, 8), (464, 4)):
        layers += [*convolved(inputs, width, 3, 2), *(Shuffled(width) for _ in range(count - 1))]
        inputs = width
    model = ended([*layers, *convolved(464, 1024, 1)], 1024)
    settled(model, torch.optim.SGD(model.parameters(), 0.05, momentum=0.9), class_loss(model, 48, 224))


class Branches(nn.Module):
    """Block of an Inception network."""

    def __init__(self, inputs: int, *widths: int) -> None:
        super().__init__()
        one, three, five, pool = widths
        self.parts = nn.ModuleList(
            [
                nn.Sequential(*convolved(inputs, one, 1)),
                nn.Sequential(*convolved(inputs, three // 2, 1), *convolved(three // 2, three, 3)),
                nn.Sequential(*convolved(inputs, five // 2, 1), *convolved(five // 2, five, 5)),
                nn.Sequential(nn.MaxPool2d(3, 1, 1), *convolved(inputs, pool, 1)),
            ]
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return all branches' channels."""
        return torch.cat([part(x) for part in self.parts], 1)


@case
def inception_fp32() -> None:
    """Train a small Inception network in float32 with an auxiliary head."""
    stem = nn.Sequential(*convolved(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1), *convolved(64, 192, 3), nn.MaxPool2d(3, 2, 1))
    low = nn.Sequential(Branches(192, 64, 128, 32, 32), Branches(256, 128, 192, 96, 64), nn.MaxPool2d(3, 2, 1))
    high = nn.Sequential(Branches(480, 192, 208, 48, 64), Branches(512, 160, 224, 64, 64))
    side = nn.Sequential(nn.AdaptiveAvgPool2d(4), *convolved(480, 128, 1), nn.Flatten(), nn.Linear(2048, 100))
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.4), nn.Linear(512, 100))
    model = nn.ModuleList([stem, low, high, side, head]).cuda()

    def loss() -> torch.Tensor:
        x, wanted = low(stem(rows(24, 3, 224, 224))), labels(100, 24)
        return F.cross_entropy(head(high(x)), wanted) + 0.3 * F.cross_entropy(side(x), wanted)

    train(model, torch.optim.SGD(model.parameters(), 0.01, momentum=0.9), loss)


class Squeezed(nn.Module):
    """Scale channels by what the whole image says."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(width, width // 4, 1),
            nn.SiLU(),
            nn.Conv2d(width // 4, width, 1),
            nn.Sigmoid(),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the scaled image."""
        result: torch.Tensor = x * self.gate(x)
        return result


@case
def fused_mobile_bf16_channels_last() -> None:
    """Train an EfficientNetV2 of fused and squeezed blocks in bfloat16, channels last."""
    layers = convolved(3, 24, 3, 2)
    for inputs, outputs, stride in ((24, 48, 2), (48, 64, 2)):
        layers += [
            *convolved(inputs, 4 * inputs, 3, stride),
            nn.Conv2d(4 * inputs, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        ]
        layers.append(
            Sum(
                *convolved(outputs, 4 * outputs, 3),
                nn.Conv2d(4 * outputs, outputs, 1, bias=False),
                nn.BatchNorm2d(outputs),
            )
        )
    for inputs, outputs, stride in ((64, 128, 2), (128, 160, 1)):
        wide = 4 * inputs
        layers += [*convolved(inputs, wide, 1), *convolved(wide, wide, 3, stride, groups=wide), Squeezed(wide)]
        layers += [nn.Conv2d(wide, outputs, 1, bias=False), nn.BatchNorm2d(outputs)]
    model = ended([*layers, *convolved(160, 640, 1)], 640).to(memory_format=LAST)
    train(model, torch.optim.RMSprop(model.parameters(), 1e-3), class_loss(model, 32, 192, layout=LAST), autocast=BF16)


@case
def deeplab_dilated_fp32() -> None:
    """Segment by a dilated ResNet with pooled pyramids, upsampled logits, ignored pixels."""
    body = nn.Sequential(*list(basic_resnet((2, 2, 2, 2)).children())[:8])
    pyramid = nn.ModuleList(
        [
            nn.Sequential(*convolved(128, 96, 1)),
            *(nn.Sequential(*convolved(128, 96, 3, 1, dilation=d, padding=d)) for d in (6, 12, 18)),
        ]
    )
    pooled = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(128, 96, 1), nn.ReLU())
    head = nn.Sequential(*convolved(480, 96, 1), nn.Dropout(0.1), nn.Conv2d(96, 21, 1))
    model = nn.ModuleList([body, pyramid, pooled, head]).cuda()

    def loss() -> torch.Tensor:
        x = body(rows(6, 3, 256, 256))
        whole = F.interpolate(pooled(x), size=x.shape[-2:], mode="bilinear", align_corners=False)
        found = head(torch.cat([*(part(x) for part in pyramid), whole], 1))
        found = F.interpolate(found, size=(256, 256), mode="bilinear", align_corners=False)
        wanted = labels(21, 6, 256, 256)
        wanted[:, :8] = 255
        return F.cross_entropy(found, wanted, ignore_index=255)

    train(model, torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, weight_decay=1e-4), loss)


@case
def spectral_gan_hinge_bf16() -> None:
    """Train a GAN with spectral norms, attention and hinge losses in bfloat16 autocast."""
    norm = parametrizations.spectral_norm
    critic = nn.Sequential(
        *(norm(nn.Conv2d(3, 64, 4, 2, 1)), nn.LeakyReLU(0.1), norm(nn.Conv2d(64, 128, 4, 2, 1)), nn.LeakyReLU(0.1)),
        *(norm(nn.Conv2d(128, 256, 4, 2, 1)), nn.LeakyReLU(0.1), nn.Flatten(), norm(nn.Linear(256 * 64, 1))),
    ).cuda()
    maker = nn.Sequential(
        *(nn.Linear(96, 256 * 64), nn.Unflatten(1, (256, 8, 8)), nn.BatchNorm2d(256), nn.ReLU()),
        *(nn.ConvTranspose2d(256, 128, 4, 2, 1), nn.BatchNorm2d(128), nn.ReLU()),
        *(
            nn.ConvTranspose2d(128, 64, 4, 2, 1),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.ConvTranspose2d(64, 3, 4, 2, 1),
            nn.Tanh(),
        ),
    ).cuda()
    makes, judges = (torch.optim.Adam(each.parameters(), 2e-4, betas=(0.0, 0.9)) for each in (maker, critic))
    for _ in range(3):
        with torch.autocast("cuda", BF16):
            fake = maker(rows(48, 96))
            judged = F.relu(1 - critic(rows(48, 3, 64, 64))).mean() + F.relu(1 + critic(fake.detach())).mean()
        judges.zero_grad()
        judged.backward()
        judges.step()
        with torch.autocast("cuda", BF16):
            made = -critic(fake).mean()
        makes.zero_grad()
        made.backward()
        makes.step()


@case
def style_modulated_fp32() -> None:
    """Generate by modulated convolutions (one group a sample) and noise, with path lengths (double backward)."""
    mapping = nn.Sequential(*(layer for _ in range(3) for layer in (nn.Linear(128, 128), nn.LeakyReLU(0.2)))).cuda()
    start = nn.Parameter(torch.randn(1, 128, 8, 8, device="cuda"))
    kernels = nn.ParameterList(nn.Parameter(torch.randn(128, 128, 3, 3, device="cuda") / 34) for _ in range(3))
    styles = nn.ModuleList(nn.Linear(128, 128) for _ in range(3)).cuda()
    colour = nn.Conv2d(128, 3, 1).cuda()
    parameters = [*mapping.parameters(), start, *kernels, *styles.parameters(), *colour.parameters()]
    optimizer = torch.optim.Adam(parameters, 1e-3)

    def made(w: torch.Tensor) -> torch.Tensor:
        batch, x = len(w), start.expand(len(w), -1, -1, -1)
        for kernel, style in zip(kernels, styles, strict=True):
            weight = kernel * (1 + style(w))[:, None, :, None, None]
            weight = weight * (weight.square().sum((2, 3, 4), keepdim=True) + 1e-8).rsqrt()
            x = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
            size = x.shape[-1]
            x = F.conv2d(x.reshape(1, -1, size, size), weight.flatten(0, 1), padding=1, groups=batch)
            x = F.leaky_relu(x.view(batch, 128, size, size) + 0.1 * rows(batch, 1, size, size), 0.2)
        result: torch.Tensor = colour(x)
        return result

    for _ in range(3):
        w = mapping(rows(8, 128))
        images = made(w)
        (slope,) = torch.autograd.grad((images * rows(*images.shape) / 64).sum(), w, create_graph=True)
        loss = images.square().mean() + (slope.square().sum(1).sqrt() - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@case
def byol_settled_fp16() -> None:
    """Learn without labels: an online and a target network, symmetric losses, float16 until settled."""
    online = nn.Sequential(*list(basic_resnet((2, 2, 2, 2)).children())[:-1], nn.Linear(512, 128)).cuda()
    target = copy.deepcopy(online).requires_grad_(requires_grad=False)
    guess = nn.Sequential(nn.Linear(128, 512), nn.BatchNorm1d(512), nn.ReLU(), nn.Linear(512, 128)).cuda()
    both = nn.ModuleList([online, guess])

    def loss() -> torch.Tensor:
        one, two = rows(2, 48, 3, 96, 96)
        with torch.no_grad():
            for kept, new in zip(target.parameters(), online.parameters(), strict=True):
                kept.lerp_(new, 0.01)
            wanted = F.normalize(target(torch.cat([two, one])).float(), dim=1)
        found = F.normalize(guess(online(torch.cat([one, two]))).float(), dim=1)
        return 2 - 2 * (found * wanted).sum(1).mean()

    settled(both, torch.optim.SGD(both.parameters(), 0.03, momentum=0.9), loss)


@case
def sharpness_aware_fp32() -> None:
    """Train a ResNet-18 with two passes a step: up to the worst neighbour, and back."""
    model = basic_resnet((2, 2, 2, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for _ in range(3):
        images, wanted = rows(48, 3, 112, 112), labels(100, 48)
        F.cross_entropy(model(images), wanted).backward()
        with torch.no_grad():
            size = torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not None]).norm()
            moved = [0.05 * p.grad / (size + 1e-12) for p in model.parameters() if p.grad is not None]
            torch._foreach_add_(list(model.parameters()), moved)
        model.zero_grad()
        F.cross_entropy(model(images), wanted).backward()
        with torch.no_grad():
            torch._foreach_sub_(list(model.parameters()), moved)
        optimizer.step()
        optimizer.zero_grad()


@case
def heatmaps_half_precision_weights() -> None:
    """Find keypoints by heatmaps with weights in bfloat16, then decode them without gradients."""
    body = nn.Sequential(*list(basic_resnet((2, 2, 2, 2)).children())[:-3])
    up = nn.Sequential(
        *(
            layer
            for a, b in ((512, 128), (128, 64))
            for layer in (nn.ConvTranspose2d(a, b, 4, 2, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU(True))
        )
    )
    model = nn.Sequential(body, up, nn.Conv2d(64, 17, 1)).to(BF16).cuda()

    def loss() -> torch.Tensor:
        found = model(rows(24, 3, 192, 128, dtype=BF16))
        return F.mse_loss(found, torch.rand_like(found))

    train(model, torch.optim.AdamW(model.parameters(), 1e-3), loss)
    model.eval()
    with torch.inference_mode():
        found = model(rows(64, 3, 192, 128, dtype=BF16)).float()
        scores, places = found.flatten(2).max(-1)
        torch.stack([places % found.shape[-1], places // found.shape[-1], scores], -1).cpu()


@case
def oom_vit_checkpointed() -> int:
    """Find the batch size at which a capped card is full, for a ViT in float32 with checkpointing."""
    model = built(
        "ViTForImageClassification",
        hidden_size=384,
        num_hidden_layers=6,
        num_attention_heads=6,
        intermediate_size=1536,
        num_labels=100,
    )
    enable: Callable[[], None] = model.gradient_checkpointing_enable  # type: ignore[assignment]
    enable()
    model.train()
    return largest_batch(lambda: (model, lambda n: labelled(model, n, 224)()))
