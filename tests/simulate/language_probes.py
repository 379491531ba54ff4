"""Single ops that language models, adapters and losses run; made, recorded and compared as in ``probes.py``.

On a machine with a GPU, ``python tests/simulate/language_probes.py OUT.json [GROUP ...]``. Attention takes long there:
``attention:f16:0:2`` is every second of its shapes, in float16, and what is found is written after each shape.
"""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812  # the name that everybody gives it
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

sys.path.insert(0, str(Path(__file__).parent))
from probes import DTYPES, FOUND, both_ways, of_bitsandbytes, record, trained, two_steps, zeros

if TYPE_CHECKING:
    from collections.abc import Callable

BACKENDS = {
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "eff": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
    "auto": None,
}
ATTENDED = (
    # batch, heads, key heads, rows, columns, size, size of values
    (3, 8, 8, 333, 333, 96, 64),
    (2, 4, 4, 257, 257, 192, 128),
    (2, 4, 4, 130, 130, 160, 160),
    (2, 6, 6, 222, 222, 40, 40),
    (2, 6, 6, 222, 222, 44, 44),
    (2, 6, 2, 222, 222, 72, 72),
    (2, 6, 3, 500, 500, 96, 96),
    (2, 4, 1, 311, 311, 256, 256),
    (3, 8, 2, 1, 700, 64, 64),
    (3, 8, 2, 17, 700, 128, 128),
    (16, 12, 12, 128, 128, 64, 64),
    (1, 2, 2, 4097, 4097, 64, 64),
    (1, 32, 8, 1500, 1500, 64, 64),
)
MASKS: dict[str, Callable[[int, int, int, int, torch.dtype], torch.Tensor | None]] = {
    "none": lambda _b, _h, _r, _c, _d: None,
    "bool": lambda b, _h, r, c, _d: torch.ones(b, 1, r, c, dtype=torch.bool, device="cuda"),
    "bool_row": lambda b, _h, _r, c, _d: torch.ones(b, 1, 1, c, dtype=torch.bool, device="cuda"),
    "add_one": lambda _b, _h, r, c, d: zeros(1, 1, r, c, dtype=d),
    "add_heads": lambda _b, h, r, c, d: zeros(1, h, r, c, dtype=d, grad=True),
    "add_expanded": lambda b, h, r, c, d: zeros(b, 1, 1, c, dtype=d).expand(b, h, r, c),
}


def attention(kind: str, dtype: torch.dtype, shapes: tuple = ATTENDED, path: Path | None = None) -> None:
    """Attention of many shapes, masks and ways, without a gradient too."""
    for shape in shapes:
        batch, heads, _, rows, columns, _, _ = shape

        def inputs(mask: str = "none", shape: Any = shape, *, grad: bool = True) -> tuple:
            batch, heads, groups, rows, columns, size, value = shape
            parts = ((heads, rows, size), (groups, columns, size), (groups, columns, value))
            tensors = [zeros(batch, n, h, s, dtype=dtype, grad=grad).transpose(1, 2) for h, n, s in parts]
            return *tensors, MASKS[mask](batch, heads, rows, columns, dtype)

        shown = "x".join(map(str, shape))
        for name, backend in BACKENDS.items():
            for mask in MASKS:
                if rows * columns * heads * batch > 3_000_000 and (mask != "none" or name == "math"):
                    continue
                for dropout, causal in ((0.0, False), (0.1, False), (0.0, True)):
                    if causal and (rows != columns or mask != "none"):
                        continue

                    def attend(q: Any, k: Any, v: Any, m: Any, b: Any = backend, **options: Any) -> torch.Tensor:
                        with contextlib.nullcontext() if b is None else sdpa_kernel(b):
                            return F.scaled_dot_product_attention(
                                q, k, v, m, enable_gqa=q.size(1) != k.size(1), **options
                            )

                    def run(*tensors: Any, a: Any = attend, p: float = dropout, c: bool = causal) -> torch.Tensor:
                        result: torch.Tensor = a(*tensors, dropout_p=p, is_causal=c)
                        return result

                    full = f"sdpa.{name}.{kind}.{shown}.{mask}.p{dropout}.c{causal}"
                    both_ways(full, lambda i=inputs, m=mask: i(m), run)
                    if not dropout:
                        record(f"{full}/no_grad", lambda i=inputs, m=mask: i(m, grad=False), run)
        if path is not None:
            path.write_text(json.dumps(FOUND), encoding="utf-8")


Ops = dict[str, "Callable[[torch.Tensor], Any]"]

