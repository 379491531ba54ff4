"""Recurrent networks, which cuDNN computes; made, recorded and compared as in ``probes.py``.

On a machine with a GPU, ``python tests/simulate/recurrent_probes.py OUT.json [f32|f16|bf16]``.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

sys.path.insert(0, str(Path(__file__).parent))
from probes import DTYPES, FOUND, record, zeros

KINDS = {
    "lstm": nn.LSTM,
    "gru": nn.GRU,
    "tanh": nn.RNN,
    "relu": lambda *sizes, **options: nn.RNN(*sizes, nonlinearity="relu", **options),
}
BASE = (64, 96, 1, False, 16, 20)
"""Width of the input, hidden width, layers, whether both ways, batch, steps."""
DROPPED = 0.3


def both(
    name: str,
    kind: str,
    sizes: tuple,
    dtype: torch.dtype,
    *,
    packed: bool = False,
    state: bool = False,
    **options: float,
) -> None:
    """Record what a network takes when it is made, forward in training and evaluation, and backward."""
    width, hidden, layers, ways, batch, steps = sizes

    def build() -> nn.Module:
        module = KINDS[kind](width, hidden, layers, bidirectional=bool(ways), **options)
        return module.to(dtype).cuda()

    record(f"{name}/make", lambda: (), build)

    def source() -> tuple:
        first = options.get("batch_first", False)
        x = zeros(batch, steps, width, dtype=dtype) if first else zeros(steps, batch, width, dtype=dtype)
        x.requires_grad_()
        lengths = torch.linspace(steps // 2, steps, batch).long().flip(0)
        given: tuple = (pack_padded_sequence(x, lengths, batch_first=bool(first)),) if packed else (x,)
        if state:
            rows = layers * (2 if ways else 1)
            h = zeros(rows, batch, hidden, dtype=dtype, grad=True)
            given += ((h, zeros(rows, batch, hidden, dtype=dtype, grad=True)) if kind == "lstm" else h,)
        return given

    def ready(*, train: bool) -> tuple:
        return build().train(train), source()

    def forward(module: nn.Module, given: tuple) -> object:
        return module(*given)

    def run_before() -> tuple:
        module, given = ready(train=True)
        found = module(*given)[0]
        found = found.data if packed else found
        return found, torch.ones_like(found), module, given

    def evaluate(module: nn.Module, given: tuple) -> object:
        with torch.no_grad():
            return module(*given)

    record(f"{name}/fwd", lambda: ready(train=True), forward)
    record(f"{name}/eval", lambda: ready(train=False), evaluate)
    record(f"{name}/bwd", run_before, lambda y, g, *_others: torch.autograd.backward([y], [g]))


def main(kinds: list[str]) -> None:
    """Vary one size after the other, then all of them."""
    for dtype_name in kinds:
        dtype = DTYPES[dtype_name]
        for kind in KINDS:
            cases = [BASE]
            for place, values in enumerate(
                (
                    (1, 3, 8, 32, 65, 128, 200, 256, 512, 1024),
                    (1, 3, 8, 32, 65, 128, 200, 256, 512, 650, 1024),
                    (2, 3, 4),
                    (True,),
                    (1, 2, 5, 8, 32, 64, 100, 128, 256),
                    (1, 2, 5, 40, 64, 100, 200),
                )
            ):
                cases += [(*BASE[:place], value, *BASE[place + 1 :]) for value in values]
            draw = random.Random(7)
            for _ in range(60 if kind in ("lstm", "gru") else 12):
                cases.append(
                    (
                        draw.choice((16, 40, 80, 100, 128, 256, 300, 400, 512)),
                        draw.choice((32, 64, 100, 128, 200, 256, 300, 384, 512, 650, 768)),
                        draw.choice((1, 1, 2, 3)),
                        draw.random() < 0.4,
                        draw.choice((4, 16, 20, 32, 36, 64, 128)),
                        draw.choice((10, 25, 35, 50, 100, 128)),
                    )
                )
            for sizes in cases:
                both(f"{kind}.{dtype_name}.{sizes}", kind, sizes, dtype)
            for sizes in (BASE, (100, 128, 2, True, 32, 50), (256, 200, 2, False, 20, 35)):
                for options in (
                    {"batch_first": True},
                    {"bias": False},
                    {"dropout": DROPPED},
                    {"state": True},
                    {"packed": True},
                    {"packed": True, "batch_first": True, "dropout": DROPPED},
                    {"proj_size": 32},
                ):
                    if "proj_size" not in options or kind == "lstm":
                        words = ",".join(options)
                        both(f"{kind}.{dtype_name}.{sizes}.{words}", kind, sizes, dtype, **options)


if __name__ == "__main__":
    main(sys.argv[2:] or list(DTYPES))
    Path(sys.argv[1]).write_text(json.dumps({"torch": torch.__version__, "probes": FOUND}), encoding="utf-8")
