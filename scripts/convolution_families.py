# ruff: noqa: INP001, E731  # a script, not a package; a network a line reads better than five
"""The convolutions of families of networks that everybody writes for himself; `convolution_zoo` runs them on meta.

Each maker returns layers in the published arrangement, without what is between them: the shapes are what counts.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from torch import nn

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import torch

__all__ = ["families"]

Named = tuple[str, float, Any, tuple[int, ...]]
"""Name, how common, what makes the module, and the size of its input but for the batch."""


class _UNet(nn.Module):
    """A U-Net of two or three dimensions (Ronneberger et al. 2015, Çiçek et al. 2016)."""

    def __init__(
        self, widths: Sequence[int], inputs: int, outputs: int, *, dims: int = 2, bilinear: bool = False
    ) -> None:
        super().__init__()
        conv: Any = (nn.Conv2d, nn.Conv3d)[dims - 2]
        back: Any = (nn.ConvTranspose2d, nn.ConvTranspose3d)[dims - 2]
        self.pool = (nn.MaxPool2d, nn.MaxPool3d)[dims - 2](2)

        def double(source: int, target: int) -> nn.Sequential:
            return nn.Sequential(conv(source, target, 3, padding=1), conv(target, target, 3, padding=1))

        self.down = nn.ModuleList(double(a, b) for a, b in zip((inputs, *widths), widths, strict=False))
        pairs = list(itertools.pairwise(widths))
        up = (nn.Upsample(scale_factor=2) if bilinear else back(b, a, 2, 2) for a, b in pairs)
        self.up = nn.ModuleList(up)
        self.merge = nn.ModuleList(double(a + b if bilinear else 2 * a, a) for a, b in pairs)
        self.head = conv(widths[0], outputs, 1)

    def forward(self, x: torch.Tensor) -> Any:
        import torch

        kept = []
        for number, layers in enumerate(self.down):
            x = layers(self.pool(x) if number else x)
            kept.append(x)
        for number in reversed(range(len(self.up))):
            x = self.merge[number](torch.cat([kept[number], self.up[number](x)], 1))
        return self.head(x)


class _Residual(nn.Module):
    """A network of basic or bottleneck blocks, as for CIFAR (He et al. 2016, Zagoruyko and Komodakis 2016)."""

    def __init__(self, widths: Sequence[int], stem: int, inputs: int = 3, *, bottleneck: bool = False) -> None:
        super().__init__()
        self.stem = nn.Conv2d(inputs, stem, 3, padding=1)
        blocks, before = [], stem
        for stage, width in enumerate(widths):
            for number in range(2):
                step = 2 if stage and not number else 1
                after = width * 4 if bottleneck else width
                if bottleneck:
                    inner = (
                        nn.Conv2d(before, width, 1),
                        nn.Conv2d(width, width, 3, step, 1),
                        nn.Conv2d(width, after, 1),
                    )
                else:
                    inner = (nn.Conv2d(before, width, 3, step, 1), nn.Conv2d(width, width, 3, padding=1))
                short = nn.Conv2d(before, after, 1, step) if step > 1 or before != after else nn.Identity()
                blocks.append(nn.ModuleList([nn.Sequential(*inner), short]))
                before = after
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: torch.Tensor) -> Any:
        x = self.stem(x)
        for inner, short in self.blocks:  # type: ignore[misc]  # a module list of pairs
            x = inner(x) + short(x)
        return x


def _plain(*widths: int, kernel: int = 3, inputs: int = 3, same: bool = True) -> nn.Sequential:
    """Return convolutions with a halving between them."""
    layers: list[nn.Module] = []
    for before, after in zip((inputs, *widths), widths, strict=False):
        layers += [nn.Conv2d(before, after, kernel, padding=kernel // 2 if same else 0), nn.MaxPool2d(2)]
    return nn.Sequential(*layers)


def _generator(noise: int, width: int, colours: int, size: int) -> nn.Sequential:
    """Return a DCGAN's generator (Radford et al. 2015)."""
    layers: list[nn.Module] = []
    side, before = 4, noise
    after = width * size // 8
    layers.append(nn.ConvTranspose2d(before, after, 4, 1, 0))
    while side < size // 2:
        layers.append(nn.ConvTranspose2d(after, after // 2, 4, 2, 1))
        side, after = side * 2, after // 2
    return nn.Sequential(*layers, nn.ConvTranspose2d(after, colours, 4, 2, 1))


def _discriminator(width: int, colours: int, size: int) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Conv2d(colours, width, 4, 2, 1)]
    side = size // 2
    while side > 4:
        layers.append(nn.Conv2d(width, width * 2, 4, 2, 1))
        side, width = side // 2, width * 2
    return nn.Sequential(*layers, nn.Conv2d(width, 1, 4, 1, 0))


def _patches(width: int, colours: int) -> nn.Sequential:
    """Return PatchGAN's discriminator (Isola et al. 2017)."""
    sizes = ((colours, width, 2), (width, width * 2, 2), (width * 2, width * 4, 2), (width * 4, width * 8, 1))
    return nn.Sequential(*(nn.Conv2d(a, b, 4, step, 1) for a, b, step in sizes), nn.Conv2d(width * 8, 1, 4, 1, 1))


def _translator(width: int) -> nn.Sequential:
    """Return CycleGAN's generator (Zhu et al. 2017)."""
    return nn.Sequential(
        nn.ReflectionPad2d(3),
        nn.Conv2d(3, width, 7),
        nn.Conv2d(width, width * 2, 3, 2, 1),
        nn.Conv2d(width * 2, width * 4, 3, 2, 1),
        nn.ReflectionPad2d(1),
        nn.Conv2d(width * 4, width * 4, 3),
        nn.ConvTranspose2d(width * 4, width * 2, 3, 2, 1, 1),
        nn.ConvTranspose2d(width * 2, width, 3, 2, 1, 1),
        nn.ReflectionPad2d(3),
        nn.Conv2d(width, 3, 7),
    )


class _Pix2Pix(nn.Module):
    """Pix2pix's U-Net of kernels of four (Isola et al. 2017)."""

    def __init__(self, levels: int, width: int = 64) -> None:
        super().__init__()
        widths = [width * min(8, 1 << level) for level in range(levels)]
        self.down = nn.ModuleList(nn.Conv2d(a, b, 4, 2, 1) for a, b in zip((3, *widths), widths, strict=False))
        outer = (3, *widths[:-1])
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(b if b is widths[-1] and at == levels - 1 else 2 * b, a, 4, 2, 1)
            for at, (a, b) in enumerate(zip(outer, widths, strict=True))
        )

    def forward(self, x: torch.Tensor) -> Any:
        import torch

        kept: list[torch.Tensor] = []
        for layer in self.down:
            x = layer(x)
            kept.append(x)
        for at in reversed(range(len(self.up))):
            x = self.up[at](x if at == len(self.up) - 1 else torch.cat([x, kept[at]], 1))
        return x


