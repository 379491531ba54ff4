"""Small real training runs on the CPU, recorded by memprof's own capture, for the tests of findings."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import nn

from memprof.analysis.account import open_account
from memprof.analysis.findings import find_all
from memprof.capture import capture
from memprof.trace import load

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from memprof.analysis.account import DeviceAccount
    from memprof.analysis.findings import Finding

TOKENS, WIDTH, VOCABULARY = 64, 64, 32
MBS = 4


@dataclass(frozen=True, kw_only=True)
class Loop:
    """A training loop as somebody writes it. It is a recipe: memprof's capture can run it."""

    recipe: ClassVar[str] = "loop"

    model: Callable[[], nn.Module]
    steps: int = 2
    autocast: torch.dtype | None = None
    optimizer: Callable[[Any], torch.optim.Optimizer] = lambda trained: torch.optim.SGD(trained, lr=0.01)
    mode: str = "train"
    evaluate: int = 0
    """Samples of an evaluation after the last step, whose outputs are collected; 0 for none."""
    keep: str = "nothing"
    """nothing; previous (output and loss until the next ones are made); outputs (of every step); two (of the last)."""
    between: Callable[[nn.Module, int], None] | None = None
    """Called before each step."""
    config: dict[str, Any] = field(default_factory=dict)

    @property
    def micro_steps(self) -> int:
        return self.steps

    def settings(self) -> dict[str, Any]:
        return {"mbs": MBS, **self.config}

    def check(self, device) -> None:
        pass

    def run(self, device, observer):
        torch.manual_seed(0)
        kept: list[Any] = []
        with observer.phase("init", -1):
            model = self.model().to(device)
            getattr(model, self.mode)()
            trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
            optimizer = self.optimizer(trained)
            observer.watch(model, optimizer)
        for number in range(self.steps):
            if self.between is not None:
                self.between(model, number)
            with observer.phase("between", number):
                tokens = torch.randint(0, VOCABULARY, (MBS, TOKENS))
                observer.see("inputs", "tokens", (tokens,))
            with observer.step(number):
                output, loss = self.step(model, tokens, observer, number)
                with observer.phase("optimizer", number):
                    optimizer.step()
                    optimizer.zero_grad()
            if self.keep in ("outputs", "two"):
                kept.append(output.detach())
            if self.keep == "two":
                del kept[:-2]
            if self.keep != "previous":
                del output, loss
            observer.end_step(number)
        if self.evaluate:
            outputs = []
            with observer.phase("eval", self.steps - 1), torch.no_grad():
                outputs.extend(model(torch.randint(0, VOCABULARY, (MBS, TOKENS))) for _ in range(self.evaluate))
            kept.append(outputs)
        return model, optimizer, kept

    def step(self, model, tokens, observer, number):
        with observer.phase("forward", number):
            around = contextlib.nullcontext()
            if self.autocast is not None:
                around = torch.autocast("cpu", dtype=self.autocast)
            with around:
                output = model(tokens)
                if model.wide is not None and not isinstance(model, CheckpointedLoss):
                    observer.see("activations", "logits", (output,))
                loss = output.float().pow(2).mean() if model.wide is None else model.loss(output, tokens)
        with observer.phase("backward", number):
            loss.backward()
        return output, loss


class Model(nn.Module):
    """Embedding, blocks of (norm, up, gelu, down) with a residual, and an output layer of `wide` outputs if given."""

    def __init__(self, *, up, down, wide=None, dropout=0.0, dtype=None, checkpoint=None, upcast=False) -> None:
        super().__init__()
        self.wide, self.checkpoint, self.upcast = wide, checkpoint, upcast
        self.embed = nn.Embedding(wide or VOCABULARY, WIDTH, dtype=dtype)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(WIDTH, dtype=dtype), up(), nn.GELU(), nn.Dropout(dropout), down())
            for _ in range(3)
        )
        self.adapter = nn.Linear(WIDTH, WIDTH, dtype=dtype)
        self.head = nn.Linear(WIDTH, wide, dtype=dtype) if wide else nn.Identity()

    def forward(self, tokens):
        x = self.embed(tokens)
        x = x + self.adapter(x)
        for block in self.blocks:
            if self.checkpoint is not None and self.training:
                x = x + torch.utils.checkpoint.checkpoint(block, x, use_reentrant=self.checkpoint == "reentrant")
            else:
                x = x + block(x)
        return self.head(x).float() if self.upcast else self.head(x)

    def loss(self, output, tokens):
        return nn.functional.cross_entropy(output.flatten(0, 1), tokens.flatten())

    def freeze(self):
        """Train the adapter only."""
        for name, parameter in self.named_parameters():
            parameter.requires_grad_(requires_grad=name.startswith("adapter"))
        return self