# On rows of 300 x 516.
ROWS: Ops = {
    "softplus": F.softplus,
    "logsigmoid": F.logsigmoid,
    "selu": F.selu,
    "celu": F.celu,
    "elu": F.elu,
    "hardswish": F.hardswish,
    "softsign": F.softsign,
    "tanhshrink": F.tanhshrink,
    "softshrink": F.softshrink,
    "relu6": F.relu6,
    "rrelu": F.rrelu,
    "leaky": F.leaky_relu,
    "threshold": lambda x: F.threshold(x, 0.1, 0.0),
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_written_out": lambda x: 0.5 * x * (1 + torch.tanh(0.79 * (x + 0.04 * x.pow(3)))),
    "swiglu": lambda x: F.silu(x[:, :258]) * x[:, 258:],
    "chunked_glu": lambda x: F.gelu(x.chunk(2, -1)[0]) * x.chunk(2, -1)[1],
    "relu_squared": lambda x: F.relu(x).square(),
    "softmax_half": lambda x: F.softmax(x, -1, dtype=torch.float32).to(x.dtype),
    "softmax_first": lambda x: F.softmax(x, 0),
    "softmin": lambda x: F.softmin(x, -1),
    "log_softmax": lambda x: F.log_softmax(x, -1),
    "gumbel": lambda x: F.gumbel_softmax(x, hard=True),
    "logsumexp": lambda x: torch.logsumexp(x, (0, 1)),
    "soft_cap": lambda x: torch.tanh(x / 30) * 30,
    "rms": lambda x: x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6).to(x.dtype),
    "rms_norm_bare": lambda x: F.rms_norm(x, (516,)),
    "layer_norm_bare": lambda x: F.layer_norm(x, (516,)),
    "layer_norm_two": lambda x: F.layer_norm(x.view(30, 10, 516), (10, 516)),
    "normalize_first": lambda x: F.normalize(x, dim=0),
    "normalize_one": lambda x: F.normalize(x, p=1, dim=-1),
    "norm_rows": lambda x: x.norm(dim=-1),
    "norm_inf": lambda x: torch.linalg.vector_norm(x, float("inf")),
    "norm_fro": torch.linalg.matrix_norm,
    "std_rows": lambda x: x.std(-1),
    "var_columns": lambda x: x.var(0, unbiased=False),
    "max_rows": lambda x: x.max(-1)[0],
    "min_columns": lambda x: x.min(0)[0],
    "max_all": torch.max,
    "amax_rows": lambda x: x.amax(-1),
    "cummax": lambda x: x.cummax(-1)[0],
    "cumsum_rows": lambda x: x.cumsum(-1),
    "cumsum_columns": lambda x: x.cumsum(0),
    "cumprod_rows": lambda x: x.cumprod(-1),
    "logcumsumexp": lambda x: x.logcumsumexp(-1),
    "prod_rows": lambda x: x.prod(-1),
    "sort_rows": lambda x: x.sort(-1)[0],
    "sort_columns": lambda x: x.sort(0)[0],
    "topk_columns": lambda x: x.topk(3, 0)[0],
    "kthvalue": lambda x: x.kthvalue(5, -1)[0],
    "median_rows": lambda x: x.median(-1)[0],
    "mode": lambda x: x.mode(-1)[0],
    "diff": lambda x: x.diff(dim=-1),
    "roll_one": lambda x: x.roll(1, -1),
    "tril": torch.tril,
    "flip_rows": lambda x: x.flip(0),
    "rot90": torch.rot90,
    "pad_constant": lambda x: F.pad(x, (3, 5), value=1.0),
    "pad_negative": lambda x: F.pad(x, (-3, 2, 0, -1)),
    "pad_reflect": lambda x: F.pad(x[None], (3, 2), mode="reflect"),
    "pad_circular": lambda x: F.pad(x[None], (3, 2), mode="circular"),
    "pad_replicate": lambda x: F.pad(x[None], (3, 2), mode="replicate"),
    "unfold_rows": lambda x: x.unfold(-1, 16, 8).sum(-1),
    "as_strided": lambda x: x.as_strided((290, 10, 516), (516, 516, 1)).mean(1),
    "repeat_interleave": lambda x: x.repeat_interleave(2, 0),
    "repeat_each": lambda x: x.repeat_interleave(torch.arange(300, device="cuda") % 3, 0, output_size=300),
    "tile": lambda x: x.tile(2, 2),
    "expand_sum": lambda x: (x[None].expand(4, -1, -1) * x[0]).sum(),
    "broadcast_rows": lambda x: x * x[:, :1] + x[:1],
    "where_rows": lambda x: torch.where(x > 0, x, x[:1]),
    "where_number": lambda x: torch.where(x > 0, x, -1e4),
    "masked_fill_row": lambda x: x.masked_fill(torch.zeros(516, dtype=torch.bool, device="cuda"), -1.0),
    "maximum": lambda x: torch.maximum(x, x[:1]),
    "minimum_clamped": lambda x: torch.min(x, x.clamp(0.8, 1.2)),
    "clamp_min": lambda x: x.clamp(min=1e-9),
    "nan_to_num": torch.nan_to_num,
    "lerp": lambda x: torch.lerp(x, x[:1], 0.3),
    "addcmul": lambda x: torch.addcmul(x, x, x),
    "hypot": lambda x: torch.hypot(x, x + 1),
    "erf": torch.erf,
    "logit": lambda x: torch.logit(x, 1e-6),
    "atan2": lambda x: torch.atan2(x, x + 1),
    "xlogy": lambda x: torch.special.xlogy(x + 1, x + 1),
    "divide_floor": lambda x: torch.div(x, 3, rounding_mode="floor"),
    "remainder": lambda x: x % 3,
    "rotate_half": lambda x: torch.cat((-x[:, 258:], x[:, :258]), -1),
    "rotate_interleaved": lambda x: torch.stack((-x[:, 1::2], x[:, ::2]), -1).flatten(-2),
    "einsum_heads": lambda x: torch.einsum("bhd,bgd->bhg", x.view(300, 12, 43), x.view(300, 12, 43)),
    "einsum_mix": lambda x: torch.einsum("td,td,d->t", x, x, x[0]),
    "einsum_outer": lambda x: torch.einsum("ti,tj->ij", x[:, :64], x[:, 64:100]),
    "tensordot": lambda x: torch.tensordot(x, x, dims=([0], [0])),
    "kron": lambda x: torch.kron(x[:12, :12], x[:20, :20]),
    "outer": lambda x: torch.outer(x[0], x[1]),
    "dot": lambda x: torch.dot(x[0], x[1]),
    "mv": lambda x: x @ x[0],
    "vector_matrix": lambda x: x[:, 0] @ x,
    "addmv": lambda x: torch.addmv(x[:, 0], x, x[0]),
    "baddbmm": lambda x: torch.baddbmm(x[None, :64, :64], x.view(3, 100, 516)[:, :64], x.view(3, 100, 516)[:, :64].mT),
    "addbmm": lambda x: torch.addbmm(x[:64, :64], x.view(3, 100, 516)[:, :64], x.view(3, 100, 516)[:, :64].mT),
    "matmul_turned": lambda x: x.t() @ x,
    "matmul_strided": lambda x: x[:, ::2] @ x[:, ::2].t(),
    "matmul_heads": lambda x: x.view(100, 3, 516).transpose(0, 1) @ x.view(100, 3, 516).permute(1, 2, 0),
    "matmul_four": lambda x: (
        x.view(2, 150, 12, 43).transpose(1, 2) @ x.view(2, 150, 12, 43).transpose(1, 2).transpose(2, 3)
    ),
    "linear_small": lambda x: F.linear(x[:1], x, x[:, 0]),
    "linear_three": lambda x: F.linear(x.view(3, 100, 516), x[:77], x[:77, 0]),
    "linear_turned": lambda x: F.linear(x.view(100, 3, 516).transpose(0, 1), x[:77]),
    "bilinear": lambda x: F.bilinear(x[:, :16], x[:, 16:32], x.new_zeros(5, 16, 16)),
    "cdist": lambda x: torch.cdist(x.float(), x[:50].float()),
    "cdist_one": lambda x: torch.cdist(x[:60].float(), x[:50].float(), p=1),
    "pairwise": lambda x: F.pairwise_distance(x, x.flip(0)),
    "complex_rotary": lambda x: torch.view_as_real(
        torch.view_as_complex(x.float().reshape(300, -1, 2)) * torch.polar(x[:1, :258].float(), x[:1, :258].float())
    ),
    "rfft": lambda x: torch.fft.rfft(x.float()).abs(),
    "rfft_512": lambda x: torch.fft.rfft(x.float(), n=512).abs(),
    "fft_real_two": lambda x: torch.fft.fftn(x.float(), dim=(0, 1)).real,
    "irfft": lambda x: torch.fft.irfft(torch.view_as_complex(x.float().reshape(300, -1, 2)), n=512),
    "fft2_fnet": lambda x: torch.fft.fftn(x.float().view(3, 100, 516), dim=(1, 2)).real,
    "dropout_row": lambda x: F.dropout1d(x.view(3, 100, 516), 0.2),
    "alpha_dropout": lambda x: F.alpha_dropout(x, 0.1, training=True),
    "bernoulli_like": lambda x: x * torch.bernoulli(torch.full_like(x, 0.9)),
    "rand_like": lambda x: x + torch.rand_like(x) * 0.1,
    "drop_path": lambda x: x.div(0.9) * (0.9 + torch.rand((300, 1), dtype=x.dtype, device="cuda")).floor_(),
    "straight_through": lambda x: x + (x.round() - x).detach(),
    "to_float_and_back": lambda x: x.float().to(torch.bfloat16),
    "mean_two": lambda x: x.view(3, 100, 516).mean((0, 1)),
    "sum_middle": lambda x: x.view(3, 100, 516).sum(1),
    "mean_first_of_three": lambda x: x.view(3, 100, 516).mean(1),
    "pooled_masked": lambda x: (
        (x.view(3, 100, 516) * torch.ones(3, 100, 1, device="cuda", dtype=x.dtype)).sum(1)
        / torch.ones(3, 100, 1, device="cuda", dtype=x.dtype).sum(1).clamp(min=1e-9)
    ),
    "last_token": lambda x: x.view(3, 100, 516)[
        torch.arange(3, device="cuda"), torch.tensor([5, 9, 99], device="cuda")
    ],
    "boolean_index": lambda x: x[torch.arange(300, device="cuda") % 2 == 0],
    "scatter_add": lambda x: torch.zeros_like(x).scatter_add(0, torch.zeros_like(x, dtype=torch.long), x),
    "scatter_reduce": lambda x: torch.zeros_like(x).scatter_reduce(0, torch.zeros_like(x, dtype=torch.long), x, "mean"),
    "scatter_src": lambda x: torch.zeros_like(x).scatter(0, torch.zeros_like(x, dtype=torch.long), x),
    "index_add_rows": lambda x: torch.zeros_like(x).index_add(0, torch.arange(300, device="cuda") % 7, x),
    "index_add_in_place": lambda x: torch.zeros_like(x).index_add_(0, torch.arange(300, device="cuda") % 7, x),
    "index_add_columns": lambda x: torch.zeros_like(x).index_add(1, torch.arange(516, device="cuda") % 7, x),
    "index_copy": lambda x: torch.zeros_like(x).index_copy(0, torch.arange(300, device="cuda"), x),
    "index_put_rows": lambda x: torch.zeros_like(x).index_put((torch.arange(300, device="cuda"),), x),
    "index_two": lambda x: x[torch.arange(300, device="cuda")[:, None], torch.arange(20, device="cuda")],
    "index_column": lambda x: x[:, torch.arange(516, device="cuda") % 50],
    "take_along": lambda x: torch.take_along_dim(x, torch.zeros(300, 5, dtype=torch.long, device="cuda"), 1),
    "gather_large": lambda x: x.gather(1, torch.zeros(300, 516, dtype=torch.long, device="cuda")),
    "embedding_bag": lambda x: F.embedding_bag(torch.arange(1200, device="cuda").view(100, 12) % 300, x),
    "embedding_bag_sum": lambda x: F.embedding_bag(
        torch.arange(1200, device="cuda").view(100, 12) % 300, x, mode="sum"
    ),
    "embedding_max_norm": lambda x: F.embedding(torch.arange(120, device="cuda") % 300, x, padding_idx=0),
    "embedding_scaled": lambda x: F.embedding(torch.arange(500, device="cuda") % 300, x, scale_grad_by_freq=True),
    "stack_chunks": lambda x: torch.stack(x.chunk(4, -1)).sum(0),
    "cat_many": lambda x: torch.cat([x[:, :100], x[:, 100:300], x[:, 300:]], -1),
    "split_joined": lambda x: torch.cat([part * 2 for part in x.split(100)]),
    "triu_filled": lambda x: x.masked_fill(torch.ones(300, 516, dtype=torch.bool, device="cuda").triu(1), -1.0),
    "conv1d_depthwise": lambda x: F.conv1d(x.view(1, 300, 516), x.new_zeros(300, 1, 4), padding=3, groups=300)[
        ..., :516
    ],
    "weight_norm": lambda x: torch._weight_norm(x, x[:, :1], 0),
    "checkpointed": lambda x: torch.utils.checkpoint.checkpoint(lambda y: F.gelu(y) * 2, x, use_reentrant=False),
    "mse": lambda x: F.mse_loss(x, torch.zeros_like(x)),
    "mse_each": lambda x: F.mse_loss(x, torch.zeros_like(x), reduction="none").mean(-1),
    "l1": lambda x: F.l1_loss(x, torch.zeros_like(x)),
    "huber": lambda x: F.huber_loss(x, torch.zeros_like(x), delta=0.5),
    "smooth": lambda x: F.smooth_l1_loss(x, torch.zeros_like(x), beta=0.5),
    "bce_logits": lambda x: F.binary_cross_entropy_with_logits(x, torch.zeros_like(x)),
    "bce_weighted": lambda x: F.binary_cross_entropy_with_logits(x, torch.zeros_like(x), pos_weight=x.detach()[0]),
    "kl": lambda x: F.kl_div(x.log_softmax(-1), x.detach().softmax(-1), reduction="batchmean"),
    "kl_log": lambda x: F.kl_div(x.log_softmax(-1), x.detach().log_softmax(-1), reduction="sum", log_target=True),
    "kl_each": lambda x: F.kl_div(x.log_softmax(-1), x.detach().softmax(-1), reduction="none").sum(-1),
    "entropy": lambda x: -(x.softmax(-1) * x.log_softmax(-1)).sum(-1).mean(),
    "js": lambda x: (x.softmax(-1) * (x.softmax(-1) + 1e-8).log()).sum(),
    "ce_soft": lambda x: F.cross_entropy(x, torch.full_like(x, 0.1)),
    "ce_soft_smooth": lambda x: F.cross_entropy(x, torch.full_like(x, 0.1), label_smoothing=0.1),
    "ce_weighted": lambda x: F.cross_entropy(
        x, torch.zeros(300, dtype=torch.long, device="cuda"), weight=x.detach()[0]
    ),
    "ce_ignored": lambda x: F.cross_entropy(x, torch.full((300,), -100, device="cuda"), ignore_index=-100),
    "ce_smooth_weighted": lambda x: F.cross_entropy(
        x, torch.zeros(300, dtype=torch.long, device="cuda"), weight=x.detach()[0], label_smoothing=0.1
    ),
    "ce_turned": lambda x: F.cross_entropy(
        x.view(3, 100, 516).transpose(1, 2), torch.zeros(3, 100, dtype=torch.long, device="cuda")
    ),
    "ce_float": lambda x: F.cross_entropy(x.float(), torch.zeros(300, dtype=torch.long, device="cuda")),
    "ce_sum_divided": lambda x: (
        F.cross_entropy(x.float(), torch.zeros(300, dtype=torch.long, device="cuda"), reduction="sum")
        / torch.tensor(300, device="cuda")
    ),
    "nll": lambda x: F.nll_loss(x, torch.zeros(300, dtype=torch.long, device="cuda")),
    "token_scores": lambda x: (
        x.log_softmax(-1).gather(-1, torch.zeros(300, 1, dtype=torch.long, device="cuda")).squeeze(-1)
    ),
    "token_scores_lse": lambda x: (
        x.gather(-1, torch.zeros(300, 1, dtype=torch.long, device="cuda")).squeeze(-1) - x.logsumexp(-1)
    ),
    "z_loss": lambda x: x.float().logsumexp(-1).square().mean(),
    "margin": lambda x: F.margin_ranking_loss(x[0], x[1], torch.ones(516, device="cuda")),
    "triplet": lambda x: F.triplet_margin_loss(x[:100], x[100:200], x[200:]),
    "cosine_loss": lambda x: F.cosine_embedding_loss(x[:150], x[150:], torch.ones(150, device="cuda")),
    "multi_margin": lambda x: F.multi_margin_loss(x, torch.zeros(300, dtype=torch.long, device="cuda")),
    "multilabel": lambda x: F.multilabel_soft_margin_loss(x, torch.zeros_like(x)),
    "soft_margin": lambda x: F.soft_margin_loss(x, torch.ones_like(x)),
    "hinge": lambda x: F.hinge_embedding_loss(x, torch.ones_like(x)),
    "poisson": lambda x: F.poisson_nll_loss(x, torch.zeros_like(x)),
    "gaussian": lambda x: F.gaussian_nll_loss(x, torch.zeros_like(x), torch.ones_like(x)),
    "focal": lambda x: (
        (1 - torch.exp(-F.cross_entropy(x, torch.zeros(300, dtype=torch.long, device="cuda"), reduction="none"))) ** 2
    ).mean(),
    "info_nce": lambda x: F.cross_entropy(
        F.normalize(x[:150], dim=-1) @ F.normalize(x[150:], dim=-1).t() / 0.05, torch.arange(150, device="cuda")
    ),
    "balance": lambda x: (
        F.one_hot(x[:, :8].topk(2)[1], 8).float().mean(0) * x[:, :8].float().softmax(-1).mean(0)
    ).sum(),
}
SQUARE: Ops = {
    "inverse": torch.linalg.inv,
    "solve": lambda x: torch.linalg.solve(x, x),
    "solve_ex": lambda x: torch.linalg.solve(torch.eye(x.size(-1), device="cuda") - x, x),
    "det": torch.linalg.det,
    "slogdet": lambda x: torch.linalg.slogdet(x)[1],
    "cholesky": torch.linalg.cholesky,
    "qr": lambda x: torch.linalg.qr(x)[0],
    "svdvals": torch.linalg.svdvals,
    "svd": lambda x: torch.linalg.svd(x, full_matrices=False)[0],
    "eigh": lambda x: torch.linalg.eigh(x)[0],
    "matrix_exp": torch.linalg.matrix_exp,
    "triangular": lambda x: torch.linalg.solve_triangular(x, x, upper=False),
    "power": lambda x: torch.linalg.matrix_power(x, 3),
    "block_diag": lambda x: torch.block_diag(*x.reshape(-1, x.size(-1), x.size(-1))[:3]),
    "diag_embed": torch.diag_embed,
    "diagonal": lambda x: torch.diagonal(x, dim1=-2, dim2=-1).sum(),
    "symmetric": lambda x: x - x.mT,
}
WHOLE: Ops = {
    "one_hot": lambda i: F.one_hot(i, 600),
    "bincount": lambda i: torch.bincount(i.flatten(), minlength=600),
    "histc": lambda i: torch.histc(i.int(), bins=16, min=0, max=15),
    "histc_many": lambda i: torch.histc(i.int(), bins=128, min=0, max=127),
    "unique_inverse": lambda i: torch.unique(i, return_inverse=True),
    "unique_rows": lambda i: torch.unique(i[:20], dim=0),
    "unique_consecutive": torch.unique_consecutive,
    "argsort_all": lambda i: torch.argsort(i.flatten()),
    "argsort_stable": lambda i: torch.argsort(i.flatten(), stable=True),
    "argsort_rows": lambda i: i.argsort(-1),
    "sort_down": lambda i: i.flatten().sort(descending=True)[0],
    "searchsorted": lambda i: torch.searchsorted(torch.arange(100, device="cuda"), i),
    "cumsum_rows": lambda i: i.cumsum(-1),
    "cumsum_int32": lambda i: i.flatten().cumsum(0, dtype=torch.int32),
    "cumsum_mask": lambda i: (i > 0).cumsum(-1) * (i > 0),
    "sum_rows": lambda i: i.sum(-1),
    "max_rows": lambda i: i.max(-1),
    "max_all": torch.max,
    "argmax_rows": lambda i: i.argmax(-1),
    "floor_divide": lambda i: i // 3,
    "remainder": lambda i: i % 7,
    "isin_few": lambda i: torch.isin(i, torch.tensor([1, 2], device="cuda")),
    "isin_many": lambda i: torch.isin(i, torch.arange(300, device="cuda")),
    "nonzero": lambda i: (i == 0).nonzero(),
    "where_one": lambda i: torch.where(i == 0),
    "any_rows": lambda i: (i > 0).any(-1),
    "all_rows": lambda i: (i > 0).all(-1),
    "mask_four": lambda i: (i[:, None, None, :] > 0) & torch.ones(516, 516, dtype=torch.bool, device="cuda").tril(),
    "mask_additive": lambda i: (1.0 - i[:, None, None, :].to(torch.bfloat16)) * torch.finfo(torch.bfloat16).min,
    "full_causal": lambda _i: torch.full((516, 516), -1e4, device="cuda").triu(1),
    "tril_bool": lambda _i: torch.tril(torch.ones(516, 516, dtype=torch.bool, device="cuda")),
    "positions": lambda i: torch.arange(i.size(1), device="cuda").expand(i.size()),
    "outer_compare": lambda i: i[0][:, None] >= i[0][None, :],
    "shifted": lambda i: F.pad(i, (0, 1), value=-100)[..., 1:].contiguous(),
    "rolled": lambda i: i.roll(-1, -1),
    "log_buckets": lambda i: (torch.log(i.float() / 16 + 1) / 3 * 16).long().clamp(max=31),
    "embedding_lookup": lambda i: F.embedding(i, torch.zeros(600, 64, device="cuda")),
    "repeat_interleave": lambda i: torch.repeat_interleave(i[0] % 3),
    "to_list_lengths": lambda i: (i > 0).sum(-1).tolist(),
    "pad_sequence": lambda i: nn.utils.rnn.pad_sequence([i[0], i[1, :30]], batch_first=True),
    "multinomial_again": lambda _i: torch.multinomial(torch.ones(6, 500, device="cuda"), 4, replacement=True),
    "multinomial_wide": lambda _i: torch.multinomial(torch.ones(4, 50_000, device="cuda"), 1),
    "randperm_small": lambda _i: torch.randperm(300, device="cuda"),
    "randint_like": lambda i: torch.randint_like(i, 5),
    "bool_sum": lambda i: (i > 0).sum(),
    "float_mean": lambda i: i.float().mean(),
    "packed_starts": lambda i: torch.cat(
        [torch.zeros(1, dtype=torch.long, device="cuda"), (i[0] == 0).nonzero().flatten()]
    ),
    "scatter_one": lambda i: torch.zeros(300, 600, device="cuda").scatter(1, i[:300, :4], 1.0),
    "masked_scatter": lambda i: torch.zeros(300, 516, device="cuda").masked_scatter(
        i == 0, torch.zeros(300 * 516, device="cuda")
    ),
}


