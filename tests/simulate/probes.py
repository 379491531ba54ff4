"""Allocations of single ops. The same program runs on a real device and on a simulated one.

On a machine with a GPU, ``python tests/simulate/probes.py OUT.json`` writes what the test compares with: for each probe
the sizes that the allocator was asked for, in order.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812  # the name that everybody gives it
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

if TYPE_CHECKING:
    from collections.abc import Callable

DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
FOUND: dict[str, list[int] | str] = {}


def zeros(*size: int, dtype: torch.dtype = torch.float32, grad: bool = False) -> torch.Tensor:
    return torch.zeros(*size, device="cuda", dtype=dtype).requires_grad_(grad)


def record(name: str, setup: Callable[[], tuple], run: Callable[..., Any]) -> None:
    try:
        state = setup()
        torch.cuda.synchronize()
        torch.cuda.memory._record_memory_history(context=None, max_entries=100_000, clear_history=True)
        kept = run(*state)
        torch.cuda.synchronize()
        trace = torch.cuda.memory._snapshot()["device_traces"][0]
        FOUND[name] = [entry["size"] for entry in trace if entry["action"] == "alloc"]
        del kept, state
    except Exception as error:  # noqa: BLE001  # what an op says where it does not run is a result too
        FOUND[name] = str(error)[:60]
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)


def both_ways(name: str, setup: Callable[[], tuple], forward: Callable[..., torch.Tensor]) -> None:
    """Record the forward pass, and the backward pass of an output whose gradient is there."""

    def with_gradient() -> tuple:
        state = setup()
        output = forward(*state)
        return output, torch.ones_like(output), state

    record(f"{name}/fwd", setup, forward)
    record(f"{name}/bwd", with_gradient, lambda y, g, _state: torch.autograd.backward([y], [g]))


def norms(kind: str, dtype: torch.dtype) -> None:
    for rows, length in ((64, 512), (16592, 512), (4096, 4096), (70000, 256), (200000, 64)):

        def weighted(rows: int = rows, length: int = length) -> tuple:
            return (*(zeros(*s, dtype=dtype, grad=True) for s in ((rows, length), (length,), (length,))),)

        both_ways(f"layer_norm.{kind}.{rows}x{length}", weighted, lambda x, w, b: F.layer_norm(x, w.shape, w, b))
        both_ways(
            f"rms_norm.{kind}.{rows}x{length}", lambda w=weighted: w()[:2], lambda x, w: F.rms_norm(x, w.shape, w)
        )
    for batch, channels, side in ((8, 64, 56), (2, 32, 8)):

        def image(b: int = batch, c: int = channels, s: int = side) -> tuple:
            return zeros(b, c, s, s, dtype=dtype, grad=True), *(zeros(c, dtype=dtype, grad=True) for _ in range(2))

        both_ways(f"group_norm.{kind}.{batch}x{channels}x{side}", image, lambda x, w, b: F.group_norm(x, 8, w, b))
        if dtype is not torch.bfloat16:
            both_ways(
                f"batch_norm.{kind}.{batch}x{channels}x{side}.cl0",
                lambda i=image: (i()[0], *(zeros(i()[0].size(1), grad=g) for g in (True, True, False, False))),
                lambda x, w, b, m, v: F.batch_norm(x, m, v, w, b, True),
            )


def lookups(kind: str, dtype: torch.dtype) -> None:
    for items, (rows, width) in itertools.product((64, 3072, 3073, 4148), ((50304, 512), (1000, 64))):

        def table(items: int = items, rows: int = rows, width: int = width) -> tuple:
            return torch.randint(0, rows, (items,), device="cuda"), zeros(rows, width, dtype=dtype, grad=True)

        both_ways(f"embedding.{kind}.{items}.{rows}x{width}", table, F.embedding)


def losses(kind: str, dtype: torch.dtype) -> None:
    for (rows, classes), options in itertools.product(
        ((128, 50304), (16, 10)), ({}, {"reduction": "none"}, {"label_smoothing": 0.1}, {"reduction": "sum"})
    ):
        both_ways(
            f"cross_entropy.{kind}.{rows}x{classes}.{options}",
            lambda r=rows, c=classes: (
                zeros(r, c, dtype=dtype, grad=True),
                torch.randint(0, c, (r,), device="cuda"),
            ),
            lambda x, y, o=options: F.cross_entropy(x, y, **o),
        )


UNARY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "gelu": F.gelu,
    "silu": F.silu,
    "mish": F.mish,
    "dropout": lambda x: F.dropout(x, 0.1),
    "sum": torch.sum,
    "mean": torch.mean,
    "sum0": lambda x: x.sum(0),
    "sum1": lambda x: x.sum(1),
    "mean1": lambda x: x.mean(-1, keepdim=True),
    "var1": lambda x: x.var(-1),
    "std": torch.std,
    "norm": torch.norm,
    "max": torch.max,
    "amax0": lambda x: x.amax(0),
    "logsumexp": lambda x: torch.logsumexp(x, -1),
    "cumsum": lambda x: x.cumsum(-1),
    "powscalar": lambda x: 2.0**x,
    "sort": lambda x: x.sort(-1)[0],
    "index": lambda x: x[torch.arange(100, device="cuda")],
    "mse": lambda x: F.mse_loss(x, torch.zeros_like(x)),
    "linear3": lambda x: F.linear(x.view(8, -1, x.size(1)), x[:64], x[:64, 0]),
    "bmm": lambda x: torch.bmm(x[None, :, :256], x[None, :256]),
}
PLAIN: dict[str, Callable[[torch.Tensor], Any]] = {
    "any": lambda x: (x > 0).any(),
    "nonzero": lambda x: (x == 0).nonzero(),
    "masked_select": lambda x: x.masked_select(x == 0),
    "unique": lambda x: (x == 0).long().unique(),
    "bernoulli": torch.bernoulli,
    "cpu_t": lambda x: x.t().cpu(),
    "cpu_f": lambda x: x.to("cpu", torch.float64),
    "sortall": lambda x: x.flatten().sort()[0],
    "cumsumint": lambda x: (x == 0).cumsum(-1),
    "sumbool": lambda x: (x == 0).sum(),
    "var_mean": torch.var_mean,
    "randperm": lambda _x: torch.randperm(5000, device="cuda"),
    "foreach_norm": lambda x: torch._foreach_norm([x, x[0], x[:3]]),
}


def elementwise(kind: str, dtype: torch.dtype) -> None:
    for name, function in UNARY.items():
        both_ways(f"{name}.{kind}", lambda: (zeros(2048, 1037, dtype=dtype, grad=True),), function)
    for name, function in PLAIN.items():
        record(f"{name}.{kind}", lambda: (zeros(2048, 1037, dtype=dtype),), function)


BACKENDS = {
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "eff": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
    "auto": None,
}
SHAPES = ((4, 8, 8, 1037, 1037, 64), (2, 32, 4, 1024, 1024, 64), (2, 8, 8, 512, 512, 128), (2, 8, 8, 300, 500, 64))
SHAPES += ((2, 4, 4, 512, 512, 256), (2, 8, 8, 1, 300, 64), (2, 6, 6, 200, 200, 80), (2, 6, 6, 197, 197, 66))


def attention(kind: str, dtype: torch.dtype) -> None:
    modes = ("plain", "causal", "drop", "boolmask", "addmask", "layout")
    for (name, backend), shape, mode in itertools.product(BACKENDS.items(), SHAPES, modes):
        batch, heads, key_heads, rows, columns, size = shape
        if (mode == "causal" and rows != columns) or (mode not in ("plain", "causal") and size not in (64, 128)):
            continue

        def inputs(shape: tuple[int, ...] = shape, mode: str = mode) -> tuple:
            batch, heads, key_heads, rows, columns, size = shape
            tensors = []
            for count, length in ((heads, rows), (key_heads, columns), (key_heads, columns)):
                order = (batch, length, count, size) if mode == "layout" else (batch, count, length, size)
                tensor = zeros(*order, dtype=dtype, grad=True)
                tensors.append(tensor.transpose(1, 2) if mode == "layout" else tensor)
            mask = {
                "boolmask": lambda: torch.ones(batch, 1, rows, columns, device="cuda", dtype=torch.bool),
                "addmask": lambda: zeros(batch, 1, rows, columns, dtype=dtype),
            }.get(mode, lambda: None)()
            return *tensors, mask

        def attend(q: Any, k: Any, v: Any, m: Any, *, backend: Any = backend, mode: str = mode) -> torch.Tensor:
            with contextlib.nullcontext() if backend is None else sdpa_kernel(backend):
                return F.scaled_dot_product_attention(
                    q,
                    k,
                    v,
                    m,
                    dropout_p=0.125 if mode == "drop" else 0.0,
                    is_causal=mode == "causal",
                    enable_gqa=q.size(1) != k.size(1),
                )

        shown = "x".join(map(str, (batch, heads, key_heads, rows, columns, size)))
        both_ways(f"sdpa.{name}.{kind}.{shown}.{mode}", inputs, attend)


OPTIMIZERS: dict[str, Callable[[list], torch.optim.Optimizer]] = {
    "adamw": torch.optim.AdamW,
    "adamw_loop": lambda p: torch.optim.AdamW(p, foreach=False),
    "adamw_fused": lambda p: torch.optim.AdamW(p, fused=True),
    "adamw_ams": lambda p: torch.optim.AdamW(p, amsgrad=True),
    "adamw_cap": lambda p: torch.optim.AdamW(p, capturable=True),
    "sgdm": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.1),
    "rmsprop": lambda p: torch.optim.RMSprop(p, momentum=0.9),
    "adagrad": torch.optim.Adagrad,
    "adafactor": torch.optim.Adafactor,
}


def trained(make: Callable, sizes: tuple, dtype: torch.dtype) -> tuple:
    """Parameters with gradients, and their optimizer."""
    parameters = [zeros(*size, dtype=dtype, grad=True) for size in sizes]
    optimizer = make(parameters)
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    return parameters, optimizer


def two_steps(_parameters: list, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    for _ in range(2):
        optimizer.step()
    optimizer.zero_grad()
    return optimizer


def of_bitsandbytes(*names: str) -> dict[str, Callable]:
    """Makers of bitsandbytes' optimizers; none where it is not installed."""
    with contextlib.suppress(ImportError):
        import bitsandbytes as bnb

        return {f"bnb.{name}": lambda p, n=name: getattr(bnb.optim, n)(p, lr=1e-3) for name in names}
    return {}


def optimizers(kind: str, dtype: torch.dtype) -> None:
    sizes = ((1024, 512), (512,), (1000, 64), (64, 64, 3, 3))
    quantized = of_bitsandbytes("AdamW8bit", "PagedAdamW8bit", "PagedAdamW32bit", "Lion8bit")
    for name, make in {**OPTIMIZERS, **quantized}.items():
        record(f"opt.{name}.{kind}", lambda make=make: trained(make, sizes, dtype), two_steps)


def main(path: str) -> None:
    weight = nn.Parameter(zeros(64, 64))
    (weight @ weight).sum().backward()  # both threads have their handles afterwards
    F.linear(weight, weight, zeros(64)).sum().backward()
    for kind, dtype in DTYPES.items():
        for group in (norms, lookups, losses, elementwise, attention):
            group(kind, dtype)
    for kind in ("f32", "bf16"):
        optimizers(kind, DTYPES[kind])
    Path(path).write_text(json.dumps(FOUND), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
