"""Single ops of networks for images and sound, of graphs, tables and plain loops; as in ``probes.py``.

On a machine with a GPU, ``python tests/simulate/vision_probes.py OUT.json``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812  # the name that everybody gives it
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
from probes import DTYPES, FOUND, both_ways, record, zeros

if TYPE_CHECKING:
    from collections.abc import Callable

LAST = torch.channels_last
LAYOUTS = {"cf": torch.contiguous_format, "cl": LAST}


SHAPES = ((4, 32, 18, 20), (2, 64, 56, 56))


def images(kind: str, dtype: torch.dtype, shapes: tuple = SHAPES) -> None:
    """Ops on images, in both layouts."""
    unary: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "max_pool3s2": lambda x: F.max_pool2d(x, 3, 2, 1),
        "max_pool2": lambda x: F.max_pool2d(x, 2),
        "avg_pool3": lambda x: F.avg_pool2d(x, 3, 2, 1),
        "adaptive_max": lambda x: F.adaptive_max_pool2d(x, 4),
        "adaptive_max1": lambda x: F.adaptive_max_pool2d(x, 1),
        "adaptive_avg1": lambda x: F.adaptive_avg_pool2d(x, 1),
        "adaptive_avg5": lambda x: F.adaptive_avg_pool2d(x, 5),
        "adaptive_avg_wide": lambda x: F.adaptive_avg_pool2d(x, (1, 7)),
        "mean_hw": lambda x: x.mean((2, 3)),
        "max_hw": lambda x: x.amax((2, 3)),
        "nearest": lambda x: F.interpolate(x, scale_factor=2),
        "nearest_exact": lambda x: F.interpolate(x, scale_factor=2, mode="nearest-exact"),
        "bilinear": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
        "bilinear_down": lambda x: F.interpolate(x, size=(9, 9), mode="bilinear", align_corners=True),
        "bilinear_aa": lambda x: F.interpolate(x, size=(9, 9), mode="bilinear", antialias=True),
        "bicubic": lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"),
        "bicubic_aa": lambda x: F.interpolate(x, scale_factor=0.5, mode="bicubic", antialias=True),
        "area": lambda x: F.interpolate(x, size=(7, 7), mode="area"),
        "pixel_shuffle": lambda x: F.pixel_shuffle(x, 2),
        "pixel_unshuffle": lambda x: F.pixel_unshuffle(x, 2),
        "channel_shuffle": lambda x: F.channel_shuffle(x, 4),
        "unfold": lambda x: F.unfold(x, 3, padding=1),
        "fold": lambda x: F.fold(x.flatten(2)[:, :27, :4], (4, 4), 3),
        "reflect": lambda x: F.pad(x, (2, 2, 2, 2), "reflect"),
        "replicate": lambda x: F.pad(x, (1, 2, 3, 4), "replicate"),
        "circular": lambda x: F.pad(x, (1, 1, 1, 1), "circular"),
        "constant": lambda x: F.pad(x, (1, 1, 1, 1)),
        "instance_norm": F.instance_norm,
        "group_norm_plain": lambda x: F.group_norm(x, 4),
        "lrn": lambda x: F.local_response_norm(x, 5),
        "normalize1": lambda x: F.normalize(x, dim=1),
        "softmax1": lambda x: F.softmax(x, 1),
        "log_softmax1": lambda x: F.log_softmax(x, 1),
        "dropout2d": lambda x: F.dropout2d(x, 0.2),
        "alpha_dropout": lambda x: F.alpha_dropout(x, 0.2),
        "cat1": lambda x: torch.cat([x, x], 1),
        "chunk_mul": lambda x: x.chunk(2, 1)[0] * x.chunk(2, 1)[1],
        "flatten_t": lambda x: x.flatten(2).transpose(1, 2).contiguous(),
        "lp_pool": lambda x: F.lp_pool2d(x, 2, 2),
        "relu_": lambda x: F.relu(x * 1, inplace=True),
        "hardswish": F.hardswish,
        "hardsigmoid": F.hardsigmoid,
        "selu": F.selu,
        "celu": F.celu,
        "softplus": F.softplus,
        "logsigmoid": F.logsigmoid,
        "rrelu": lambda x: F.rrelu(x, training=True),
        "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
        "glu1": lambda x: F.glu(x, 1),
        "cumsum1": lambda x: x.cumsum(1),
        "flip": lambda x: x.flip(3),
        "roll2": lambda x: x.roll((1, 2), (2, 3)),
        "std_hw": lambda x: x.std((2, 3)),
        "var_all": torch.var,
        "norm_c": lambda x: x.norm(dim=1),
        "clamp": lambda x: x.clamp(-1, 1),
        "abs_pow": lambda x: (x.abs() + 1e-3) ** 1.5,
        "tile": lambda x: x.tile(1, 1, 2, 2),
        "diff": lambda x: x.diff(dim=2),
        "total_variation": lambda x: x.diff(dim=3).abs().mean(),
        "gram": lambda x: torch.einsum("bchw,bdhw->bcd", x, x),
        "rotate": lambda x: x.rot90(1, (2, 3)),
    }
    for layout_name, layout in LAYOUTS.items():
        for shape in shapes:

            def image(s: tuple = shape, f: torch.memory_format = layout) -> tuple:
                return (zeros(*s, dtype=dtype).contiguous(memory_format=f).requires_grad_(),)

            tag = f"{kind}.{layout_name}.{'x'.join(map(str, shape))}"
            for name, op in unary.items():
                both_ways(f"image.{name}.{tag}", image, op)

            def gridded(s: tuple = shape, f: torch.memory_format = layout) -> tuple:
                return (
                    zeros(*s, dtype=dtype).contiguous(memory_format=f).requires_grad_(),
                    zeros(s[0], 15, 15, 2, dtype=dtype, grad=True),
                )

            for mode in ("bilinear", "nearest", "bicubic"):
                both_ways(
                    f"image.grid_{mode}.{tag}",
                    gridded,
                    lambda x, g, m=mode: F.grid_sample(x, g, mode=m, align_corners=False),
                )

            def normed(s: tuple = shape, f: torch.memory_format = layout) -> tuple:
                c = s[1]
                x = zeros(*s, dtype=dtype).contiguous(memory_format=f).requires_grad_()
                return x, *(zeros(c, grad=g) for g in (True, True, False, False))

            both_ways(f"image.bn_train.{tag}", normed, lambda x, w, b, m, v: F.batch_norm(x, m, v, w, b, True))
            both_ways(f"image.bn_eval.{tag}", normed, lambda x, w, b, m, v: F.batch_norm(x, m, v, w, b))
            both_ways(
                f"image.bn_no_running.{tag}", normed, lambda x, w, b, *_o: F.batch_norm(x, None, None, w, b, True)
            )
            both_ways(
                f"image.bn_no_affine.{tag}", normed, lambda x, _w, _b, m, v: F.batch_norm(x, m, v, None, None, True)
            )
            both_ways(f"image.in_affine.{tag}", normed, lambda x, w, b, *_o: F.instance_norm(x, None, None, w, b))
            both_ways(f"image.prelu.{tag}", normed, lambda x, w, *_o: F.prelu(x, w.to(x.dtype)))

            def pair(s: tuple = shape, f: torch.memory_format = layout) -> tuple:
                return tuple(zeros(*s, dtype=dtype).contiguous(memory_format=f).requires_grad_() for _ in range(2))

            binary: dict[str, Callable[..., torch.Tensor]] = {
                "l1": F.l1_loss,
                "mse": F.mse_loss,
                "mse_none": lambda a, b: F.mse_loss(a, b, reduction="none"),
                "smooth_l1": F.smooth_l1_loss,
                "huber": F.huber_loss,
                "bce_logits": lambda a, b: F.binary_cross_entropy_with_logits(a, b.detach()),
                "bce_logits_none": lambda a, b: F.binary_cross_entropy_with_logits(a, b.detach(), reduction="none"),
                "bce_logits_weight": lambda a, b: F.binary_cross_entropy_with_logits(
                    a, b.detach(), pos_weight=torch.ones(a.shape[-1], device="cuda", dtype=a.dtype)
                ),
                "poisson": F.poisson_nll_loss,
                "gaussian": lambda a, b: F.gaussian_nll_loss(a, b, torch.ones_like(a)),
                "kl": lambda a, b: F.kl_div(a, b, reduction="batchmean"),
                "kl_log": lambda a, b: F.kl_div(a, b, reduction="sum", log_target=True),
                "soft_margin": lambda a, b: F.soft_margin_loss(a, b.detach()),
                "multilabel_soft": lambda a, b: F.multilabel_soft_margin_loss(a.flatten(1), b.flatten(1).detach()),
                "hinge": lambda a, b: F.hinge_embedding_loss(a, b.detach()),
                "cosine1": lambda a, b: F.cosine_similarity(a, b, dim=1),
                "pairwise": F.pairwise_distance,
                "where": lambda a, b: torch.where(a > b, a, b),
                "maximum": torch.maximum,
                "lerp": lambda a, b: torch.lerp(a, b, 0.3),
                "addcmul": lambda a, b: torch.addcmul(a, a, b, value=0.5),
                "gate_channels": lambda a, b: a * b.mean((2, 3), keepdim=True).sigmoid(),
                "add_channel": lambda a, b: a + b.amax((0, 2, 3), keepdim=True),
                "soft_classes": lambda a, b: F.cross_entropy(a, b.softmax(1)),
                "stack": lambda a, b: torch.stack([a, b], 2),
                "outer": lambda a, b: a.flatten(2) @ b.flatten(2).transpose(1, 2),
                "dice": lambda a, b: (
                    2 * (a.sigmoid() * b).sum((2, 3)) / (a.sigmoid() + b).sum((2, 3)).clamp(1)
                ).mean(),
            }
            for name, op in binary.items():
                both_ways(f"image2.{name}.{tag}", pair, op)

            def classed(s: tuple = shape, f: torch.memory_format = layout) -> tuple:
                labels = torch.randint(0, s[1], (s[0], *s[2:]), device="cuda")
                return zeros(*s, dtype=dtype).contiguous(memory_format=f).requires_grad_(), labels

            for name, options in {
                "mean": {},
                "none": {"reduction": "none"},
                "smooth": {"label_smoothing": 0.1},
                "sum": {"reduction": "sum"},
                "ignored": {"ignore_index": 3},
            }.items():
                both_ways(f"image.nll2d_{name}.{tag}", classed, lambda x, y, o=options: F.cross_entropy(x, y, **o))


def volumes_and_rows(kind: str, dtype: torch.dtype) -> None:
    """Ops on sound, rows and volumes."""
    shapes = {"rows": (64, 32, 400), "volume": (2, 16, 8, 18, 20)}
    unary: dict[str, dict[str, Callable[[torch.Tensor], torch.Tensor]]] = {
        "rows": {
            "max_pool1d": lambda x: F.max_pool1d(x, 3, 2),
            "avg_pool1d": lambda x: F.avg_pool1d(x, 3, 2),
            "adaptive_avg1d": lambda x: F.adaptive_avg_pool1d(x, 5),
            "adaptive_max1d": lambda x: F.adaptive_max_pool1d(x, 5),
            "linear": lambda x: F.interpolate(x, scale_factor=2, mode="linear"),
            "nearest1d": lambda x: F.interpolate(x, scale_factor=2),
            "reflect1d": lambda x: F.pad(x, (2, 2), "reflect"),
            "replicate1d": lambda x: F.pad(x, (2, 2), "replicate"),
            "instance_norm": F.instance_norm,
            "cumsum": lambda x: x.cumsum(-1),
            "logcumsumexp": lambda x: x.logcumsumexp(-1),
            "cummax": lambda x: x.cummax(-1).values,
            "cumprod": lambda x: x.cumprod(-1),
            "sort": lambda x: x.sort(-1).values,
            "sort1": lambda x: x.sort(1).values,
            "topk": lambda x: x.topk(5, -1).values,
            "topk1": lambda x: x.topk(5, 1).values,
            "kthvalue": lambda x: x.kthvalue(7, -1).values,
            "median": lambda x: x.median(-1).values,
            "mode": lambda x: x.mode(-1).values,
            "unfold": lambda x: x.unfold(-1, 10, 5),
            "logsumexp": lambda x: x.logsumexp(-1),
            "max": lambda x: x.max(-1).values,
            "min1": lambda x: x.min(1).values,
            "prod": lambda x: x.prod(-1),
            "gumbel": lambda x: F.gumbel_softmax(x, dim=-1),
            "gumbel_hard": lambda x: F.gumbel_softmax(x, hard=True, dim=-1),
            "softmin": lambda x: F.softmin(x, dim=-1),
            "softmax_cast": lambda x: F.softmax(x, -1, dtype=torch.float32),
            "nan_to_num": torch.nan_to_num,
            "renorm": lambda x: x.renorm(2, 0, 1.0),
            "repeat_interleave": lambda x: x.repeat_interleave(2, 1),
            "movedim": lambda x: x.movedim(1, -1).contiguous(),
            "trapezoid": torch.trapezoid,
            "norm1": lambda x: x.norm(p=1, dim=-1),
            "norm_inf": lambda x: x.norm(p=float("inf"), dim=-1),
            "norm3": lambda x: x.norm(p=3, dim=-1),
            "aminmax": lambda x: x.aminmax(dim=-1).max,
            "index_pick": lambda x: x[:, torch.arange(0, 32, 2, device="cuda")],
            "gather": lambda x: x.gather(2, torch.zeros(64, 32, 10, dtype=torch.int64, device="cuda")),
            "take_along": lambda x: torch.take_along_dim(
                x, torch.zeros(64, 32, 3, dtype=torch.int64, device="cuda"), 2
            ),
            "masked_fill": lambda x: x.masked_fill(torch.ones(64, 1, 400, dtype=torch.bool, device="cuda"), 0.0),
            "scatter": lambda x: torch.zeros_like(x).scatter(
                2, torch.zeros(64, 32, 400, dtype=torch.int64, device="cuda"), x
            ),
            "tril": lambda x: x.tril(),
            "diagonal": lambda x: x.diagonal(dim1=1, dim2=2),
            "diag_embed": lambda x: x[:, :, 0].diag_embed(),
            "pdist": lambda x: F.pdist(x[:, 0]),
            "cov": lambda x: x[0].cov(),
            "corrcoef": lambda x: x[0].corrcoef(),
            "matrix_exp": lambda x: torch.matrix_exp(x[:, :, :32]),
        },
        "volume": {
            "max_pool3d": lambda x: F.max_pool3d(x, 2),
            "avg_pool3d": lambda x: F.avg_pool3d(x, 2),
            "adaptive_avg3d": lambda x: F.adaptive_avg_pool3d(x, 1),
            "adaptive_avg3d2": lambda x: F.adaptive_avg_pool3d(x, (2, 3, 4)),
            "adaptive_max3d": lambda x: F.adaptive_max_pool3d(x, 2),
            "trilinear": lambda x: F.interpolate(x, scale_factor=2, mode="trilinear"),
            "nearest3d": lambda x: F.interpolate(x, scale_factor=2),
            "replicate3d": lambda x: F.pad(x, (1,) * 6, "replicate"),
            "reflect3d": lambda x: F.pad(x, (1,) * 6, "reflect"),
            "instance_norm": F.instance_norm,
            "group_norm": lambda x: F.group_norm(x, 4),
            "dropout3d": lambda x: F.dropout3d(x, 0.1),
        },
    }
    for what, shape in shapes.items():

        def source(s: tuple = shape) -> tuple:
            return (zeros(*s, dtype=dtype, grad=True),)

        for name, op in unary[what].items():
            both_ways(f"{what}.{name}.{kind}", source, op)

        def normed(s: tuple = shape) -> tuple:
            c = s[1]
            return zeros(*s, dtype=dtype, grad=True), *(zeros(c, grad=g) for g in (True, True, False, False))

        both_ways(f"{what}.bn_train.{kind}", normed, lambda x, w, b, m, v: F.batch_norm(x, m, v, w, b, True))
        both_ways(f"{what}.bn_eval.{kind}", normed, lambda x, w, b, m, v: F.batch_norm(x, m, v, w, b))
        both_ways(f"{what}.in_affine.{kind}", normed, lambda x, w, b, *_o: F.instance_norm(x, None, None, w, b))

    for rows, width in ((4096, 256), (300, 1000), (100_000, 32), (64, 64)):

        def flat(r: int = rows, w: int = width) -> tuple:
            return zeros(r, w, dtype=dtype, grad=True), *(zeros(w, grad=g) for g in (True, True, False, False))

        both_ways(
            f"table.bn_train.{kind}.{rows}x{width}", flat, lambda x, w, b, m, v: F.batch_norm(x, m, v, w, b, True)
        )
        both_ways(f"table.bn_eval.{kind}.{rows}x{width}", flat, lambda x, w, b, m, v: F.batch_norm(x, m, v, w, b))
    sizes = ((512, 128), (2000, 64))
    for rows, width in sizes:

        def towers(r: int = rows, w: int = width) -> tuple:
            return zeros(r, w, dtype=dtype, grad=True), zeros(r, w, dtype=dtype, grad=True)

        pairs: dict[str, Callable[..., torch.Tensor]] = {
            "cdist": torch.cdist,
            "cdist1": lambda a, b: torch.cdist(a, b, p=1.0),
            "triplet": lambda a, b: F.triplet_margin_loss(a, b, b.flip(0)),
            "cosine_embedding": lambda a, b: F.cosine_embedding_loss(a, b, torch.ones(a.shape[0], device="cuda")),
            "margin_ranking": lambda a, b: F.margin_ranking_loss(a, b, torch.ones_like(a)),
            "cosine_all": lambda a, b: F.cosine_similarity(a[:, None], b[None, :64], dim=-1),
            "multi_margin": lambda a, _b: F.multi_margin_loss(
                a, torch.zeros(a.shape[0], dtype=torch.int64, device="cuda")
            ),
            "multilabel_margin": lambda a, _b: F.multilabel_margin_loss(
                a, torch.zeros(a.shape, dtype=torch.int64, device="cuda")
            ),
            "bilinear": lambda a, b: F.bilinear(
                a, b, torch.zeros(8, a.shape[1], b.shape[1], device="cuda", dtype=a.dtype)
            ),
            "kron": lambda a, b: torch.kron(a[:8, :8], b[:8, :8]),
            "outer": lambda a, b: torch.outer(a[:, 0], b[:, 0]),
            "mv": lambda a, b: a @ b[0],
            "dot": lambda a, b: a.flatten() @ b.flatten(),
            "baddbmm": lambda a, b: torch.baddbmm(
                torch.zeros(4, 1, a.shape[1], device="cuda", dtype=a.dtype),
                a.view(4, -1, a.shape[1]),
                (b.T @ b).expand(4, -1, -1),
            ),
            "addbmm": lambda a, b: torch.addbmm(
                torch.zeros(a.shape[0] // 4, a.shape[1], device="cuda", dtype=a.dtype),
                a.view(4, -1, a.shape[1]),
                (b.T @ b).expand(4, -1, -1),
            ),
            "einsum3": lambda a, b: torch.einsum("ni,nj,nk->ijk", a[:, :16], b[:, :16], a[:, :8]),
            "bilinear_einsum": lambda a, b: torch.einsum("ni,ij,mj->nm", a, a.T @ b, b),
            "cross_entropy_w": lambda a, _b: F.cross_entropy(
                a,
                torch.zeros(a.shape[0], dtype=torch.int64, device="cuda"),
                weight=torch.ones(a.shape[1], device="cuda", dtype=a.dtype),
            ),
        }
        for name, op in pairs.items():
            both_ways(f"pair.{name}.{kind}.{rows}x{width}", towers, op)


def edges(kind: str, dtype: torch.dtype) -> None:
    """Messages along edges, lookups in bags, sums by segment."""
    for nodes, count, width in ((1000, 5000, 32), (20_000, 100_000, 16)):

        def graph(n: int = nodes, e: int = count, w: int = width) -> tuple:
            return zeros(n, w, dtype=dtype, grad=True), torch.randint(0, n, (e,), device="cuda")

        ops: dict[str, Callable[..., torch.Tensor]] = {
            "gather_rows": lambda x, i: x[i],
            "index_select": lambda x, i: x.index_select(0, i),
            "index_add": lambda x, i: torch.zeros_like(x).index_add(0, i, x[i]),
            "scatter_add": lambda x, i: torch.zeros_like(x).scatter_add(0, i[:, None].expand(-1, x.shape[1]), x[i]),
            "index_put": lambda x, i: torch.zeros_like(x).index_put((i,), x[i], accumulate=True),
            "index_copy": lambda x, i: x.index_copy(0, i[:64], x[:64] * 2),
            "index_reduce": lambda x, i: torch.zeros_like(x).index_reduce(0, i, x[i].detach(), "amax"),
            "repeat_each": lambda x, i: x.repeat_interleave(torch.full((len(x),), 3, device="cuda"), dim=0),
            "segment_max": lambda x, _i: torch.segment_reduce(
                x, "max", lengths=torch.full((len(x) // 20,), 20, device="cuda")
            ),
            "segment_mean": lambda x, _i: torch.segment_reduce(
                x, "mean", lengths=torch.full((len(x) // 20,), 20, device="cuda")
            ),
            "edge_dot": lambda x, i: (x[i] * x[i.flip(0)]).sum(-1),
            "dense_adjacent": lambda x, i: (
                torch.zeros(500, 500, device="cuda", dtype=x.dtype).index_put(
                    (i % 500, i.flip(0) % 500), torch.ones(len(i), device="cuda", dtype=x.dtype)
                )
                @ x[:500]
            ),
            "bincount": lambda x, i: torch.bincount(i, minlength=len(x)),
            "argsort_edges": lambda _x, i: i.argsort(),
            "sort_stable": lambda _x, i: i.sort(stable=True).indices,
            "unique_edges": lambda _x, i: torch.unique(i, return_inverse=True)[1],
            "unique_rows": lambda _x, i: torch.unique(torch.stack([i % 3, i % 5]), dim=1),
            "unique_consecutive": lambda _x, i: torch.unique_consecutive(i.sort().values),
            "isin": lambda x, i: torch.isin(i, torch.arange(len(x) // 2, device="cuda")),
            "searchsorted": lambda x, i: torch.searchsorted(torch.arange(len(x), device="cuda"), i),
            "one_hot": lambda _x, i: F.one_hot(i % 16, 16),
            "nonzero": lambda _x, i: (i >= 0).nonzero(),
            "where1": lambda _x, i: torch.where(i >= 0)[0],
            "mask_rows": lambda x, _i: x[torch.arange(len(x), device="cuda") % 2 == 0],
            "mask_assign": lambda x, _i: x.clone().masked_fill_(
                (torch.arange(len(x), device="cuda") % 2 == 0)[:, None], 1.0
            ),
            "histc": lambda x, _i: torch.histc(x.float(), 30, -1, 1),
            "randperm": lambda x, _i: torch.randperm(len(x), device="cuda"),
            "quantile": lambda x, _i: torch.quantile(x.float()[:, 0], torch.tensor([0.1, 0.5], device="cuda")),
            "cumsum_long": lambda _x, i: i.cumsum(0),
        }
        for reduce in ("sum", "mean", "amax", "amin", "prod"):
            ops[f"scatter_reduce_{reduce}"] = lambda x, i, r=reduce: torch.zeros_like(x).scatter_reduce(
                0, i[:, None].expand(-1, x.shape[1]), x[i], r, include_self=False
            )
        for name, op in ops.items():
            both_ways(f"edges.{name}.{kind}.{nodes}x{width}", graph, op)
        for mode in ("sum", "mean", "max"):
            for bag in (5, 50):

                def bags(n: int = nodes, e: int = count, w: int = width, b: int = bag) -> tuple:
                    offsets = torch.arange(0, e, b, device="cuda")
                    return torch.randint(0, n, (e,), device="cuda"), zeros(n, w, dtype=dtype, grad=True), offsets

                both_ways(
                    f"edges.bag_{mode}.{kind}.{nodes}x{width}.{bag}",
                    bags,
                    lambda i, w, o, m=mode: F.embedding_bag(i, w, o, mode=m),
                )
                if mode == "sum":
                    both_ways(
                        f"edges.bag_weighted.{kind}.{nodes}x{width}.{bag}",
                        bags,
                        lambda i, w, o: F.embedding_bag(
                            i, w, o, mode="sum", per_sample_weights=torch.ones(len(i), device="cuda", dtype=w.dtype)
                        ),
                    )


def algebra(kind: str, dtype: torch.dtype) -> None:
    """Decompositions and transforms, in the two precisions that they have."""
    for batch, size in ((1, 32), (1, 300), (1, 1500), (8, 16), (4, 100), (64, 48)):

        def definite(b: int = batch, n: int = size) -> tuple:
            x = torch.eye(n, device="cuda", dtype=dtype) * torch.linspace(1, 2, n, device="cuda", dtype=dtype)
            x = x.expand(b, n, n).contiguous() if b > 1 else x
            return x.requires_grad_(), zeros(*((b,) if b > 1 else ()), n, 3, dtype=dtype, grad=True)

        ops: dict[str, Callable[..., torch.Tensor]] = {
            "cholesky": lambda a, _b: torch.linalg.cholesky(a),
            "cholesky_solve": lambda a, b: torch.cholesky_solve(b, torch.linalg.cholesky(a)),
            "triangular": lambda a, b: torch.linalg.solve_triangular(a, b, upper=False),
            "solve": torch.linalg.solve,
            "inv": lambda a, _b: torch.linalg.inv(a),
            "det": lambda a, _b: torch.linalg.det(a),
            "slogdet": lambda a, _b: torch.linalg.slogdet(a)[1],
            "eigh": lambda a, _b: torch.linalg.eigh(a)[0],
            "eigvalsh": lambda a, _b: torch.linalg.eigvalsh(a),
            "svd": lambda a, _b: torch.linalg.svd(a, full_matrices=False)[1],
            "svdvals": lambda a, _b: torch.linalg.svdvals(a),
            "qr": lambda a, _b: torch.linalg.qr(a)[1],
            "lstsq": lambda a, b: torch.linalg.lstsq(a, b)[0],
            "pinv": lambda a, _b: torch.linalg.pinv(a),
            "lu": lambda a, _b: torch.linalg.lu_factor(a)[0],
            "matrix_norm": lambda a, _b: torch.linalg.matrix_norm(a, 2),
            "matrix_power": lambda a, _b: torch.linalg.matrix_power(a, 5),
            "multi_dot": lambda a, b: torch.linalg.multi_dot([a, a, b]) if a.dim() == 2 else a @ b,
        }
        for name, op in ops.items():
            if size < 1500 or name not in ("svd", "svdvals", "matrix_norm", "pinv"):
                both_ways(f"algebra.{name}.{kind}.{batch}x{size}", definite, op)
    for shape in ((16, 1024), (8, 1000), (4, 3, 64, 64), (2, 4, 30, 50), (4, 1021)):

        def signal(s: tuple = shape) -> tuple:
            return (zeros(*s, dtype=dtype, grad=True),)

        transforms: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
            "rfft": torch.fft.rfft,
            "fft": torch.fft.fft,
            "irfft": lambda x: torch.fft.irfft(torch.fft.rfft(x), n=x.shape[-1]),
            "rfft2": torch.fft.rfft2,
            "fft2": torch.fft.fft2,
            "irfft2": lambda x: torch.fft.irfft2(torch.fft.rfft2(x), s=x.shape[-2:]),
            "fftshift": lambda x: torch.fft.fftshift(torch.fft.fft(x)).abs(),
            "hfft": lambda x: torch.fft.hfft(torch.complex(x, x)),
            "convolve": lambda x: torch.fft.irfft(
                torch.fft.rfft(x, n=2 * x.shape[-1]) * torch.fft.rfft(x, n=2 * x.shape[-1]), n=2 * x.shape[-1]
            ),
        }
        for name, op in transforms.items():
            both_ways(f"fourier.{name}.{kind}.{'x'.join(map(str, shape))}", signal, op)
    for length, size, step in ((16000, 400, 160), (22050, 1024, 256), (8000, 512, 128)):

        def sound(n: int = length) -> tuple:
            return (zeros(4, n, dtype=dtype, grad=True),)

        def spectrum(x: torch.Tensor, s: int = size, t: int = step) -> torch.Tensor:
            return torch.stft(
                x, s, t, window=torch.hann_window(s, device="cuda", dtype=x.dtype), return_complex=True
            ).abs()

        def again(x: torch.Tensor, s: int = size, t: int = step) -> torch.Tensor:
            window = torch.hann_window(s, device="cuda", dtype=x.dtype)
            found = torch.stft(x, s, t, window=window, return_complex=True)
            return torch.istft(found, s, t, window=window, length=x.shape[-1])

        both_ways(f"fourier.stft.{kind}.{length}.{size}", sound, spectrum)
        both_ways(f"fourier.istft.{kind}.{length}.{size}", sound, again)
    complexes: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "abs": torch.abs,
        "angle": torch.angle,
        "real": lambda z: z.real * 2,
        "conj_mul": lambda z: z * z.conj(),
        "matmul": lambda z: z @ z.transpose(-1, -2),
        "matmul_h": lambda z: z @ z.mH,
        "einsum": lambda z: torch.einsum("bij,bkj->bik", z, z.conj()),
        "sum": torch.sum,
        "mean1": lambda z: z.mean(1),
        "exp": torch.exp,
        "view_real": lambda z: torch.view_as_real(z) * 2,
        "polar": lambda z: torch.polar(z.abs(), z.abs()),
        "linear": lambda z: F.linear(z, torch.zeros(7, z.shape[-1], device="cuda", dtype=z.dtype)),
    }
    number = torch.complex64 if dtype == torch.float32 else torch.complex128
    for name, op in complexes.items():
        both_ways(
            f"complex.{name}.{kind}",
            lambda: (torch.zeros(6, 40, 50, dtype=number, device="cuda").requires_grad_(),),
            op,
        )


def cells(kind: str, dtype: torch.dtype) -> None:
    """Cells of recurrent networks, and torch's own encoder in evaluation."""

    def inputs() -> tuple:
        return zeros(32, 256, dtype=dtype, grad=True), zeros(32, 384, dtype=dtype, grad=True)

    for name, make in {
        "lstm": lambda: nn.LSTMCell(256, 384),
        "gru": lambda: nn.GRUCell(256, 384),
        "rnn": lambda: nn.RNNCell(256, 384),
        "lstm_no_bias": lambda: nn.LSTMCell(256, 384, bias=False),
        "gru_no_bias": lambda: nn.GRUCell(256, 384, bias=False),
    }.items():

        def setup(m: Callable[[], nn.Module] = make, n: str = name) -> tuple:
            x, h = inputs()
            state: Any = (h, zeros(32, 384, dtype=dtype, grad=True)) if "lstm" in n else h
            return x, state, m().to(dtype).cuda()

        def one(x: torch.Tensor, state: Any, cell: nn.Module) -> torch.Tensor:
            found = cell(x, state)
            return found[0] if isinstance(found, tuple) else found

        both_ways(f"cell.{name}.{kind}", setup, one)
    for first, norm_first, activation in ((True, False, "relu"), (True, True, "gelu"), (False, False, "gelu")):

        def encoder(b: bool = first, n: bool = norm_first, a: str = activation) -> tuple:
            layer = nn.TransformerEncoderLayer(256, 8, 1024, batch_first=b, norm_first=n, activation=a)
            return (nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).to(dtype).cuda().eval(),)

        def run(module: nn.Module, *, masked: bool, b: bool = first) -> torch.Tensor:
            with torch.no_grad():
                x = zeros(*((12, 100) if b else (100, 12)), 256, dtype=dtype)
                padding = torch.zeros(12, 100, dtype=torch.bool, device="cuda")
                padding[:, 90:] = True
                found: torch.Tensor = module(x, src_key_padding_mask=padding if masked else None)
                return found

        for masked in (False, True):
            record(
                f"encoder.{first}.{norm_first}.{activation}.{masked}.{kind}",
                encoder,
                lambda m, k=masked: run(m, masked=k),
            )

    def attention(**options: bool) -> tuple:
        return nn.MultiheadAttention(256, 8, **options).to(dtype).cuda(), zeros(20, 60, 256, dtype=dtype, grad=True)

    for name, needs in (("weights", True), ("plain", False)):
        both_ways(
            f"mha.{name}.{kind}",
            lambda: attention(batch_first=True),
            lambda m, x, n=needs: m(x, x, x, need_weights=n)[0],
        )
        record(
            f"mha.eval_{name}.{kind}",
            lambda: (attention(batch_first=True)[0].eval(), zeros(20, 60, 256, dtype=dtype)),
            lambda m, x, n=needs: m.requires_grad_(False)(x, x, x, need_weights=n)[0],
        )


LEFT_OUT = ("image.lrn.", "image2.soft_margin.", "image.gram.f32.cf.", "cell.rnn.")
"""The first two pass back in other ways in torch 2.13, which the facts are compared in, than in 2.11, which recorded
them; in the others cuBLAS took its workspace, which it does once in a process."""


def facts() -> None:
    """Record what runs with every test."""
    images("f32", torch.float32, SHAPES[:1])
    cells("f32", torch.float32)
    for name in [name for name in FOUND if name.startswith(LEFT_OUT)]:
        del FOUND[name]


def main(kinds: list[str]) -> None:
    """Record all."""
    for kind in kinds:
        dtype = DTYPES[kind]
        images(kind, dtype)
        volumes_and_rows(kind, dtype)
        edges(kind, dtype)
        cells(kind, dtype)
        if dtype == torch.float32:
            algebra(kind, dtype)


if __name__ == "__main__":
    main(sys.argv[2:] or list(DTYPES))
    Path(sys.argv[1]).write_text(json.dumps({"torch": torch.__version__, "probes": FOUND}), encoding="utf-8")
