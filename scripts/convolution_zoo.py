# ruff: noqa: INP001, E731  # a script, not a package; a network a line reads better than five
"""List the convolutions of networks that people train, for `convolution_models` to ask cuDNN about.

    python scripts/convolution_zoo.py OUTPUT.json.gz

Runs torchvision's, timm's, diffusers' and transformers' networks, and those of ``convolution_families.py``, on meta.
What is not installed is left out. OUTPUT has the shapes, and for each network and size of input how common it is (a
judgement) and which shapes it has.
"""

from __future__ import annotations

import gzip
import itertools
import json
import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

sys.path.insert(0, str(Path(__file__).parent))
from convolution_families import families

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Entry = tuple[str, float, "Callable[[], Any]", "list[tuple[float, tuple[Any, ...]]]"]
"""Name, how common, what makes the module, and its inputs with how common they are."""
SIZES = {
    224: 1.0,
    256: 0.5,
    32: 0.35,
    128: 0.35,
    64: 0.3,
    512: 0.25,
    384: 0.2,
    160: 0.15,
    192: 0.15,
    96: 0.15,
    320: 0.1,
}
SIZES |= {288: 0.1, 448: 0.1, 640: 0.06, 112: 0.06, 28: 0.05}
LEAST = 0.1
"""How common a network and a size must be together."""
TORCHVISION = {
    **dict.fromkeys(("resnet50", "resnet18"), 10.0),
    **dict.fromkeys(("efficientnet_b0", "mobilenet_v2", "resnet34"), 7),
    **dict.fromkeys(
        ("resnet101", "vgg16", "densenet121", "mobilenet_v3_small", "mobilenet_v3_large", "convnext_tiny"), 5
    ),
    **dict.fromkeys(("vgg19", "vgg11", "alexnet", "resnext50_32x4d", "wide_resnet50_2", "efficientnet_v2_s"), 3),
    **dict.fromkeys(("efficientnet_b1", "efficientnet_b2", "efficientnet_b3", "efficientnet_b4", "resnet152"), 3),
    **dict.fromkeys(("convnext_small", "convnext_base", "inception_v3", "googlenet", "densenet169", "densenet201"), 2),
    **dict.fromkeys(
        ("resnext101_32x8d", "regnet_y_400mf", "regnet_y_800mf", "regnet_y_1_6gf", "shufflenet_v2_x1_0"), 2
    ),
    **dict.fromkeys(("squeezenet1_1", "squeezenet1_0", "mnasnet1_0", "efficientnet_b5", "efficientnet_v2_m"), 1.5),
    **dict.fromkeys(("regnet_y_3_2gf", "regnet_y_8gf", "regnet_x_400mf", "regnet_x_800mf", "regnet_x_3_2gf"), 1),
    **dict.fromkeys(("wide_resnet101_2", "densenet161", "vgg13", "convnext_large", "efficientnet_v2_l"), 1),
    **dict.fromkeys(
        ("efficientnet_b6", "efficientnet_b7", "shufflenet_v2_x0_5", "shufflenet_v2_x1_5", "mnasnet0_5"), 0.7
    ),
    **dict.fromkeys(("regnet_y_16gf", "regnet_x_1_6gf", "resnext101_64x4d", "vit_b_16", "vit_b_32", "swin_t"), 1),
}
OWN_SIZES = {"efficientnet_b1": 240, "efficientnet_b2": 260, "efficientnet_b3": 300, "efficientnet_b4": 380}
OWN_SIZES |= {"efficientnet_b5": 456, "efficientnet_b6": 528, "efficientnet_b7": 600, "inception_v3": 299}
OWN_SIZES |= {"efficientnet_v2_s": 300, "efficientnet_v2_m": 480}
TIMM = {
    **dict.fromkeys(
        ("resnet26d", "resnet50d", "seresnet50", "convnextv2_tiny", "convnext_nano", "mobilenetv3_small_050"), 2.0
    ),
    **dict.fromkeys(
        ("convnext_atto", "convnextv2_nano", "convnext_femto", "convnext_pico", "regnety_032", "regnety_040"), 1.5
    ),
    **dict.fromkeys(
        ("mobilenetv4_conv_small", "mobilenetv4_conv_medium", "efficientnet_lite0", "hrnet_w18", "dla34"), 1.5
    ),
    **dict.fromkeys(("resnetv2_50", "resnetrs50", "ecaresnet50d", "rexnet_100", "ghostnet_100", "hrnet_w32"), 1),
    **dict.fromkeys(("darknet53", "cspdarknet53", "cspresnet50", "repvgg_a0", "repvgg_b0", "seresnext50_32x4d"), 1),
    **dict.fromkeys(("xception41", "inception_resnet_v2", "inception_v4", "poolformer_s12", "coatnet_0_rw_224"), 0.7),
    **dict.fromkeys(("mobilevit_s", "mobilevitv2_100", "edgenext_small", "efficientformer_l1", "levit_192"), 0.7),
    **dict.fromkeys(("fastvit_t8", "tiny_vit_5m_224", "repvit_m1", "maxvit_tiny_tf_224", "nf_resnet50", "dpn68"), 0.7),
    **dict.fromkeys(
        ("vovnet39a", "resnest50d", "mixnet_s", "skresnet18", "tf_efficientnetv2_b0", "tf_mobilenetv3_large_100"), 0.7
    ),
    **dict.fromkeys(
        ("convnextv2_base", "convmixer_768_32", "tf_efficientnetv2_s", "efficientvit_b0", "xception71"), 0.5
    ),
}
PATCHES = (
    (16, 192),
    (16, 384),
    (16, 768),
    (16, 1024),
    (14, 1024),
    (14, 1280),
    (14, 1152),
    (14, 768),
    (14, 384),
    (32, 768),
)
PATCHES += (
    (4, 96),
    (4, 128),
    (4, 192),
    (8, 384),
    (8, 768),
    (16, 512),
    (4, 384),
    (4, 512),
    (4, 256),
    (2, 384),
    (2, 768),
)


