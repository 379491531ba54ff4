"""Practice: networks that make images, and loops around them."""

from __future__ import annotations

import copy
import itertools

import torch
import torch.nn.functional as F  # noqa: N812  # the name that everybody gives it
from torch import nn
from wider_runs import train

from truth_cases.practice_vision import settled
from truth_cases.registry import registry
from truth_cases.vision import basic_resnet, class_loss

__all__ = ["CASES"]

CASES, case = registry()
BF16, F16 = torch.bfloat16, torch.float16
LAST = torch.channels_last


class Residual(nn.Module):
    """Block of a diffusion U-Net, told the time."""

    def __init__(self, inputs: int, outputs: int, told: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.GroupNorm(16, inputs), nn.SiLU(), nn.Conv2d(inputs, outputs, 3, 1, 1))
        self.told = nn.Linear(told, 2 * outputs)
        self.norm = nn.GroupNorm(16, outputs)
        self.second = nn.Sequential(nn.SiLU(), nn.Dropout(0.1), nn.Conv2d(outputs, outputs, 3, 1, 1))
        self.short = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x: torch.Tensor, told: torch.Tensor) -> torch.Tensor:
        """Scale and shift by the time between two convolutions."""
        scale, shift = self.told(F.silu(told))[:, :, None, None].chunk(2, 1)
        y = self.second(self.norm(self.first(x)) * (1 + scale) + shift)
        result: torch.Tensor = y + self.short(x)
        return result


