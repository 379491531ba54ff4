# ruff: noqa: INP001  # a script, not a package
"""Convolutions as networks have them, drawn at random: what the table of cuDNN's workspaces is widened with."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from memprof.simulate.convolutions import Convolution

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["drawn_from_networks"]

BATCHES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128, 192, 256)
IMAGES = (28, 32, 48, 64, 96, 112, 128, 160, 192, 224, 256, 288, 320, 384, 448, 512)
LARGEST = 1 << 31
"""Bytes of the largest operand."""


def _shape(draw: random.Random) -> tuple[int, tuple[int, ...], int, int, int, int, int, int, bool]:
    """Return inputs, spatial, outputs, kernel, stride, padding, dilation, groups, transposed."""
    image = draw.choice(IMAGES)
    family = draw.choice(
        ("resnet",) * 5
        + ("grouped",) * 2
        + ("unet",) * 3
        + ("dcgan",) * 3
        + ("auto",) * 2
        + ("patch",) * 3
        + ("sound",) * 2
        + ("mobile",) * 3
        + ("dense", "vgg", "dilated", "plain", "plain")
    )
    level = draw.choice((4, 8, 16, 32))
    side = max(image // level, 1)
    if family == "resnet":
        width = draw.choice((16, 32, 64, 64, 64, 96, 128)) * (level // 4)
        wide = width * 4
        inputs, outputs, kernel, stride = draw.choice(
            (
                (width, width, 3, 1),
                (width, width, 3, 1),
                (width // 2, width, 3, 2),
                (width, width, 3, 2),
                (wide // 2, wide, 1, 2),
                (width // 2, width, 1, 2),
                (wide, width, 1, 1),
                (width, wide, 1, 1),
                (wide // 2, width, 1, 1),
                (3, 64, 7, 2),
                (3, draw.choice((16, 24, 32, 64)), 3, draw.choice((1, 2))),
            )
        )
        big = side * 2 if stride == 2 else side
        big = image if inputs == 3 else big
        return inputs, (big, big), outputs, kernel, stride, kernel // 2, 1, 1, False
    if family == "grouped":
        per_group = draw.choice((4, 8, 8, 16, 16, 24, 24, 32, 40, 48, 56, 64, 112, 120))
        width = per_group * draw.choice((1, 2, 3, 4, 5, 7, 8, 10, 14, 16, 32))
        stride = draw.choice((1, 1, 2))
        return width, (side * stride,) * 2, width, 3, stride, 1, 1, max(width // per_group, 1), False
    if family == "unet":
        base = draw.choice((32, 64, 64, 96, 128, 160, 192, 224, 256, 320))
        steps = (1, 2, 4, 4, 8)
        place = draw.randrange(4)
        width, other = base * steps[place], base * steps[place + 1]
        size = draw.choice((8, 16, 24, 28, 32, 48, 64, 96, 128, 256))
        inputs, outputs, kernel, stride, transposed = draw.choice(
            (
                (width, width, 3, 1, False),
                (width, other, 3, 1, False),
                (width + other, width, 3, 1, False),
                (other * 2, other, 3, 1, False),
                (width, width, 3, 2, False),
                (other, width, 2, 2, True),
                (width + other, width, 1, 1, False),
                (draw.choice((1, 3, 4)), base, 3, 1, False),
                (base, draw.choice((1, 2, 3, 4, 21)), draw.choice((1, 3)), 1, False),
            )
        )
        return inputs, (size, size), outputs, kernel, stride, (kernel - 1) // 2, 1, 1, transposed
    if family == "dcgan":
        base = draw.choice((32, 48, 64, 64, 96, 128))
        place = draw.randrange(5)
        size = (4, 8, 16, 32, 64)[place]
        width = base * (8, 4, 2, 1, 1)[place]
        if draw.random() < 0.15:
            return draw.choice((64, 100, 128)), (1, 1), base * 8, 4, 1, 0, 1, 1, True
        if draw.random() < 0.1:
            return base * 8, (4, 4), 1, 4, 1, 0, 1, 1, False
        outputs = max(width // 2, 3) if draw.random() < 0.7 else draw.choice((1, 3))
        if draw.random() < 0.5:
            return width, (size, size), outputs, 4, 2, 1, 1, 1, True
        return outputs, (size * 2, size * 2), width, 4, 2, 1, 1, 1, False
    if family == "auto":
        size = draw.choice((7, 8, 14, 16, 28, 32, 56, 64, 128))
        small, large = draw.choice(((1, 16), (1, 32), (3, 32), (16, 32), (32, 64), (64, 128), (128, 256), (256, 512)))
        kernel = draw.choice((3, 3, 4, 5))
        if draw.random() < 0.5:
            return large, (size, size), small, kernel, 2, (kernel - 1) // 2, 1, 1, True
        return small, (size, size), large, kernel, 2, kernel // 2 if kernel != 4 else 1, 1, 1, False
    if family == "patch":
        patch = draw.choice((4, 7, 8, 14, 16, 16, 16, 32))
        width = draw.choice((64, 96, 128, 192, 256, 384, 512, 768, 768, 1024, 1280, 1408))
        blocks = draw.choice((2, 4, 7, 8, 12, 14, 16, 20, 24, 28, 32, 37, 56))
        return draw.choice((1, 3, 3, 3)), (patch * blocks,) * 2, width, patch, patch, 0, 1, 1, False
    if family == "sound":
        kind = draw.randrange(3)
        length = draw.choice((8000, 16000, 24000, 32000, 48000, 80000, 3000, 1500))
        if kind == 0:
            first = draw.random() < 0.25
            width = draw.choice((32, 64, 128, 512, 512))
            kernel, stride = (10, 5) if first else draw.choice(((3, 2), (2, 2)))
            length = length if first else max(length // draw.choice((5, 10, 20, 40, 80, 160)), 16)
            return 1 if first else width, (length,), width, kernel, stride, 0, 1, 1, False
        if kind == 1:
            width = draw.choice((32, 64, 128, 384, 512, 768, 1024, 1280))
            inputs, stride = draw.choice(((80, 1), (128, 1), (width, 2)))
            return inputs, (draw.choice((100, 200, 500, 1000, 3000)),), width, 3, stride, 1, 1, 1, False
        width = draw.choice((32, 64, 512, 768, 1024))
        groups = draw.choice((2, 16, 16))
        kernel = draw.choice((16, 128, 128))
        return width, (max(length // 320, 10),), width, kernel, 1, kernel // 2, 1, groups, False
    if family == "mobile":
        width = draw.choice(
            (16, 24, 32, 40, 48, 64, 80, 96, 112, 144, 160, 192, 240, 288, 384, 480, 576, 672, 960, 1152)
        )
        kind = draw.randrange(3)
        if kind == 0:
            kernel, stride = draw.choice(((3, 1), (3, 2), (5, 1), (5, 2), (7, 1)))
            return width, (side * stride,) * 2, width, kernel, stride, kernel // 2, 1, width, False
        if kind == 1:
            return width, (side, side), width * draw.choice((2, 3, 4, 6)), 1, 1, 0, 1, 1, False
        return width * draw.choice((2, 3, 4, 6)), (side, side), width, 1, 1, 0, 1, 1, False
    if family == "dense":
        growth = draw.choice((12, 24, 32, 48))
        if draw.random() < 0.5:
            return growth * 4, (side, side), growth, 3, 1, 1, 1, 1, False
        return growth * draw.randint(2, 32), (side, side), growth * 4, 1, 1, 0, 1, 1, False
    if family == "vgg":
        place = draw.randrange(5)
        widths = (3, 64, 128, 256, 512, 512)
        inputs = draw.choice((widths[place], widths[place + 1]))
        return inputs, (max(image >> place, 1),) * 2, widths[place + 1], 3, 1, 1, 1, 1, False
    width = draw.choice((8, 16, 32, 64, 96, 128, 192, 256, 320, 512, 1024))
    other = draw.choice((8, 10, 16, 32, 64, 96, 128, 192, 256, 320, 512))
    if family == "dilated":
        dilation = draw.choice((2, 4, 6, 12, 18))
        return width, (side, side), other, 3, 1, dilation, dilation, 1, False
    kernel = draw.choice((2, 3, 3, 5, 7))
    size = draw.randint(4, 72)
    padding = draw.choice((0, kernel // 2))
    if draw.random() < 0.3:
        return (
            draw.choice((1, 3, 16, 32, 64)),
            (draw.choice((8, 16, 32)),) * 3,
            other,
            3,
            draw.choice((1, 2)),
            1,
            1,
            1,
            False,
        )
    return width, (size, size), other, kernel, draw.choice((1, 1, 2)), padding, 1, 1, False


def drawn_from_networks(seed: int) -> Iterator[Convolution]:
    """Yield convolutions without end, each in one batch size, dtype and layout; some are repeated."""
    draw = random.Random(seed)  # noqa: S311  # no secret
    while True:
        inputs, spatial, outputs, kernel, stride, padding, dilation, groups, transposed = _shape(draw)
        dims = len(spatial)
        each = Convolution(
            batch=draw.choice(BATCHES),
            inputs=inputs,
            spatial=spatial,
            outputs=outputs,
            kernel=(kernel,) * dims,
            stride=(stride,) * dims,
            padding=(padding,) * dims,
            dilation=(dilation,) * dims,
            groups=groups,
            transposed=transposed,
            dtype=draw.choice(("f32", "f32", "f16", "bf16")),
            channels_last=dims == 2 and draw.random() < 0.25,
        )
        if min(each.output_spatial()) >= 1 and max(each.elements()) * each.item <= LARGEST:
            yield each
