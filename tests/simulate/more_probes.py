"""More single ops than in ``probes.py``; made, recorded and compared in the same way.

On a machine with a GPU, ``python tests/simulate/more_probes.py OUT.json``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812  # the name that everybody gives it
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

sys.path.insert(0, str(Path(__file__).parent))
from language_probes import facts as language_facts
from probes import DTYPES, FOUND, both_ways, of_bitsandbytes, record, trained, two_steps, zeros
from vision_probes import facts as vision_facts

if TYPE_CHECKING:
    from collections.abc import Callable

LAST = torch.channels_last


def batch_norms(kind: str, dtype: torch.dtype) -> None:
    for channels in (8, 16, 24, 32, 48, 64, 96, 128, 160, 200, 256, 320):
        for batch, side in ((1, 7), (4, 14), (8, 28), (5, 33)):

            def image(b: int = batch, c: int = channels, s: int = side) -> tuple:
                x = zeros(b, c, s, s, dtype=dtype).contiguous(memory_format=LAST).requires_grad_()
                return x, *(zeros(c, grad=g) for g in (True, True, False, False))

            name = f"{kind}.{batch}x{channels}x{side}"
            both_ways(f"batch_norm.cl.{name}", image, lambda x, w, b, m, v: F.batch_norm(x, m, v, w, b, True))


def layouts(kind: str, dtype: torch.dtype) -> None:
    """Ops whose input or gradient is not contiguous."""
    shape = (6, 300, 512)

    def turned() -> tuple:
        x = zeros(6, 512, 300, dtype=dtype).transpose(1, 2).requires_grad_()
        return x, zeros(512, dtype=dtype, grad=True), zeros(512, dtype=dtype, grad=True)

    both_ways(f"layer_norm.turned.{kind}", turned, lambda x, w, b: F.layer_norm(x, w.shape, w, b))
    both_ways(f"rms_norm.turned.{kind}", lambda: turned()[:2], lambda x, w: F.rms_norm(x, w.shape, w))

    def straight() -> tuple:
        return zeros(*shape, dtype=dtype, grad=True), zeros(512, dtype=dtype, grad=True)

    gradient_of = {
        "layer_norm": lambda x, w: F.layer_norm(x, w.shape, w),
        "softmax": lambda x, _w: F.softmax(x, -1),
        "gelu": lambda x, _w: F.gelu(x),
        "mul": lambda x, w: x * w,
        "dropout": lambda x, _w: F.dropout(x, 0.1),
    }
    for name, forward in gradient_of.items():
        both_ways(f"{name}.turned_gradient.{kind}", straight, lambda x, w, f=forward: f(x, w).transpose(1, 2).exp())
    for bias, last in ((True, False), (True, True), (False, True)):

        def convolution(bias: bool = bias, last: bool = last) -> tuple:
            x = zeros(4, 16, 32, 32, dtype=dtype)
            x = (x.contiguous(memory_format=LAST) if last else x).requires_grad_()
            return x, zeros(32, 16, 3, 3, dtype=dtype, grad=True), zeros(32, dtype=dtype, grad=True) if bias else None

        # forward only: the workspaces of this one are not in the table
        record(f"conv2d.{kind}.bias{bias}.last{last}/fwd", convolution, lambda x, w, b: F.conv2d(x, w, b, padding=1))
        record(
            f"conv2d.patches.{kind}.bias{bias}.last{last}/fwd",
            convolution,
            lambda x, w, b: F.conv2d(x, w, b, padding=1).flatten(2).transpose(1, 2).exp(),
        )


def raised() -> None:
    """Pass back through transposed convolutions whose gradient is part of a concatenation's (those of a U-Net)."""
    for width in (64, 128, 256, 512):
        side = 8192 // width

        def arguments(width: int = width, side: int = side) -> tuple:
            gradient = zeros(4, 2 * width, 2 * side, 2 * side, dtype=torch.bfloat16)[:, width:]
            x = zeros(4, 2 * width, side, side, dtype=torch.bfloat16)
            return gradient, x, zeros(2 * width, width, 2, 2, dtype=torch.bfloat16)

        def back(*tensors: torch.Tensor, width: int = width) -> Any:
            options = ([width], [2, 2], [0, 0], [1, 1], True, [0, 0], 1, [True, True, True])
            return torch.ops.aten.convolution_backward(*tensors, *options)

        record(f"conv_transpose.part.bf16.{width}/bwd", arguments, back)


BACKENDS = {
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "eff": SDPBackend.EFFICIENT_ATTENTION,
}


def attention(kind: str, dtype: torch.dtype) -> None:
    """Attention whose output is turned: its gradient comes in another layout."""
    turns: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "length_first": lambda y: y.permute(2, 0, 1, 3).contiguous().exp(),
        "heads_joined": lambda y: y.transpose(1, 2).reshape(4, 300, -1).exp(),
        "summed": lambda y: y.sum((1, 3)),
    }

    def inputs() -> tuple:
        return (*(zeros(4, 6, 300, 64, dtype=dtype, grad=True) for _ in range(3)),)

    for backend, chosen in BACKENDS.items():
        for turn, function in turns.items():

            def attend(q: Any, k: Any, v: Any, *, chosen: Any = chosen, function: Any = function) -> torch.Tensor:
                with sdpa_kernel(chosen):
                    result: torch.Tensor = function(F.scaled_dot_product_attention(q, k, v))
                    return result

            both_ways(f"sdpa.{backend}.{turn}.{kind}", inputs, attend)