def ops(kind: str, dtype: torch.dtype) -> None:
    for name, function in ROWS.items():
        both_ways(f"{name}.{kind}", lambda: (zeros(300, 516, dtype=dtype, grad=True),), function)


MATRICES = ((64, 64), (3, 32, 32), (24, 96, 96), (384, 384))


def matrices(names: tuple[str, ...] = tuple(SQUARE), shapes: tuple = MATRICES) -> None:
    for shape in shapes:

        def matrix(shape: Any = shape) -> tuple:
            x = torch.eye(shape[-1], device="cuda").expand(shape).contiguous() * 2 + 0.01
            return (x.requires_grad_(),)

        for name in names:
            both_ways(f"{name}.{'x'.join(map(str, shape))}", matrix, SQUARE[name])


def integers() -> None:
    for name, function in WHOLE.items():
        record(f"int.{name}", lambda: (torch.arange(300 * 516, device="cuda").view(300, 516) % 516,), function)
        record(f"int_few.{name}", lambda: (torch.arange(300 * 516, device="cuda").view(300, 516) % 3,), function)


class Quantized(nn.Module):
    """Layers of bitsandbytes."""

    def __init__(self, kind: str, dtype: torch.dtype, **options: Any) -> None:
        super().__init__()
        import bitsandbytes as bnb

        if kind == "int8":
            self.layer = bnb.nn.Linear8bitLt(512, 768, bias=True, has_fp16_weights=False, **options)
            self.layer.weight = bnb.nn.Int8Params(
                torch.zeros(768, 512, dtype=dtype), requires_grad=False, has_fp16_weights=False
            )
        else:
            self.layer = bnb.nn.Linear4bit(512, 768, bias=True, compute_dtype=dtype, quant_type=kind, **options)
            self.layer.weight = bnb.nn.Params4bit(
                torch.zeros(768, 512), requires_grad=False, quant_type=kind, **options
            )