def _autoencoder(widths: Sequence[int], kernel: int, colours: int) -> nn.Sequential:
    down = [nn.Conv2d(a, b, kernel, 2, 1) for a, b in zip((colours, *widths), widths, strict=False)]
    turned = (colours, *widths)[::-1]
    extra = kernel % 2
    up = [nn.ConvTranspose2d(a, b, kernel, 2, 1, extra) for a, b in itertools.pairwise(turned)]
    return nn.Sequential(*down, *up)


class _Decoded(nn.Module):
    """A U-Net's decoder on the features of a ResNet of basic blocks or of bottlenecks."""

    def __init__(self, features: Sequence[int]) -> None:
        super().__init__()
        widths = (256, 128, 64, 32, 16)
        skips = (*features[:-1][::-1], 0)
        before = features[-1]
        steps = []
        for width, skip in zip(widths, skips, strict=True):
            first = nn.Conv2d(before + skip, width, 3, padding=1)
            steps.append(nn.Sequential(nn.Upsample(scale_factor=2), first, nn.Conv2d(width, width, 3, padding=1)))
            before = width
        self.skips = skips
        self.steps = nn.ModuleList(steps)
        self.head = nn.Conv2d(16, 1, 3, padding=1)

    def forward(self, x: torch.Tensor) -> Any:
        import torch

        for skip, (larger, first, second) in zip(self.skips, self.steps, strict=True):  # type: ignore[misc]  # pairs
            x = larger(x)
            if skip:
                x = torch.cat([x, x.new_empty(x.shape[0], skip, *x.shape[2:])], 1)
            x = second(first(x))
        return self.head(x)