class _Watch(TorchDispatchMode):
    """Notes the convolutions that are run."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, None] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.convolution.default:
            source, weight, _, stride, padding, dilation, transposed, _, groups = args
            dims = source.dim() - 2
            stride, padding, dilation = (list(each) * (dims // len(each)) for each in (stride, padding, dilation))
            into, out = source, func(*args)
            outputs = out.shape[1]
            if transposed:  # its mirror: the table has no other
                into, out, outputs = out, source, source.shape[1]
            shape = [into.shape[1], list(into.shape[2:]), outputs, list(weight.shape[2:]), stride, padding, dilation]
            if source.shape[0] % 2 == 0:
                self.found[json.dumps([source.shape[0] // 2, *shape, groups], separators=(",", ":"))] = None
            return out if not transposed else into
        return func(*args, **(kwargs or {}))


_NO_CONVOLUTION = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.ReLU, nn.ReLU6, nn.SiLU, nn.GELU)
_NO_CONVOLUTION += (nn.Hardswish, nn.Hardsigmoid, nn.Sigmoid, nn.LeakyReLU)


def _bare(module: nn.Module) -> nn.Module:
    """Leave out what keeps sizes as they are, which meta tensors take long for."""
    for name, child in module.named_children():
        if isinstance(child, _NO_CONVOLUTION):
            setattr(module, name, nn.Identity())
        else:
            _bare(child)
    return module


def _image(size: int, colours: int = 3) -> tuple[torch.Tensor]:
    return (torch.empty(2, colours, size, size, device="meta"),)


def _sizes(own: int | None = None) -> list[tuple[float, tuple[Any, ...]]]:
    sizes = SIZES if own is None else {**SIZES, own: 0.7}
    return [(often, _image(size)) for size, often in sizes.items()]


def _torchvision() -> Iterator[Entry]:
    from torchvision import models

    for name, common in TORCHVISION.items():
        options = (
            {"init_weights": False, "aux_logits": name == "googlenet"} if name in ("googlenet", "inception_v3") else {}
        )
        make = lambda n=name, o=options: getattr(models, n)(weights=None, **o)  # as the rows want it
        yield (
            name,
            common,
            make,
            [(1.0, _image(224))] if name.startswith(("vit", "swin")) else _sizes(OWN_SIZES.get(name)),
        )
    larger = [(often, _image(size)) for size, often in ((512, 1.0), (520, 0.5), (256, 0.7), (224, 0.3), (320, 0.3))]
    for name in ("deeplabv3_resnet50", "fcn_resnet50", "deeplabv3_mobilenet_v3_large"):
        make = lambda n=name: getattr(models.segmentation, n)(
            weights=None, weights_backbone=None, aux_loss=not n.startswith("lraspp")
        )
        yield name, 2.0, make, larger
    for name, common in (("r3d_18", 2.0), ("mc3_18", 1), ("r2plus1d_18", 2), ("s3d", 1)):
        clips = [
            (often, (torch.empty(2, 3, n, s, s, device="meta"),))
            for n, s, often in ((16, 112, 1.0), (8, 112, 0.5), (16, 224, 0.5), (8, 224, 0.2))
        ]
        yield name, common, lambda n=name: getattr(models.video, n)(weights=None), clips
    pyramid = [(often, _image(size)) for size, often in ((512, 1.0), (640, 0.7), (800, 1.0), (1024, 0.5))]
    yield (
        "fpn",
        2.0,
        lambda: models.detection.backbone_utils.resnet_fpn_backbone(backbone_name="resnet50", weights=None),
        pyramid,
    )


def _timm() -> Iterator[Entry]:
    import timm

    for name, common in TIMM.items():
        yield name, common, lambda n=name: timm.create_model(n, pretrained=False), _sizes()


def _diffusers() -> Iterator[Entry]:
    from diffusers import AutoencoderKL, UNet2DConditionModel, UNet2DModel

    when = torch.zeros((2,), dtype=torch.long, device="meta")
    for widths, common in (
        ((128, 128, 256, 256, 512, 512), 3.0),
        ((64, 128, 128), 2),
        ((64, 128, 256), 2),
        ((64, 128, 256, 512), 3),
        ((128, 256, 256, 256), 2),
        ((128, 256, 512), 1),
        ((32, 64, 128), 1),
        ((128, 128, 256, 256), 1),
        ((128, 256, 384, 512), 1),
    ):
        inputs = [
            (often, (*_image(size, colours), when))
            for size, often in ((32, 1.0), (64, 1.0), (128, 1.0), (256, 0.3))
            for colours in (3, 1, 4)[: 1 if size > 64 else 3]
        ]
        for colours in (3, 1, 4):
            rows = [row for row in inputs if row[1][0].shape[1] == colours]
            make = lambda w=widths, c=colours: UNet2DModel(
                in_channels=c,
                out_channels=c,
                block_out_channels=w,
                down_block_types=("DownBlock2D",) * len(w),
                up_block_types=("UpBlock2D",) * len(w),
            )
            yield "diffusion", common * (1 if colours == 3 else 0.5), make, rows
    text = torch.empty(2, 77, 768, device="meta")
    for widths, common in (
        ((320, 640, 1280, 1280), 5.0),
        ((320, 640, 1280), 3),
        ((64, 128, 256, 256), 1),
        ((128, 256, 512, 512), 1),
    ):
        inputs = [
            (often, (*_image(size, 4), when, text)) for size, often in ((64, 1.0), (32, 0.5), (96, 0.3), (128, 0.5))
        ]
        make = lambda w=widths: UNet2DConditionModel(
            block_out_channels=w,
            cross_attention_dim=768,
            down_block_types=("CrossAttnDownBlock2D",) * (len(w) - 1) + ("DownBlock2D",),
            up_block_types=("UpBlock2D",) + ("CrossAttnUpBlock2D",) * (len(w) - 1),
        )
        yield "stable", common, make, inputs
    for widths, common in (((128, 256, 512, 512), 4.0), ((64, 128, 256), 1), ((64, 128, 128), 0.7), ((32, 64, 128), 1)):
        inputs = [(often, _image(size)) for size, often in ((256, 1.0), (512, 1.0), (128, 0.5), (64, 0.3))]
        make = lambda w=widths: AutoencoderKL(
            block_out_channels=w,
            down_block_types=("DownEncoderBlock2D",) * len(w),
            up_block_types=("UpDecoderBlock2D",) * len(w),
            layers_per_block=2,
        )
        yield "autoencoder-kl", common, make, inputs


def _transformers() -> Iterator[Entry]:
    import transformers as hf

    def of(config: Any) -> Callable[[], Any]:
        return lambda: hf.AutoModel.from_config(config)

    lengths = (
        (16000, 1.0),
        (80000, 1.0),
        (160000, 1.0),
        (32000, 0.5),
        (48000, 0.5),
        (64000, 0.5),
        (240000, 0.5),
        (8000, 0.3),
    )
    sounds = [(often, (torch.empty(2, length, device="meta"),)) for length, often in lengths]
    for kind, common in (("group", 4.0), ("layer", 2)):
        for config in (hf.Wav2Vec2Config, hf.HubertConfig):
            yield (
                "wav2vec2",
                common / 2,
                of(config(num_hidden_layers=1, feat_extract_norm=kind, apply_spec_augment=False)),
                sounds,
            )
        large = hf.Wav2Vec2Config(
            num_hidden_layers=1,
            feat_extract_norm=kind,
            apply_spec_augment=False,
            hidden_size=1024,
            num_attention_heads=16,
        )
        yield "wav2vec2-large", common, of(large), sounds
    for width, mels in itertools.product((384, 512, 768, 1024, 1280), (80, 128)):
        rows = [
            (often, (torch.empty(2, mels, length, device="meta"),))
            for length, often in ((3000, 1.0), (1500, 0.3), (1000, 0.3), (600, 0.2))
        ]
        make = lambda w=width, m=mels: nn.Sequential(
            nn.Conv1d(m, w, 3, padding=1), nn.Conv1d(w, w, 3, stride=2, padding=1)
        )
        yield "whisper", 3.0 if mels == 80 or width == 1280 else 0.3, make, rows
    for width, patch in ((64, 1), (128, 1)):
        del patch
        segformer = hf.SegformerConfig(hidden_sizes=[width // 2, width, width * 5 // 2, width * 4], depths=[1, 1, 1, 1])
        yield (
            "segformer",
            2.0,
            of(segformer),
            [(often, _image(size)) for size, often in ((512, 1.0), (256, 0.5), (224, 0.5), (640, 0.2))],
        )
    for name in (
        "CvtConfig",
        "PvtConfig",
        "PvtV2Config",
        "FocalNetConfig",
        "VanConfig",
        "MobileViTConfig",
        "SwiftFormerConfig",
        "BitConfig",
    ):
        if hasattr(hf, name):
            yield name, 0.7, of(getattr(hf, name)()), [(1.0, _image(224)), (0.3, _image(256))]


def _others() -> Iterator[Entry]:
    for patch, width in PATCHES:
        make = lambda p=patch, w=width: nn.Conv2d(3 if p > 2 else 4, w, p, p)
        yield (
            "patches",
            3.0,
            make,
            [(often, _image(size, 3 if patch > 2 else 4)) for size, often in {**SIZES, 336: 0.3, 518: 0.2}.items()],
        )
    for name, common, make, size in families():
        yield name, common, make, [(1.0, (torch.empty(2, *size, device="meta"),))]


def main() -> None:
    """Run everything."""
    warnings.filterwarnings("ignore")
    shapes: dict[str, int] = {}
    networks: dict[tuple[str, tuple[int, ...]], list[Any]] = {}
    started = time.monotonic()
    for source in (_torchvision, _timm, _diffusers, _transformers, _others):
        before = len(shapes)
        try:
            for name, common, make, inputs in source():
                try:
                    try:
                        with torch.device("meta"):
                            module = make()
                    except (NotImplementedError, RuntimeError):  # it reads a number from a tensor
                        module = make()
                    module = _bare(module.to("meta").train())
                except Exception as error:  # noqa: BLE001  # a network that is not there is left out
                    sys.stderr.write(f"{name}: {error}\n"[:200])
                    continue
                for often, arguments in inputs:
                    if common * often < LEAST:
                        continue
                    watch = _Watch()
                    try:
                        with torch.no_grad(), watch:
                            if isinstance(module, nn.ModuleList):
                                for each in module:
                                    each(*arguments)
                            else:
                                module(*arguments)
                    except Exception as error:  # noqa: BLE001  # too small an input, mostly
                        sys.stderr.write(f"{name} {tuple(arguments[0].shape)}: {error}\n"[:160])
                        continue
                    used = sorted({shapes.setdefault(shape, len(shapes)) for shape in watch.found})
                    networks.setdefault(
                        (name, tuple(used)), [name, list(arguments[0].shape[1:]), round(common * often, 3), used]
                    )
        except ImportError as error:
            sys.stderr.write(f"{source.__name__}: {error}\n")
        sys.stderr.write(f"{source.__name__}: {len(shapes) - before} shapes, {time.monotonic() - started:.0f} s\n")
    text = json.dumps({"shapes": [json.loads(shape) for shape in shapes], "networks": list(networks.values())})
    Path(sys.argv[1]).write_bytes(gzip.compress(text.encode(), mtime=0))
    sys.stdout.write(f"{len(networks)} networks, {len(shapes)} shapes\n")


if __name__ == "__main__":
    main()