def lookups(kind: str, dtype: torch.dtype) -> None:
    for width in (1, 2, 4, 8, 16, 24, 32, 48, 96, 128, 160):
        for items, rows in ((5000, 32), (16384, 5000)):

            def table(items: int = items, rows: int = rows, width: int = width) -> tuple:
                return torch.randint(0, rows, (items,), device="cuda"), zeros(rows, width, dtype=dtype, grad=True)

            both_ways(f"embedding.{kind}.{items}.{rows}x{width}", table, F.embedding)
    both_ways(
        f"embedding.expanded.{kind}",
        lambda: (
            torch.zeros(1, 256, dtype=torch.int64, device="cuda").expand(8, 256),
            zeros(2, 64, dtype=dtype, grad=True),
        ),
        F.embedding,
    )
    for items in (100, 2000, 3000, 50_000):

        def places(items: int = items) -> tuple:
            return torch.randint(0, 900, (items,), device="cuda"), zeros(900, 70, dtype=dtype, grad=True)

        both_ways(f"index.{kind}.{items}", places, lambda i, x: x[i])
        both_ways(f"index_select.{kind}.{items}", places, lambda i, x: x.index_select(0, i))
        both_ways(
            f"index_add.{kind}.{items}",
            places,
            lambda i, x: torch.zeros_like(x).index_add(0, i, x[:1].expand(len(i), 70)),
        )
        both_ways(f"gather.{kind}.{items}", places, lambda i, x: x.gather(0, i[:, None].expand(-1, 70)))
        both_ways(f"index2.{kind}.{items}", places, lambda i, x: x[i, i % 70])


ROWS: dict[str, Callable[[torch.Tensor], Any]] = {
    "topk": lambda x: x.topk(5)[0],
    "topk_wide": lambda x: x.topk(50)[0],
    "topk_one": lambda x: x[0].topk(8)[0],
    "multinomial": lambda x: torch.multinomial(x.float().softmax(-1), 1),
    "multinomial_many": lambda x: torch.multinomial(x.float().softmax(-1), 4),
    "sort": lambda x: x.sort(-1, descending=True)[0],
    "argsort": lambda x: x.argsort(-1),
    "argmax": lambda x: x.argmax(-1),
    "softmax": lambda x: x.softmax(-1),
    "softmax32": lambda x: x.softmax(-1, dtype=torch.float32),
    "log_softmax32": lambda x: x.log_softmax(-1, dtype=torch.float32),
    "cumprod": lambda x: x.cumprod(0),
    "masked_fill": lambda x: x.masked_fill(x > 0, 1),
    "masked_scatter": lambda x: x.masked_scatter(x > 0, x),
    "triu": torch.triu,
    "cat": lambda x: torch.cat([x, x], 1),
    "stack": lambda x: torch.stack([x, x]),
    "roll": lambda x: x.roll((3, 5), (0, 1)),
    "flip": lambda x: x.flip(1),
    "repeat": lambda x: x.repeat(2, 3),
    "repeat_interleave": lambda x: x.repeat_interleave(3, 1),
    "one_hot": lambda x: F.one_hot((x == 0).long(), 4),
    "pad": lambda x: F.pad(x, (1, 2, 3, 4)),
    "einsum": lambda x: torch.einsum("ij,kj->ik", x[:64], x[:128]),
    "outer": lambda x: torch.outer(x[0], x[1]),
    "clip": lambda x: x.clamp(-1, 1),
    "abs_max": lambda x: x.abs().max(),
    "quantile": lambda x: x.float().quantile(0.5, -1),
    "median": lambda x: x.median(-1)[0],
    "bucketize": lambda x: torch.bucketize(x.float(), torch.arange(10.0, device="cuda")),
    "isin": lambda x: torch.isin((x == 0).long(), torch.arange(3, device="cuda")),
    "histc": lambda x: torch.histc(x.float(), 20, 0, 10),
    "cosine": lambda x: F.cosine_similarity(x, x.flip(0), -1),
    "cdist": lambda x: torch.cdist(x[:100].float(), x[:80].float()),
    "normalize": lambda x: F.normalize(x, dim=-1),
    "kl": lambda x: F.kl_div(x, x, reduction="batchmean"),
    "huber": lambda x: F.smooth_l1_loss(x, torch.zeros_like(x)),
    "mean_all32": lambda x: x.mean(dtype=torch.float32),
    "any_rows": lambda x: (x > 0).any(-1),
    "all_rows": lambda x: (x > 0).all(-1),
    "glu": lambda x: F.glu(x[:, :1000], -1),
    "prelu": lambda x: F.prelu(x, x.new_ones(1)),
    "addmm": lambda x: torch.addmm(x[0, :64], x[:, :500], x.t()[:500, :64]),
    "matmul_batch": lambda x: torch.matmul(x[None, :64, :512].expand(4, 64, 512), x[:512, :32]),
}
IMAGES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "bilinear": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "nearest": lambda x: F.interpolate(x, scale_factor=2),
    "adaptive_avg": lambda x: F.adaptive_avg_pool2d(x, 5),
    "avg_pool": lambda x: F.avg_pool2d(x, 2),
    "max_pool": lambda x: F.max_pool2d(x, 3, 2, 1),
    "pixel_shuffle": lambda x: F.pixel_shuffle(x, 2),
    "dropout2d": lambda x: F.dropout2d(x, 0.1),
    "grid": lambda x: F.grid_sample(x, x.new_zeros(x.size(0), 8, 8, 2)),
    "instance_norm": F.instance_norm,
    "group_norm": lambda x: F.group_norm(x, 4),
}