class _Split(nn.Module):
    """A stage that splits its channels, works on a half, and keeps what each block gave (YOLOv8's C2f)."""

    def __init__(self, inputs: int, outputs: int, blocks: int) -> None:
        super().__init__()
        half = outputs // 2
        self.first = nn.Conv2d(inputs, outputs, 1)
        pairs = (
            nn.Sequential(nn.Conv2d(half, half, 3, padding=1), nn.Conv2d(half, half, 3, padding=1))
            for _ in range(blocks)
        )
        self.blocks = nn.ModuleList(pairs)
        self.last = nn.Conv2d((2 + blocks) * half, outputs, 1)

    def forward(self, x: torch.Tensor) -> Any:
        import torch

        kept = list(self.first(x).chunk(2, 1))
        for block in self.blocks:
            kept.append(block(kept[-1]))
        return self.last(torch.cat(kept, 1))


class _Detector(nn.Module):
    """A detector of YOLOv8's arrangement: backbone, two ways of features, heads."""

    def __init__(self, depth: float, width: float, most: int) -> None:
        super().__init__()
        widths = [int(min(n, most) * width) for n in (64, 128, 256, 512, 1024)]
        counts = [max(round(n * depth), 1) for n in (3, 6, 6, 3)]
        self.stem = nn.Conv2d(3, widths[0], 3, 2, 1)
        self.downs = nn.ModuleList(nn.Conv2d(a, b, 3, 2, 1) for a, b in itertools.pairwise(widths))
        self.stages = nn.ModuleList(_Split(n, n, count) for n, count in zip(widths[1:], counts, strict=True))
        third, fourth, fifth = widths[2:]
        self.pool = nn.ModuleList([nn.Conv2d(fifth, fifth // 2, 1), nn.Conv2d(fifth * 2, fifth, 1)])
        self.merges = nn.ModuleList(
            _Split(a, b, counts[0])
            for a, b in (
                (fourth + fifth, fourth),
                (third + fourth, third),
                (third + fourth, fourth),
                (fourth + fifth, fifth),
            )
        )
        self.again = nn.ModuleList([nn.Conv2d(third, third, 3, 2, 1), nn.Conv2d(fourth, fourth, 3, 2, 1)])
        boxes, classes = max(16, third // 4, 64), max(third, 80)
        self.heads = nn.ModuleList(
            nn.Sequential(nn.Conv2d(n, m, 3, padding=1), nn.Conv2d(m, m, 3, padding=1), nn.Conv2d(m, out, 1))
            for n in (third, fourth, fifth)
            for m, out in ((boxes, 64), (classes, 80))
        )
        self.larger = nn.Upsample(scale_factor=2)

    def forward(self, x: torch.Tensor) -> Any:
        import torch

        x = self.stem(x)
        kept = []
        for down, stage in zip(self.downs, self.stages, strict=True):
            x = stage(down(x))
            kept.append(x)
        third, fourth, fifth = kept[1:]
        narrow = self.pool[0](fifth)
        fifth = self.pool[1](torch.cat([narrow] * 4, 1))
        middle = self.merges[0](torch.cat([self.larger(fifth), fourth], 1))
        third = self.merges[1](torch.cat([self.larger(middle), third], 1))
        fourth = self.merges[2](torch.cat([self.again[0](third), middle], 1))
        fifth = self.merges[3](torch.cat([self.again[1](fourth), fifth], 1))
        return [self.heads[2 * at + one](each) for at, each in enumerate((third, fourth, fifth)) for one in range(2)]


def _flat(*layers: tuple[Any, ...]) -> nn.Sequential:
    """Return convolutions of one dimension: inputs, outputs, kernel, stride, padding, dilation, groups."""
    return nn.Sequential(*(nn.Conv1d(a, b, k, *rest) for a, b, k, *rest in layers))


def _images() -> Iterator[Named]:
    for widths, common in (((64, 128, 256, 512, 1024), 6.0), ((32, 64, 128, 256, 512), 3), ((16, 32, 64, 128, 256), 2)):
        for bilinear in (False, True):
            for inputs, outputs in ((3, 1), (1, 1), (3, 21), (1, 2), (3, 2)):
                share = common * (1 if inputs == 3 and outputs < 3 else 0.4) * (0.4 if bilinear else 1)
                for size, often in ((256, 1.0), (128, 0.6), (512, 0.7), (64, 0.3), (96, 0.2), (224, 0.2), (384, 0.2)):
                    make = lambda w=widths, i=inputs, o=outputs, b=bilinear: _UNet(
                        w, i, o, bilinear=b
                    )  # named by its tuple
                    yield f"unet{widths[0]}{'b' * bilinear}", share * often, make, (inputs, size, size)
    for name, widths, stem, deep, common in (
        ("cifar-resnet18", (64, 128, 256, 512), 64, False, 8.0),
        ("cifar-resnet50", (64, 128, 256, 512), 64, True, 4),
        ("cifar-resnet20", (16, 32, 64), 16, False, 4),
        ("wrn-28-10", (160, 320, 640), 16, False, 4),
        ("wrn-16-4", (64, 128, 256), 16, False, 2),
        ("wrn-40-2", (32, 64, 128), 16, False, 2),
        ("resnet9", (64, 128, 256), 64, False, 1),
        ("resnet12", (64, 160, 320, 640), 64, False, 1),
    ):
        for size, often in ((32, 1.0), (64, 0.4), (28, 0.2), (84, 0.1), (96, 0.1)):
            for inputs in (3, 1) if size == 28 else (3,):
                make = lambda w=widths, s=stem, d=deep, i=inputs: _Residual(w, s, i, bottleneck=d)
                yield name, common * often, make, (inputs, size, size)
    for widths in (
        (16, 32),
        (32, 64),
        (32, 64, 128),
        (6, 16),
        (64, 128),
        (64, 128, 256),
        (32, 64, 128, 256),
        (64, 64, 64, 64),
    ):
        for kernel, same in ((3, True), (5, True), (3, False), (5, False)):
            for inputs, size in ((1, 28), (3, 32), (3, 64), (3, 128), (3, 224)):
                make = lambda w=widths, k=kernel, i=inputs, s=same: _plain(*w, kernel=k, inputs=i, same=s)
                yield "cnn", 2.0 * (1 if size < 64 else 0.4) * (1 if same else 0.6), make, (inputs, size, size)
    for size, widths in ((48, (64, 128)), (64, (64, 128, 256)), (96, (64, 64)), (33, (64, 32))):
        yield (
            "srcnn",
            0.5,
            lambda w=widths: nn.Sequential(
                nn.Conv2d(3, w[0], 9, padding=4), nn.Conv2d(w[0], w[1], 5, padding=2), nn.Conv2d(w[1], 3, 5, padding=2)
            ),
            (3, size, size),
        )
    for width in (64, 128, 256):
        for size in (48, 64, 96, 128):
            make = lambda w=width: nn.Sequential(
                nn.Conv2d(3, w, 3, 1, 1),
                nn.Conv2d(w, w, 3, 1, 1),
                nn.Conv2d(w, w * 4, 3, 1, 1),
                nn.PixelShuffle(2),
                nn.Conv2d(w, 3, 3, 1, 1),
            )
            yield "edsr", 1.0, make, (3, size, size)
    dense = lambda: nn.Sequential(
        nn.Conv2d(3, 64, 3, 1, 1),
        *(
            nn.Sequential(nn.Conv2d(64 + 32 * at, 64, 3, 1, 1), nn.Conv2d(64, 64 + 32 * (at + 1), 3, 1, 1))
            for at in range(4)
        ),
    )
    yield "rrdb", 0.5, dense, (3, 64, 64)
    yield (
        "atari",
        2.0,
        lambda: nn.Sequential(nn.Conv2d(4, 32, 8, 4), nn.Conv2d(32, 64, 4, 2), nn.Conv2d(64, 64, 3)),
        (4, 84, 84),
    )
    for size in (32, 40, 50, 64, 180):
        for inputs in (1, 3):
            make = lambda i=inputs: nn.Sequential(
                nn.Conv2d(i, 64, 3, 1, 1), nn.Conv2d(64, 64, 3, 1, 1), nn.Conv2d(64, i, 3, 1, 1)
            )
            yield "dncnn", 0.7, make, (inputs, size, size)


def _made() -> Iterator[Named]:
    for width in (64, 32, 96, 128):
        for size in (64, 32, 128):
            for colours in (3, 1):
                common = 3.0 * (1 if width == 64 else 0.4) * (1 if size == 64 else 0.6)
                for noise in (100, 128, 64):
                    make = lambda n=noise, w=width, c=colours, s=size: _generator(n, w, c, s)
                    yield "generator", common * (1 if noise == 100 else 0.4), make, (noise, 1, 1)
                yield (
                    "discriminator",
                    common,
                    lambda w=width, c=colours, s=size: _discriminator(w, c, s),
                    (colours, size, size),
                )
    for size, common in ((256, 3.0), (128, 1.5), (512, 0.5), (64, 0.5)):
        yield "patchgan", common, lambda: _patches(64, 3), (3, size, size)
        yield "patchgan", common, lambda: _patches(64, 6), (6, size, size)
        yield "cyclegan", common, lambda: _translator(64), (3, size, size)
        yield "pix2pix", common, lambda s=size: _Pix2Pix(s.bit_length() - 1), (3, size, size)
    for widths in (
        (32, 64),
        (32, 64, 128),
        (64, 128, 256),
        (32, 64, 128, 256),
        (64, 128, 256, 512),
        (32, 64, 128, 256, 512),
    ):
        for size in (32, 64, 128, 28, 256):
            for colours in (3, 1):
                for kernel in (3, 4):
                    if size % (1 << len(widths)) == 0 or size == 28 > 1 << len(widths) + 2:
                        make = lambda w=widths, k=kernel, c=colours: _autoencoder(w, k, c)
                        yield (
                            "autoencoder",
                            1.0 * (1 if (size < 128) == (colours == 3) else 0.5),
                            make,
                            (colours, size, size),
                        )
    for name, features in (
        ("34", (64, 64, 128, 256, 512)),
        ("50", (64, 256, 512, 1024, 2048)),
        ("b0", (32, 24, 40, 112, 320)),
    ):
        for size, common in ((256, 3.0), (512, 2), (384, 1), (224, 1), (320, 0.7), (128, 0.7)):
            yield f"decoder{name}", common, lambda f=features: _Decoded(f), (features[-1], size // 32, size // 32)
    for name, depth, width, most, common in (
        ("n", 0.33, 0.25, 1024, 4.0),
        ("s", 0.33, 0.5, 1024, 3),
        ("m", 0.67, 0.75, 768, 2),
        ("l", 1.0, 1.0, 512, 1),
    ):
        for size, often in ((640, 1.0), (416, 0.4), (320, 0.3), (512, 0.3)):
            make = lambda d=depth, w=width, m=most: _Detector(d, w, m)
            yield f"yolov8{name}", common * often * 2, make, (3, size, size)


def _sounds() -> Iterator[Named]:
    for width in (32, 64, 128, 256):
        for length in (100, 128, 256, 400, 512, 784, 1000, 1024):
            layers = tuple((width, width, 3, 1, 2 * hole, hole) for hole in (1, 2, 4, 8, 16, 32))
            yield "tcn", 0.5, lambda rows=layers: _flat(*rows), (width, length)
    for width in (100, 128, 300, 256):
        for length in (64, 128, 256, 512):
            make = lambda w=width: nn.ModuleList([nn.Conv1d(w, 100, k) for k in (3, 4, 5)])
            yield "textcnn", 0.5, make, (width, length)
    for width in (64, 128):
        for length in (8000, 16000):
            layers = tuple((width, 2 * width, 2, 1, hole, hole) for hole in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512))
            yield (
                "wavenet",
                0.4,
                lambda rows=layers: nn.ModuleList([nn.Conv1d(a, b, *rest) for a, b, *rest in rows]),
                (width, length),
            )
    for width in (768, 1024, 1536, 2048, 4096, 5120):
        for length in (256, 512, 1024, 2048):
            yield "mamba", 0.5, lambda w=width: nn.Conv1d(w, w, 4, padding=3, groups=w), (width, length)
    for width in (144, 256, 512):
        for length in (100, 200, 250, 400):
            make = lambda w=width: nn.Sequential(
                nn.Conv1d(w, 2 * w, 1), nn.GLU(1), nn.Conv1d(w, w, 31, padding=15, groups=w), nn.Conv1d(w, w, 1)
            )
            yield "conformer", 0.5, make, (width, length)
    hifi = ((80, 512, 7, 1, 3),)
    for frames in (32, 64):
        yield "hifigan", 0.5, lambda: _flat(*hifi), (80, frames)
        side, width = frames, 512
        for step, kernel in ((8, 16), (8, 16), (2, 4), (2, 4)):
            make = lambda w=width, k=kernel, s=step: nn.ConvTranspose1d(w, w // 2, k, s, (k - s) // 2)
            yield "hifigan", 0.5, make, (width, side)
            side, width = side * step, width // 2
            rows = tuple((width, width, k, 1, (k - 1) // 2 * hole, hole) for k in (3, 7, 11) for hole in (1, 3, 5))
            yield "hifigan", 0.5, lambda r=rows: _flat(*r), (width, side)
    for width in (64, 128, 256):
        for length in (1000, 2500, 5000):
            layers = (
                (12, width, 15, 1, 7),
                (width, width, 7, 2, 3),
                (width, width * 2, 7, 2, 3),
                (width * 2, width * 2, 3, 2, 1),
            )
            yield "ecg", 0.5, lambda rows=layers: _flat(*rows), (12, length)


def _languages() -> Iterator[Named]:
    """Yield the convolutions of language and speech models of transformers that are written out in few layers."""
    for length, often in ((128, 1.0), (512, 1.0), (64, 0.6), (256, 0.6), (384, 0.3), (32, 0.3), (1024, 0.3)):
        rows = (
            ((768, 768, 1, 1, 0, 1, 4),),
            ((768, 3072, 1, 1, 0, 1, 4),),
            ((3072, 768, 1, 1, 0, 1, 4),),
            ((768, 768, 1),),
        )
        rows += (((512, 512, 1),), ((512, 1280, 1),), ((512, 2048, 1),), ((2048, 512, 1),))
        for layers in rows:
            yield "squeezebert", 1.5 * often, lambda each=layers: _flat(*each), (layers[0][0], length)
        for width in (384, 768):
            layers = ((width, width, 9, 1, 4, 1, width), (width, width // 2, 1))
            yield "convbert", 1.5 * often, lambda each=layers: _flat(*each), (width, length)
        for heads in (4, 8, 12):
            for kernel in (33, 65):
                make = lambda h=heads, k=kernel: nn.Conv2d(h, h, (k, 1), padding=(k // 2, 0), groups=h)
                yield "nystromformer", often, make, (heads, length, 64)
    for length in (512, 1024, 2048):
        yield "canine", 1.5, lambda: _flat((768, 768, 4, 4)), (768, length)
        yield "canine", 1.5, lambda: _flat((1536, 768, 4)), (1536, length + 3)
    for length in (16000, 32000, 80000, 160000):
        for width in (288, 416):
            layers = ((1, width, 127, 64), (width, 2 * width, 7, 3), (2 * width, width, 3, 2))
            yield "moonshine", 1.0, lambda each=layers: _flat(*each), (1, length)
    for frames in (500, 1000, 1500, 3000, 200, 584):
        yield "speech2text", 1.0, lambda: _flat((80, 1024, 5, 2, 2)), (80, frames)
        yield "speech2text", 1.0, lambda: _flat((512, 512, 5, 2, 2)), (512, frames // 2)
        for width in (256, 512, 144, 176, 1024):
            for kernel in (15, 31, 9):
                layers = (
                    (width, 2 * width, 1),
                    (2 * width, width, 1),
                    (width, width, kernel, 1, kernel // 2, 1, width),
                )
                yield "conformer", 0.5, lambda each=layers: _flat(*each), (width, frames // 4)
    for width in (64, 128, 256, 300, 512):
        for length in (32, 50, 64, 100, 128, 200, 256, 512):
            for outputs in (64, 100, 128, 256):
                kernels = (2, 3, 4, 5, 7)
                make = lambda w=width, o=outputs, ks=kernels: nn.ModuleList([nn.Conv1d(w, o, k) for k in ks])
                yield "textcnn", 0.6, make, (width, length)


def _volumes() -> Iterator[Named]:
    for widths, common in (
        ((32, 64, 128, 256, 320), 3.0),
        ((16, 32, 64, 128, 256), 3),
        ((32, 64, 128, 256), 2),
        ((64, 128, 256, 512), 1),
        ((8, 16, 32, 64), 0.7),
    ):
        for inputs, outputs in ((1, 2), (4, 3), (1, 14)):
            for size, often in ((96, 1.0), (128, 1.0), (64, 1.0), (32, 0.4)):
                make = lambda w=widths, i=inputs, o=outputs: _UNet(w, i, o, dims=3)
                yield "unet3d", common * often, make, (inputs, size, size, size)


def families() -> Iterator[Named]:
    """Yield every network."""
    yield from _images()
    yield from _made()
    yield from _sounds()
    yield from _volumes()
    yield from _languages()