class Crossing(nn.Module):
    """Attention of an image to itself and to a text."""

    def __init__(self, width: int, text: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.norm_cross = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.q, self.kv = nn.Linear(width, 3 * width), nn.Linear(width, width), nn.Linear(text, 2 * width)
        self.out, self.out_cross = nn.Linear(width, width), nn.Linear(width, width)

    def split(self, x: torch.Tensor) -> torch.Tensor:
        """Return heads before rows."""
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        """Return the image's rows."""
        shape = x.shape
        rows = x.flatten(2).transpose(1, 2)
        q, k, v = (self.split(each) for each in self.qkv(self.norm(rows)).chunk(3, -1))
        rows = rows + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        k, v = (self.split(each) for each in self.kv(text).chunk(2, -1))
        q = self.split(self.q(self.norm_cross(rows)))
        rows = rows + self.out_cross(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return rows.transpose(1, 2).reshape(shape)


class TextDiffusion(nn.Module):
    """A U-Net of three scales that attends to a text."""

    def __init__(self, width: int = 64, text: int = 256) -> None:
        super().__init__()
        widths = [width, 2 * width, 4 * width]
        self.time = nn.Sequential(nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, 4 * width))
        self.first = nn.Conv2d(4, width, 3, 1, 1)
        self.down = nn.ModuleList(Residual(a, b, 4 * width) for a, b in zip([width, *widths], widths, strict=False))
        self.shrink = nn.ModuleList(nn.Conv2d(each, each, 3, 2, 1) for each in widths[:-1])
        self.cross = nn.ModuleList(Crossing(each, text, each // 32) for each in widths)
        self.middle = Residual(widths[-1], widths[-1], 4 * width)
        self.up = nn.ModuleList(Residual(2 * b, a, 4 * width) for a, b in zip([width, *widths], widths, strict=False))
        self.grow = nn.ModuleList(nn.Conv2d(each, each, 3, 1, 1) for each in widths[:-1])
        self.last = nn.Sequential(nn.GroupNorm(16, width), nn.SiLU(), nn.Conv2d(width, 4, 3, 1, 1))

    def forward(self, x: torch.Tensor, time: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        """Return the noise."""
        half = self.first.out_channels // 2
        angles = time[:, None].float() * torch.exp(-torch.arange(half, device=x.device) / half * 9.2)
        told = self.time(torch.cat([angles.sin(), angles.cos()], 1))
        x = self.first(x)
        kept = []
        for scale, block in enumerate(self.down):
            x = self.cross[scale](block(x, told), text)
            kept.append(x)
            if scale < 2:
                x = self.shrink[scale](x)
        x = self.middle(x, told)
        for scale in reversed(range(3)):
            x = self.up[scale](torch.cat([x, kept.pop()], 1), told)
            if scale:
                x = self.grow[scale - 1](F.interpolate(x, scale_factor=2.0, mode="nearest"))
        result: torch.Tensor = self.last(x)
        return result


def noise_loss(model: nn.Module, batch: int) -> torch.Tensor:
    """Return the loss of telling the noise."""
    latents, text = torch.randn(batch, 4, 32, 32, device="cuda"), torch.randn(batch, 40, 256, device="cuda")
    noise, time = torch.randn_like(latents), torch.randint(0, 1000, (batch,), device="cuda")
    betas = torch.linspace(0.0001, 0.02, 1000, device="cuda")
    kept = torch.cumprod(1 - betas, 0)[time].view(-1, 1, 1, 1)
    found = model(kept.sqrt() * latents + (1 - kept).sqrt() * noise, time, text)
    return F.mse_loss(found.float(), noise)


@case
def latent_diffusion_fp32() -> None:
    """Train a latent diffusion U-Net with texts in float32 and clipping."""
    model = TextDiffusion().cuda()
    train(model, torch.optim.AdamW(model.parameters(), 1e-4), lambda: noise_loss(model, 16), clip=1.0)


@case
def latent_diffusion_settled_fp16() -> None:
    """Train a wider one in float16 with a scaler until it has settled, then sample without gradients."""
    model = TextDiffusion(96).cuda()
    settled(model, torch.optim.AdamW(model.parameters(), 1e-4), lambda: noise_loss(model, 20))
    model.eval()
    with torch.no_grad(), torch.autocast("cuda", F16):
        latents = torch.randn(8, 4, 32, 32, device="cuda")
        text = torch.randn(16, 40, 256, device="cuda")
        for time in (900, 600, 300, 0):
            both = model(torch.cat([latents, latents]), torch.full((16,), time, device="cuda"), text)
            with_text, without = both.chunk(2)
            latents = latents - 0.1 * (without + 7.5 * (with_text - without))


class Quantizer(nn.Module):
    """The nearest of a book of codes, straight through."""

    def __init__(self, codes: int, width: int) -> None:
        super().__init__()
        self.book = nn.Embedding(codes, width)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return codes in place of `x`, and the loss of both towards each other."""
        rows = x.permute(0, 2, 3, 1).reshape(-1, x.shape[1])
        apart = rows.square().sum(1, keepdim=True) - 2 * rows @ self.book.weight.T + self.book.weight.square().sum(1)
        found = self.book(apart.argmin(1)).view(x.shape[0], *x.shape[2:], -1).permute(0, 3, 1, 2)
        loss = F.mse_loss(found, x.detach()) + 0.25 * F.mse_loss(x, found.detach())
        return x + (found - x).detach(), loss


@case
def vqvae_fp32() -> None:
    """Train a VQ-VAE in float32."""
    encode = nn.Sequential(
        *(nn.Conv2d(3, 64, 4, 2, 1), nn.ReLU(), nn.Conv2d(64, 128, 4, 2, 1), nn.ReLU()),
        nn.Conv2d(128, 64, 3, 1, 1),
    )
    decode = nn.Sequential(
        *(nn.Conv2d(64, 128, 3, 1, 1), nn.ReLU(), nn.ConvTranspose2d(128, 64, 4, 2, 1), nn.ReLU()),
        nn.ConvTranspose2d(64, 3, 4, 2, 1),
    )
    book = Quantizer(512, 64)
    model = nn.ModuleList([encode, decode, book]).cuda()

    def loss() -> torch.Tensor:
        images = torch.rand(32, 3, 64, 64, device="cuda")
        codes, apart = book(encode(images))
        return F.mse_loss(decode(codes), images) + apart

    train(model, torch.optim.Adam(model.parameters(), 3e-4), loss, steps=4)


@case
def wgan_penalty_fp32() -> None:
    """Train a Wasserstein GAN with a penalty on gradients (double backward) in float32."""
    generator = nn.Sequential(
        *(nn.Linear(128, 256 * 16), nn.Unflatten(1, (256, 4, 4))),
        *(nn.Upsample(scale_factor=2), nn.Conv2d(256, 128, 3, 1, 1), nn.BatchNorm2d(128), nn.ReLU()),
        *(nn.Upsample(scale_factor=2), nn.Conv2d(128, 64, 3, 1, 1), nn.BatchNorm2d(64), nn.ReLU()),
        *(nn.Upsample(scale_factor=2), nn.Conv2d(64, 3, 3, 1, 1), nn.Tanh()),
    ).cuda()
    critic = nn.Sequential(
        *(nn.Conv2d(3, 64, 3, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(64, 128, 3, 2, 1), nn.LeakyReLU(0.2)),
        *(nn.Conv2d(128, 256, 3, 2, 1), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(256 * 16, 1)),
    ).cuda()
    makes = torch.optim.Adam(generator.parameters(), 1e-4, betas=(0.0, 0.9))
    judges = torch.optim.Adam(critic.parameters(), 1e-4, betas=(0.0, 0.9))
    for step in range(4):
        real, fake = torch.randn(64, 3, 32, 32, device="cuda"), generator(torch.randn(64, 128, device="cuda"))
        share = torch.rand(64, 1, 1, 1, device="cuda")
        between = (share * real + (1 - share) * fake.detach()).requires_grad_()
        (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
        penalty = 10 * (slope.flatten(1).norm(2, 1) - 1).square().mean()
        judges.zero_grad()
        (critic(fake.detach()).mean() - critic(real).mean() + penalty).backward()
        judges.step()
        if step % 2:
            makes.zero_grad()
            (-critic(fake).mean()).backward()
            makes.step()


@case
def cycle_gan_instance_norms_bf16() -> None:
    """Train two generators with instance norms and reflected borders against each other's inverse, in bfloat16."""

    def generator() -> nn.Module:
        layers: list[nn.Module] = [nn.ReflectionPad2d(3), nn.Conv2d(3, 32, 7), nn.InstanceNorm2d(32), nn.ReLU(True)]
        for a, b in ((32, 64), (64, 128)):
            layers += [nn.Conv2d(a, b, 3, 2, 1), nn.InstanceNorm2d(b, affine=True), nn.ReLU(True)]
        for a, b in ((128, 64), (64, 32)):
            layers += [nn.ConvTranspose2d(a, b, 3, 2, 1, 1), nn.InstanceNorm2d(b), nn.ReLU(True)]
        return nn.Sequential(*layers, nn.ReflectionPad2d(3), nn.Conv2d(32, 3, 7), nn.Tanh()).cuda()

    there, back = generator(), generator()
    optimizer = torch.optim.Adam([*there.parameters(), *back.parameters()], 2e-4, betas=(0.5, 0.999))

    def loss() -> torch.Tensor:
        images = torch.randn(6, 3, 128, 128, device="cuda")
        return F.l1_loss(back(there(images)), images) + F.l1_loss(there(back(images)), images)

    train(nn.ModuleList([there, back]), optimizer, loss, autocast=BF16)


@case
def super_resolution_fp32() -> None:
    """Train a super-resolution network (pixel shuffle, residual scaling, L1) in float32 on crops."""

    class Block(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.one, self.two = nn.Conv2d(width, width, 3, 1, 1), nn.Conv2d(width, width, 3, 1, 1)
            self.slope = nn.PReLU(width)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = x + 0.1 * self.two(self.slope(self.one(x)))
            return y

    body = [Block(64) for _ in range(6)]
    up = [nn.Conv2d(64, 256, 3, 1, 1), nn.PixelShuffle(2), nn.PReLU()] * 1
    model = nn.Sequential(nn.Conv2d(3, 64, 3, 1, 1), *body, *up, nn.Conv2d(64, 3, 3, 1, 1)).cuda()

    def loss() -> torch.Tensor:
        large = torch.rand(16, 3, 96, 96, device="cuda")
        small = F.interpolate(large, scale_factor=0.5, mode="bicubic", antialias=True)
        return F.l1_loss(model(small), large)

    train(model, torch.optim.Adam(model.parameters(), 1e-4), loss)


@case
def optical_flow_fp32() -> None:
    """Train a flow network: warping by grid_sample, unfolded neighbourhoods, Charbonnier, smoothness."""
    features = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU()).cuda()
    guess = nn.Sequential(nn.Conv2d(49 + 64, 96, 3, 1, 1), nn.ReLU(), nn.Conv2d(96, 2, 3, 1, 1)).cuda()
    model = nn.ModuleList([features, guess])

    def loss() -> torch.Tensor:
        first, second = torch.rand(2, 8, 3, 128, 160, device="cuda")
        left, right = features(first), features(second)
        around = F.unfold(right, 7, padding=3).view(8, 64, 49, 32, 40)
        costs = (left.unsqueeze(2) * around).mean(1)
        flow = F.interpolate(guess(torch.cat([costs, left], 1)), scale_factor=4, mode="bilinear", align_corners=False)
        rows, columns = torch.meshgrid(
            torch.linspace(-1, 1, 128, device="cuda"), torch.linspace(-1, 1, 160, device="cuda"), indexing="ij"
        )
        grid = torch.stack([columns, rows], -1) + flow.permute(0, 2, 3, 1) / 80
        warped = F.grid_sample(second, grid, padding_mode="border", align_corners=True)
        apart = ((warped - first).square() + 1e-6).sqrt().mean()
        smooth = flow.diff(dim=2).abs().mean() + flow.diff(dim=3).abs().mean()
        return apart + 0.1 * smooth

    train(model, torch.optim.AdamW(model.parameters(), 1e-4), loss)


@case
def volumes_fp32_instance_norms() -> None:
    """Segment volumes by three-dimensional convolutions, instance norms, and trilinear upsampling."""

    def twice(a: int, b: int) -> nn.Module:
        return nn.Sequential(
            *(nn.Conv3d(a, b, 3, 1, 1), nn.InstanceNorm3d(b, affine=True), nn.LeakyReLU(0.01, inplace=True)),
            *(nn.Conv3d(b, b, 3, 1, 1), nn.InstanceNorm3d(b, affine=True), nn.LeakyReLU(0.01, inplace=True)),
        )

    down, low = twice(1, 16), twice(16, 32)
    merge, head = twice(48, 16), nn.Conv3d(16, 3, 1)
    model = nn.ModuleList([down, low, merge, head]).cuda()

    def loss() -> torch.Tensor:
        volumes = torch.randn(2, 1, 48, 64, 64, device="cuda")
        upper = down(volumes)
        lower = F.interpolate(low(F.max_pool3d(upper, 2)), scale_factor=2, mode="trilinear")
        found = head(merge(torch.cat([upper, lower], 1)))
        labels = torch.randint(0, 3, (2, 48, 64, 64), device="cuda")
        ones = F.one_hot(labels, 3).movedim(-1, 1)
        shares = found.softmax(1)
        overlap = (shares * ones).sum((0, 2, 3, 4)) / (shares + ones).sum((0, 2, 3, 4)).clamp(min=1)
        return F.cross_entropy(found, labels) + 1 - 2 * overlap.mean()

    train(model, torch.optim.SGD(model.parameters(), 0.01, momentum=0.99, nesterov=True), loss)


@case
def video_convolutions_bf16() -> None:
    """Classify clips by factored convolutions over space and time in bfloat16, with batch norms of three dimensions."""
    layers: list[nn.Module] = []
    inputs = 3
    for width, stride in ((32, 1), (64, 2), (128, 2)):
        layers += [
            nn.Conv3d(inputs, width, (1, 3, 3), (1, stride, stride), (0, 1, 1), bias=False),
            nn.BatchNorm3d(width),
            nn.ReLU(inplace=True),
            nn.Conv3d(width, width, (3, 1, 1), (stride, 1, 1), (1, 0, 0), bias=False),
            nn.BatchNorm3d(width),
            nn.ReLU(inplace=True),
        ]
        inputs = width
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(128, 60)).cuda()

    def loss() -> torch.Tensor:
        clips = torch.randn(4, 3, 16, 112, 112, device="cuda")
        return F.cross_entropy(model(clips), torch.randint(0, 60, (4,), device="cuda"))

    train(model, torch.optim.SGD(model.parameters(), 0.05, momentum=0.9), loss, autocast=BF16)


@case
def simclr_momentum_bf16() -> None:
    """Contrast two views of images with a momentum encoder and a queue, in bfloat16 autocast."""
    query = basic_resnet((2, 2, 2, 2))
    key = copy.deepcopy(query).requires_grad_(requires_grad=False)
    queue = F.normalize(torch.randn(100, 4096, device="cuda"), dim=0)
    place = 0
    optimizer = torch.optim.SGD(query.parameters(), 0.03, momentum=0.9)
    for _ in range(4):
        first, second = torch.randn(2, 64, 3, 96, 96, device="cuda")
        with torch.autocast("cuda", BF16):
            q = F.normalize(query(first), dim=1)
            with torch.no_grad():
                for kept, new in zip(key.parameters(), query.parameters(), strict=True):
                    kept.data = kept.data * 0.999 + new.data * 0.001
                k = F.normalize(key(second[torch.randperm(64, device="cuda")]), dim=1)
            near = torch.einsum("nc,nc->n", q, k).unsqueeze(-1)
            far = torch.einsum("nc,ck->nk", q, queue.clone())
            logits = torch.cat([near, far], 1) / 0.07
            loss = F.cross_entropy(logits, torch.zeros(64, dtype=torch.long, device="cuda"))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        queue[:, place : place + 64] = k.T
        place = (place + 64) % 4096


@case
def streams_prefetch_fp32() -> None:
    """Train a ResNet-18 on batches that a side stream brings from pinned memory, with record_stream."""
    model = basic_resnet((2, 2, 2, 2))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    side = torch.cuda.Stream()
    batches = [(torch.randn(32, 3, 128, 128).pin_memory(), torch.randint(0, 100, (32,)).pin_memory()) for _ in range(6)]

    def bring(index: int) -> tuple[torch.Tensor, ...]:
        with torch.cuda.stream(side):
            return tuple(each.cuda(non_blocking=True) for each in batches[index])

    following = bring(0)
    for index in range(6):
        torch.cuda.current_stream().wait_stream(side)
        images, labels = following
        for each in (images, labels):
            each.record_stream(torch.cuda.current_stream())
        if index + 1 < 6:
            following = bring(index + 1)
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()


@case
def focal_multilabel_fp16_accumulates() -> None:
    """Train many labels an image with a focal loss in float16, three batches a step, until settled."""
    model = basic_resnet((2, 2, 2, 2)).to(memory_format=LAST)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    scaler = torch.amp.GradScaler("cuda", init_scale=4096.0)
    for _ in range(6):
        for _ in range(3):
            images = torch.randn(24, 3, 160, 160, device="cuda").contiguous(memory_format=LAST)
            labels = (torch.rand(24, 100, device="cuda") > 0.9).float()
            with torch.autocast("cuda", F16):
                scores = model(images)
                apart = F.binary_cross_entropy_with_logits(scores, labels, reduction="none")
                right = torch.exp(-apart)
                loss = (0.25 * (1 - right) ** 2 * apart).mean() / 3
            scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


@case
def pyramid_detector_bf16_channels_last() -> None:
    """Train a feature pyramid with heads and a smooth L1 loss over chosen anchors, in bfloat16, channels last."""
    body = basic_resnet((2, 2, 2, 2))
    layers = list(body.children())
    stages = nn.ModuleList([nn.Sequential(*layers[:6]), *(nn.Sequential(*layers[i : i + 2]) for i in (6, 8, 10))])
    sides = nn.ModuleList(nn.Conv2d(width, 96, 1) for width in (64, 128, 256, 512))
    smooth = nn.ModuleList(nn.Conv2d(96, 96, 3, 1, 1) for _ in range(4))
    head = nn.Sequential(nn.Conv2d(96, 96, 3, 1, 1), nn.ReLU(), nn.Conv2d(96, 3 * (8 + 4), 3, 1, 1))
    model = nn.ModuleList([stages, sides, smooth, head]).cuda().to(memory_format=LAST)

    def loss() -> torch.Tensor:
        x = torch.randn(4, 3, 256, 256, device="cuda").contiguous(memory_format=LAST)
        kept = []
        for stage, side in zip(stages, sides, strict=True):
            x = stage(x)
            kept.append(side(x))
        for low, high in itertools.pairwise(reversed(range(4))):
            kept[high] = kept[high] + F.interpolate(kept[low], size=kept[high].shape[-2:], mode="nearest")
        found = [head(layer(each)) for layer, each in zip(smooth, kept, strict=True)]
        rows = torch.cat([each.permute(0, 2, 3, 1).reshape(4, -1, 12) for each in found], 1)
        labels = torch.zeros(rows.shape[:2], dtype=torch.int64, device="cuda")
        labels[:, :40] = torch.randint(1, 8, (4, 40), device="cuda")
        boxes = F.smooth_l1_loss(rows[:, :40, 8:].float(), torch.randn(4, 40, 4, device="cuda"), beta=0.11)
        return F.cross_entropy(rows[..., :8].flatten(0, 1).float(), labels.flatten()) + boxes

    train(model, torch.optim.SGD(model.parameters(), 0.01, momentum=0.9), loss, autocast=BF16)


@case
def resnet18_cache_emptied() -> None:
    """Train, delete all but the weights, empty the cache, and train on other sizes."""
    model = basic_resnet((2, 2, 2, 2))
    for side, batch in ((96, 64), (192, 24), (128, 40)):
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        train(model, optimizer, class_loss(model, batch, side), steps=2)
        del optimizer
        model.zero_grad()
        torch.cuda.empty_cache()