def quantized(kind: str, dtype: torch.dtype) -> None:
    with contextlib.suppress(ImportError):
        import bitsandbytes  # noqa: F401  # not everywhere
    if "bitsandbytes" not in sys.modules:
        return
    settings: dict[str, tuple[str, dict[str, Any]]] = {
        "nf4": ("nf4", {}),
        "nf4_single": ("nf4", {"compress_statistics": False}),
        "fp4": ("fp4", {}),
        "int8": ("int8", {}),
        "int8_outliers": ("int8", {"threshold": 6.0}),
    }
    for name, (layer, options) in settings.items():
        record(f"bnb.{name}.{kind}.made", lambda a=layer, o=options: (Quantized(a, dtype, **o),), lambda m: m.cuda())
        for rows in ((1, 512), (1, 1, 512), (5, 512), (2, 130, 512)):

            def made(a: str = layer, o: Any = options, rows: Any = rows) -> tuple:
                return Quantized(a, dtype, **o).cuda().layer, zeros(*rows, dtype=dtype, grad=True)

            both_ways(f"bnb.{name}.{kind}.{'x'.join(map(str, rows))}", made, lambda m, x: m(x))

            def ungraded(m: Any, x: torch.Tensor) -> torch.Tensor:
                with torch.no_grad():
                    result: torch.Tensor = m(x)
                    return result

            record(f"bnb.{name}.{kind}.{'x'.join(map(str, rows))}/no_grad", made, ungraded)