def rows(kind: str, dtype: torch.dtype) -> None:
    for name, function in ROWS.items():
        record(f"{name}.{kind}", lambda: (zeros(600, 1037, dtype=dtype),), function)
        if name in {
            "topk",
            "topk_wide",
            "cosine",
            "normalize",
            "softmax32",
            "einsum",
            "prelu",
            "addmm",
            "repeat",
        }:
            both_ways(f"{name}.{kind}", lambda: (zeros(600, 1037, dtype=dtype, grad=True),), function)
    for name, image in IMAGES.items():
        for last in (False, True):

            def picture(last: bool = last) -> tuple:
                x = zeros(4, 16, 30, 30, dtype=dtype)
                return ((x.contiguous(memory_format=LAST) if last else x).requires_grad_(),)

            both_ways(f"{name}.{kind}.last{last}", picture, image)
    for groups in (1, 3, 8):

        def grouped(groups: int = groups) -> tuple:
            ends = torch.arange(1, groups + 1, device="cuda", dtype=torch.int32) * 64
            a, b = zeros(64 * groups, 256, dtype=dtype, grad=True), zeros(groups, 256, 128, dtype=dtype, grad=True)
            return a, b, ends

        if dtype is torch.bfloat16:
            both_ways(f"grouped_mm.{kind}.{groups}", grouped, lambda a, b, ends: F.grouped_mm(a, b, offs=ends))


def scans() -> None:
    for name, dtype in {"i32": torch.int32, "i64": torch.int64, "f32": torch.float32, "bf16": torch.bfloat16}.items():
        for length in (1, 4, 128, 2000, 5000, 20_000, 100_000, 1_000_000):
            record(f"cumsum.row.{name}.{length}", lambda n=length, d=dtype: (zeros(n, dtype=d),), lambda x: x.cumsum(0))
            record(f"sort.row.{name}.{length}", lambda n=length, d=dtype: (zeros(n, dtype=d),), lambda x: x.sort()[0])
            record(
                f"nonzero.row.{name}.{length}",
                lambda n=length, d=dtype: (zeros(n, dtype=d),),
                lambda x: (x == 0).nonzero(),
            )


def optimizers(kind: str, dtype: torch.dtype) -> None:
    makers: dict[str, Callable[[list], torch.optim.Optimizer]] = {
        name: getattr(torch.optim, name)
        for name in ("Adam", "NAdam", "RAdam", "Adamax", "Adadelta", "Rprop", "ASGD", "SparseAdam", "Muon")
        if hasattr(torch.optim, name)
    }
    makers["nesterov"] = lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True, weight_decay=0.1)
    makers["adam_ams"] = lambda p: torch.optim.Adam(p, amsgrad=True)
    makers["rmsprop_centered"] = lambda p: torch.optim.RMSprop(p, centered=True)
    makers["sgd_fused"] = lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, fused=True)
    makers |= of_bitsandbytes(
        "Adam8bit", "AdEMAMix8bit", "SGD8bit", "RMSprop8bit", "LAMB8bit", "Adagrad8bit", "PagedLion8bit"
    )
    sizes = ((1024, 512), (1000, 64))
    for name, make in makers.items():
        record(f"opt.{name}.{kind}", lambda make=make: trained(make, sizes, dtype), two_steps)

    def clipped() -> tuple:
        return trained(torch.optim.Adam, sizes, dtype)

    record(f"clip_norm.{kind}", clipped, lambda p, _o: nn.utils.clip_grad_norm_(p, 1.0))
    record(f"clip_value.{kind}", clipped, lambda p, _o: nn.utils.clip_grad_value_(p, 1.0))


def main(path: str) -> None:
    weight = nn.Parameter(zeros(64, 64))
    (weight @ weight).sum().backward()  # both threads have their handles afterwards
    F.linear(weight, weight, zeros(64)).sum().backward()
    for kind, dtype in DTYPES.items():
        for group in (batch_norms, layouts, attention, lookups, rows):
            group(kind, dtype)
    scans()
    raised()
    language_facts()
    vision_facts()
    for kind in ("f32", "bf16"):
        optimizers(kind, DTYPES[kind])
    Path(path).write_text(json.dumps(FOUND), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