class CheckpointedLoss(Model):
    """The same model, whose output layer and loss keep nothing and are computed anew in backward."""

    def forward(self, tokens):
        head, self.head = self.head, nn.Identity()
        try:
            return super().forward(tokens)
        finally:
            self.head = head

    def loss(self, output, tokens):
        def of_logits(hidden, targets):
            return nn.functional.cross_entropy(self.head(hidden).flatten(0, 1), targets.flatten())

        return torch.utils.checkpoint.checkpoint(of_logits, output, tokens, use_reentrant=False)


def with_checkpointed_loss(make):
    def made():
        model = make()
        model.__class__ = CheckpointedLoss
        return model

    return made


def plain(*, dtype=None, freeze=False, **options):
    def make():
        model = Model(
            up=lambda: nn.Linear(WIDTH, 4 * WIDTH, dtype=dtype),
            down=lambda: nn.Linear(4 * WIDTH, WIDTH, dtype=dtype),
            dtype=dtype,
            **options,
        )
        return model.freeze() if freeze else model

    return make


def quantized(linear=None, *, dtype=None, compute=torch.bfloat16, **options):
    """As `plain`, with 4-bit layers in the blocks (of the class that `linear` returns); only the adapter is trained."""

    def make():
        from bitsandbytes.nn import Linear4bit

        kind = linear() if linear else Linear4bit
        return Model(
            up=lambda: kind(WIDTH, 4 * WIDTH, compute_dtype=compute, quant_type="nf4"),
            down=lambda: kind(4 * WIDTH, WIDTH, compute_dtype=compute, quant_type="nf4"),
            dtype=dtype,
            **options,
        ).freeze()

    return make


def account_of(loop: Loop, folder: Path, **options) -> DeviceAccount:
    path = folder / "run.pickle"
    capture(loop, output=path, device="cpu", **options)
    trace = load(path)
    (device,) = trace.devices
    return open_account(trace, device)


def found_in(loop: Loop, folder: Path, **options) -> dict[str, Finding]:
    return {finding.id: finding for finding in find_all(account_of(loop, folder, **options))}


def dequantizing_linear():
    """A 4-bit layer that multiplies by a dequantized copy, which autograd then saves."""
    import bitsandbytes

    class Dequantizing(bitsandbytes.nn.Linear4bit):
        def forward(self, x):
            weight = bitsandbytes.functional.dequantize_4bit(self.weight.data, self.weight.quant_state)
            return nn.functional.linear(x.to(self.compute_dtype), weight.to(self.compute_dtype)).to(x.dtype)

    return Dequantizing


def casting_linear():
    """A 4-bit layer that takes, and so returns, the dtype that it computes in."""
    import bitsandbytes

    class Casting(bitsandbytes.nn.Linear4bit):
        def forward(self, x):
            return super().forward(x.to(self.compute_dtype))

    return Casting


def input_keeping_linear():
    """A 4-bit layer that keeps its input on the ctx of its Function, as bitsandbytes did in 2023."""
    import bitsandbytes

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, packed, state):
            ctx.tensors, ctx.state = (x, packed), state
            return x @ bitsandbytes.functional.dequantize_4bit(packed, state).to(x.dtype).t()

        @staticmethod
        def backward(ctx, gradient):
            weight = bitsandbytes.functional.dequantize_4bit(ctx.tensors[1], ctx.state)
            return gradient @ weight.to(gradient.dtype), None, None

    class Keeping(bitsandbytes.nn.Linear4bit):
        def forward(self, x):
            return Product.apply(x.to(self.compute_dtype), self.weight, self.weight.quant_state).to(x.dtype)

    return Keeping
