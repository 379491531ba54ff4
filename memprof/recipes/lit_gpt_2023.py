"""The LoRA training step as lit-gpt ran it in September 2023, on today's litgpt package.

Model, order of work and lifetime of every Python name follow that script, because each of them is memory: the list of
logits lives until the step returns, a batch until the next one was made.
"""

from __future__ import annotations

import difflib
import gc
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from memprof.errors import CaptureError, UsageError
from memprof.recipes.batches import alpaca_batches, random_batches
from memprof.recipes.checkpointed_loss import checkpointed_loss
from memprof.recipes.checkpoints import available_memory, load_weights, model_config
from memprof.recipes.fixes import FIXES
from memprof.recipes.frozen_weights import halve_frozen
from memprof.recipes.loop import run_micro_steps
from memprof.recipes.optimizers import OPTIMIZERS, build_optimizer
from memprof.recipes.quantization import QUANTIZATIONS, quantized_linear
from memprof.simulate.host_weights import random_weights_cost_nothing

if TYPE_CHECKING:
    from memprof.capture.observer import Observer
    from memprof.recipes.batches import Batch

__all__ = ["PRECISIONS", "LitGpt2023"]

PRECISIONS: dict[str, tuple[torch.dtype, torch.dtype | None]] = {
    "32-true": (torch.float32, None),
    "16-true": (torch.float16, None),
    "bf16-true": (torch.bfloat16, None),
    "16-mixed": (torch.float32, torch.float16),
    "bf16-mixed": (torch.float32, torch.bfloat16),
}
"""Precision: dtype of the weights, dtype of autocast."""
SEED = 1337
"""lit-gpt's."""
LATER = ("matmul_4bit", "fabric_output", "fix", "cast_inputs", "checkpointed_loss", "half_frozen")
"""Fields that came after the first files were written: left out of `settings` at their defaults, as in those files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LitGpt2023:
    """One run: which model, how it is adapted and quantized, on what, for how long.

    Raises
    ------
    UsageError
        If a value is unknown or the values do not fit together; says which option and what is possible.
    """

    recipe: ClassVar[str] = "lit_gpt_2023"

    model: str = "pythia-70m"
    """Name that litgpt has a configuration for; with `checkpoint_dir` that directory's configuration is taken."""
    quant: str = "none"
    """One of `QUANTIZATIONS`."""
    precision: str = "16-mixed"
    """One of `PRECISIONS`."""
    optimizer: str = "adamw"
    """One of `OPTIMIZERS`."""
    mbs: int = 1
    """Samples of a micro-batch."""
    seq: int = 1037
    """Tokens of a sample; with `data` the most that a sample may have."""
    steps: int = 2
    """Micro-steps of an optimizer cycle: all but the last accumulate gradients, the last ends in ``optimizer.step``."""
    cycles: int = 1
    """Optimizer cycles; from the second on the optimizer's state is there from the start."""
    lora_r: int = 8
    """Rank of the adapters; 0 adapts nothing."""
    lora_alpha: int = 16
    lora_dropout: float = 0.05
    lora_query: bool = True
    lora_key: bool = False
    lora_value: bool = True
    lora_projection: bool = False
    lora_mlp: bool = False
    lora_head: bool = False
    lm_head_chunk_size: int = 128
    """Tokens for which the output layer runs at a time, so that there is a list of logits; 0 for all at once."""
    cross_entropy_chunk_size: int = 128
    """Tokens over which the loss is taken at a time where there is no list of logits; 0 for all at once."""
    learning_rate: float = 3e-4
    weight_decay: float = 0.01
    checkpoint_dir: str | None = None
    """Directory with ``lit_model.pth``; None for random weights."""
    data: str | None = None
    """JSON file in Alpaca's format; None for random tokens."""
    tokenizer_dir: str | None = None
    """Directory of the tokenizer for `data`; `checkpoint_dir` if not given."""
    matmul_4bit: str | None = None
    """``2023`` for 4-bit layers that compute as bitsandbytes 0.41 did; None for those of the installed one."""
    fabric_output: bool = False
    """The model's output becomes float32 and the loss is taken outside of autocast, as Lightning Fabric has it."""
    fix: str | None = None
    """One of `memprof.recipes.fixes.FIXES`: the same run with a cause of memory taken away."""
    cast_inputs: bool = False
    """Quantized layers take autocast's dtype, and so return it."""
    half_frozen: bool = False
    """Frozen linear weights are stored in autocast's dtype, so that autocast does not cast them at every use."""
    checkpointed_loss: bool = False
    """Output layer and loss are computed chunk by chunk under checkpointing, so that no logits are kept."""

    def __post_init__(self) -> None:
        """Check what can be checked before anything is built."""
        _one_of("--quant", self.quant, QUANTIZATIONS)
        _one_of("--precision", self.precision, tuple(PRECISIONS))
        _one_of("--optimizer", self.optimizer, OPTIMIZERS)
        if self.matmul_4bit is not None:
            _one_of("--matmul-4bit", self.matmul_4bit, ("2023",))
            if not self.quant.startswith(("bnb.nf4", "bnb.fp4")):
                raise UsageError(f"--matmul-4bit {self.matmul_4bit}: is for 4-bit layers; --quant is {self.quant}")
        if self.fix is not None:
            _one_of("--fix", self.fix, tuple(FIXES))
        for option in ("mbs", "steps", "cycles"):
            if getattr(self, option) < 1:
                raise UsageError(f"--{option} {getattr(self, option)}: must be at least 1")
        if self.seq < 2:
            raise UsageError(f"--seq {self.seq}: must be at least 2, the loss needs a next token")
        for option in ("lm_head_chunk_size", "cross_entropy_chunk_size", "lora_r"):
            if getattr(self, option) < 0:
                raise UsageError(f"--{option.replace('_', '-')} {getattr(self, option)}: must not be negative")
        if not 0 <= self.lora_dropout < 1:
            raise UsageError(f"--lora-dropout {self.lora_dropout}: must be in [0, 1)")
        adapted = (self.lora_query, self.lora_key, self.lora_value, self.lora_projection, self.lora_mlp, self.lora_head)
        if not self.lora_r or not any(adapted):
            raise UsageError("nothing would be trained: give --lora-r at least 1 and adapt at least one of the layers")
        if self.data and not (self.tokenizer_dir or self.checkpoint_dir):
            raise UsageError(f"--data {self.data}: needs a tokenizer; give --tokenizer-dir or --checkpoint-dir")
        config = self.model_config()
        if self.fix == "checkpointed-loss" and getattr(config, "final_logit_softcapping", None):
            raise UsageError(f"--fix {self.fix}: {config.name} caps its logits, which this fix does not do")
        if self.seq > config.block_size:
            raise UsageError(f"--seq {self.seq}: {config.name} has a block size of {config.block_size}; give no more")

    @property
    def micro_steps(self) -> int:
        """Steps of the whole run."""
        return self.steps * self.cycles

    def settings(self) -> dict[str, Any]:
        """Return every field; of paths the last part only."""
        values = {name: value for name, value in asdict(self).items() if value or name not in LATER}
        for name in ("checkpoint_dir", "data", "tokenizer_dir"):
            if values[name] is not None:
                values[name] = Path(values[name]).name
        return values

    def model_config(self) -> Any:
        """Return litgpt's configuration object, with the LoRA options in it."""
        return model_config(
            self.model,
            self.checkpoint_dir,
            lora_r=self.lora_r,
            lora_alpha=self.lora_alpha,
            lora_dropout=self.lora_dropout,
            lora_query=self.lora_query,
            lora_key=self.lora_key,
            lora_value=self.lora_value,
            lora_projection=self.lora_projection,
            lora_mlp=self.lora_mlp,
            lora_head=self.lora_head,
        )

    def check(self, device: torch.device) -> None:
        """Refuse what cannot run on `device`, and a model whose weights the host cannot hold."""
        if device.type == "cpu" and self.optimizer in ("paged-adamw", "adamw8bit"):
            raise UsageError(f"--optimizer {self.optimizer}: bitsandbytes has it for CUDA only; give adamw or sgd")
        from litgpt.lora import GPT

        dtype, _ = PRECISIONS[self.precision]
        with torch.device("meta"):
            needed = sum(parameter.numel() for parameter in GPT(self.model_config()).parameters()) * dtype.itemsize
        unwritten = self.checkpoint_dir is None and random_weights_cost_nothing()
        free = available_memory()
        if not unwritten and free is not None and needed > free:
            raise CaptureError(
                f"--model {self.model}: its weights need {needed / 1e9:.1f} GB of host memory and {free / 1e9:.1f} GB "
                "are available; give a smaller model or a smaller --precision"
            )

    def build(self, device: torch.device, observer: Observer) -> torch.nn.Module:
        """Build the model on the host, load its weights if there are any, and move it to `device`."""
        from litgpt.lora import GPT, mark_only_lora_as_trainable

        dtype, _ = PRECISIONS[self.precision]
        before = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            with quantized_linear(self.quant, matmul_of_2023=self.matmul_4bit == "2023", cast_inputs=self.cast_inputs):
                model: torch.nn.Module = GPT(self.model_config())
        finally:
            torch.set_default_dtype(before)
        if self.checkpoint_dir:
            load_weights(model, self.checkpoint_dir)
        mark_only_lora_as_trainable(model)
        if self.half_frozen:
            halve_frozen(model, PRECISIONS[self.precision][1] or dtype)
        observer.watch(model)  # the move makes new storages, and may quantize
        model = model.to(device)
        if device.type == "cpu":
            # litgpt's LoRA layers replace plain ones, which bitsandbytes' parameters keep alive in cycles. A move to
            # another device leaves them behind on the host; here they would count as memory of the device.
            gc.collect()
        return model

    def run(self, device: torch.device, observer: Observer) -> object:
        """Build and train, telling `observer` what happens; return everything that is alive at the end."""
        if self.fix is not None:
            return FIXES[self.fix].change(self).run(device, observer)
        torch.manual_seed(SEED)
        with observer.phase("init", -1):
            model = self.build(device, observer)
            trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
            optimizer = build_optimizer(self.optimizer, trained, lr=self.learning_rate, weight_decay=self.weight_decay)
            scaler = torch.amp.GradScaler(device.type) if self.precision == "16-mixed" else None
            batches = self._batches(model.config.vocab_size, device)  # type: ignore[union-attr,arg-type]
            # Makes the rotary tables anew when the length differs from the model's own.
            model.max_seq_length = self.seq  # type: ignore[assignment]
            model.train()
            observer.watch(model, optimizer)
        alive = run_micro_steps(
            self.micro_steps,
            batches,
            lambda batch, number: self._step(model, optimizer, scaler, batch, number=number, observer=observer),
            observer,
        )
        return model, optimizer, scaler, *alive

    def _batches(self, vocabulary: int, device: torch.device) -> Any:
        if self.data is None:
            return random_batches(vocabulary, self.mbs, self.seq, device)
        tokenizer = self.tokenizer_dir or self.checkpoint_dir
        assert tokenizer is not None
        return alpaca_batches(Path(self.data), Path(tokenizer), self.mbs, self.seq, device)

    def _step(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        scaler: torch.amp.GradScaler | None,
        batch: Batch,
        *,
        number: int,
        observer: Observer,
    ) -> torch.Tensor:
        """Run one micro-step; the last of a cycle ends in ``optimizer.step``."""
        tokens, targets = batch
        _, autocast = PRECISIONS[self.precision]
        with observer.phase("forward", number):
            with torch.autocast(tokens.device.type, dtype=autocast, enabled=autocast is not None):
                if self.checkpointed_loss:
                    loss = checkpointed_loss(model, tokens, targets, chunk=self.lm_head_chunk_size or self.seq)
                else:
                    # The script had the logits by name in the scope that calls backward: they live until this returns.
                    loss, _logits = self._loss(model, tokens, targets, observer)
            observer.see("activations", "loss", (loss,))
        with observer.phase("backward", number):
            (scaler.scale(loss) if scaler else loss).backward()  # type: ignore[no-untyped-call]
        if (number + 1) % self.steps == 0:
            with observer.phase("optimizer", number):
                if scaler:
                    scaler.step(optimizer)
                    scaler.update()
                else:
                    optimizer.step()
                optimizer.zero_grad()
        return loss.detach()

    def _loss(
        self, model: torch.nn.Module, tokens: torch.Tensor, targets: torch.Tensor, observer: Observer
    ) -> tuple[torch.Tensor, object]:
        from litgpt.utils import chunked_cross_entropy

        logits = model(tokens, lm_head_chunk_size=self.lm_head_chunk_size)
        kind = tokens.device.type
        if self.fabric_output:
            # As Precision.convert_output: every chunk is converted before the first original goes.
            whole = torch.get_default_dtype()
            logits = [chunk.to(whole) for chunk in logits] if isinstance(logits, list) else logits.to(whole)
        observer.see("activations", "logits", logits if isinstance(logits, list) else (logits,))
        if isinstance(logits, list):
            logits[-1] = logits[-1][..., :-1, :]
        else:
            logits = logits[..., :-1, :]
        with torch.autocast(kind, enabled=torch.is_autocast_enabled(kind) and not self.fabric_output):
            loss: torch.Tensor = chunked_cross_entropy(
                logits, targets[..., 1:], chunk_size=self.cross_entropy_chunk_size
            )
        return loss, logits


def _one_of(option: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        close = difflib.get_close_matches(value, known, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise UsageError(f"{option} {value}: unknown; it can be {', '.join(known)}{hint}")