def optimizers(kind: str, dtype: torch.dtype) -> None:
    makers: dict[str, Callable[[list], torch.optim.Optimizer]] = {
        "adam_capturable_ams": lambda p: torch.optim.Adam(p, capturable=True, amsgrad=True),
        "adamw_fused_ams": lambda p: torch.optim.AdamW(p, fused=True, amsgrad=True),
        "adagrad_fused_decay": lambda p: torch.optim.Adagrad(p, 0.1, weight_decay=0.1),
        "adamax_loop": lambda p: torch.optim.Adamax(p, foreach=False),
        "radam_decoupled": lambda p: torch.optim.RAdam(p, weight_decay=0.1, decoupled_weight_decay=True),
        "radam_loop": lambda p: torch.optim.RAdam(p, foreach=False),
        "nadam_decoupled": lambda p: torch.optim.NAdam(p, weight_decay=0.1, decoupled_weight_decay=True),
        "asgd_loop": lambda p: torch.optim.ASGD(p, foreach=False),
        "rprop_loop": lambda p: torch.optim.Rprop(p, foreach=False),
        "rmsprop_loop": lambda p: torch.optim.RMSprop(p, momentum=0.9, centered=True, foreach=False),
        "rmsprop_capturable": lambda p: torch.optim.RMSprop(p, capturable=True),
        "adadelta_loop": lambda p: torch.optim.Adadelta(p, foreach=False),
        "sgd_maximize": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, maximize=True),
        "sgd_loop": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True, foreach=False),
        "adafactor_foreach": lambda p: torch.optim.Adafactor(p, foreach=True),
        "adam_tensor_rate": lambda p: torch.optim.Adam(p, lr=torch.tensor(1e-3)),
        "adam_maximize": lambda p: torch.optim.Adam(p, maximize=True, weight_decay=0.1),
    }
    makers |= of_bitsandbytes(
        "Adam", "AdamW32bit", "Lion32bit", "AdEMAMix", "PagedAdEMAMix8bit", "LARS", "LAMB", "SGD", "RMSprop", "Adagrad",
        "PagedAdam", "PagedLion",
    )  # fmt: skip
    sizes = ((1024, 512), (512,), (1000, 64), (64, 64, 3))
    for name, make in makers.items():
        if name in {"bnb.LARS", "bnb.SGD", "bnb.RMSprop"}:
            rule = name.removeprefix("bnb.")

            def make(p: list, rule: str = rule) -> torch.optim.Optimizer:
                import bitsandbytes as bnb

                result: torch.optim.Optimizer = getattr(bnb.optim, rule)(p, lr=1e-3, momentum=0.9)
                return result

        record(f"opt.{name}.{kind}", lambda make=make: trained(make, sizes, dtype), two_steps)

    def scaled(parameters: list, optimizer: torch.optim.Optimizer) -> Any:
        scaler = torch.amp.GradScaler("cuda")
        scaler.scale(torch.zeros((), device="cuda"))
        for _ in range(3):
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(parameters, 1.0)
            scaler.step(optimizer)
            scaler.update()
        return scaler

    def clipped() -> tuple:
        return trained(torch.optim.Adam, sizes, dtype)

    if dtype is torch.float32:
        record("scaler.f32", clipped, scaled)
        fused = lambda: trained(lambda p: torch.optim.AdamW(p, fused=True), sizes, dtype)  # noqa: E731  # as above
        record("scaler.fused.f32", fused, scaled)
    for order in (1.0, float("inf"), 3.0):
        record(f"clip_norm.{order}.{kind}", clipped, lambda p, _o, n=order: nn.utils.clip_grad_norm_(p, 1.0, n))
    record(f"clip_norm.loop.{kind}", clipped, lambda p, _o: nn.utils.clip_grad_norm_(p, 1.0, foreach=False))
    record(f"total_norm.{kind}", clipped, lambda p, _o: nn.utils.get_total_norm([q.grad for q in p]))
    record(f"to_vector.{kind}", clipped, lambda p, _o: nn.utils.parameters_to_vector(p))


FACTS = (
    *(
        "rfft",
        "rfft_512",
        "irfft",
        "fft2_fnet",
        "unfold_rows",
        "cdist_one",
        "boolean_index",
        "scatter_reduce",
        "index_two",
    ),
    *("embedding_bag", "embedding_scaled", "huber", "multi_margin", "weight_norm"),
)
"""Of `ROWS`, what had to be mended once: these run with every test."""
WHOLE_FACTS = ("unique_inverse", "repeat_interleave", "multinomial_again", "randperm_small", "masked_scatter")


def facts() -> None:
    for kind, dtype in DTYPES.items():
        for name in FACTS:
            both_ways(f"{name}.{kind}", lambda d=dtype: (zeros(300, 516, dtype=d, grad=True),), ROWS[name])
    for name in WHOLE_FACTS:
        record(f"int.{name}", lambda: (torch.arange(300 * 516, device="cuda").view(300, 516) % 516,), WHOLE[name])
    matrices(("inverse", "solve", "solve_ex", "triangular", "det", "slogdet"))
    for rows in (4, 8):
        record(f"sort.{rows}x16000", lambda n=rows: (zeros(n, 16_000),), lambda x: x.sort(-1)[1])
    attention("bf16", torch.bfloat16, ATTENDED[1:3])


def of_each(group: Callable[[str, torch.dtype], None], *kinds: str) -> None:
    for kind in kinds or DTYPES:
        group(kind, DTYPES[kind])


GROUPS: dict[str, Callable[[], None]] = {
    "ops": lambda: of_each(ops),
    "attention": lambda: of_each(attention),
    "quantized": lambda: of_each(quantized),
    "matrices": matrices,
    "integers": integers,
    "optimizers": lambda: of_each(optimizers, "f32", "bf16"),
}


def main(path: str, *groups: str) -> None:
    weight = nn.Parameter(zeros(64, 64))
    (weight @ weight).sum().backward()  # both threads have their handles afterwards
    F.linear(weight, weight, zeros(64)).sum().backward()
    for group in groups or GROUPS:
        name, *part = group.split(":")
        if part:
            attention(part[0], DTYPES[part[0]], ATTENDED[int(part[1]) :: int(part[2])], Path(path))
        else:
            GROUPS[name]()
    Path(path).write_text(json.dumps(FOUND), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
