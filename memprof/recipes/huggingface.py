"""LoRA and QLoRA with transformers and peft, on the models, batches and lengths of the other recipes.

The model is loaded with ``from_pretrained``, as users do, from a checkpoint directory; where none is given, one with
random weights is made from the configuration before the recording begins to matter, on the host.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from memprof.errors import UsageError
from memprof.recipes.batches import random_batches
from memprof.recipes.huggingface_models import lora_targets, save_random_checkpoint
from memprof.recipes.lit_gpt_2023 import PRECISIONS, SEED
from memprof.recipes.loop import run_micro_steps
from memprof.recipes.optimizers import OPTIMIZERS, build_optimizer
from memprof.recipes.settings import CommonSettings, one_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memprof.capture.observer import Observer
    from memprof.recipes.batches import Batch

__all__ = ["HuggingFace"]

QUANTIZATIONS = ("none", "bnb.nf4", "bnb.nf4-dq", "bnb.fp4", "bnb.fp4-dq", "bnb.int8")


@dataclass(frozen=True, slots=True, kw_only=True)
class HuggingFace(CommonSettings):
    """One run of a causal language model with peft's LoRA.

    Raises
    ------
    UsageError
        If a value is unknown or the values do not fit together; says which option and what is possible.
    """

    recipe: ClassVar[str] = "huggingface"

    gradient_checkpointing: bool = False
    """Checkpoint every layer (not reentrant)."""
    prepare_kbit: bool = False
    """Call ``peft.prepare_model_for_kbit_training``, also on a model that is not quantized."""

    def __post_init__(self) -> None:
        """Check what can be checked before anything is built."""
        self.check_common(quantizations=QUANTIZATIONS, precisions=PRECISIONS)
        one_of("--optimizer", self.optimizer, OPTIMIZERS)
        lora_targets(self)

    def check(self, device: torch.device) -> None:
        """Refuse what cannot run on `device`."""
        if device.type == "cpu" and self.optimizer in ("paged-adamw", "adamw8bit"):
            raise UsageError(f"--optimizer {self.optimizer}: bitsandbytes has it for CUDA only; give adamw or sgd")

    def run(self, device: torch.device, observer: Observer) -> object:
        """Build and train, telling `observer` what happens; return everything that is alive at the end."""
        torch.manual_seed(SEED)
        with ExitStack() as stack:
            with observer.phase("init", -1):
                directory = self.checkpoint_dir or stack.enter_context(tempfile.TemporaryDirectory())
                if not self.checkpoint_dir:
                    save_random_checkpoint(self, directory, PRECISIONS[self.precision][0])
                model = self._load(directory, device)
                observer.watch(model)
                trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
                optimizer = build_optimizer(
                    self.optimizer, trained, lr=self.learning_rate, weight_decay=self.weight_decay
                )
                scaler = torch.amp.GradScaler(device.type) if self.precision == "16-mixed" else None
                batches = random_batches(model.config.vocab_size, self.mbs, self.seq, device)
                model.train()
                observer.watch(model, optimizer)
            alive = run_micro_steps(
                self.micro_steps,
                batches,
                lambda batch, number: self._step(model, optimizer, scaler, batch, number=number, observer=observer),
                observer,
            )
        return model, optimizer, scaler, *alive

    def _load(self, directory: str, device: torch.device) -> Any:
        from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
        from transformers import AutoModelForCausalLM

        with _loading_here():
            model = AutoModelForCausalLM.from_pretrained(
                directory,
                dtype=PRECISIONS[self.precision][0],
                device_map={"": device},
                quantization_config=self._quantization(),
            )
        model.config.use_cache = False
        reentrant = {"use_reentrant": False}
        if self.prepare_kbit:
            model = prepare_model_for_kbit_training(
                model,
                use_gradient_checkpointing=self.gradient_checkpointing,
                gradient_checkpointing_kwargs=reentrant,
            )
        elif self.gradient_checkpointing:
            model.gradient_checkpointing_enable(reentrant)
            model.enable_input_require_grads()
        adapters = LoraConfig(
            r=self.lora_r,
            lora_alpha=self.lora_alpha,
            lora_dropout=self.lora_dropout,
            target_modules=lora_targets(self),
            task_type="CAUSAL_LM",
        )
        return get_peft_model(model, adapters)

    def _quantization(self) -> Any:
        if self.quant == "none":
            return None
        from transformers import BitsAndBytesConfig

        kind, _, double = self.quant.removeprefix("bnb.").partition("-")
        if kind == "int8":
            return BitsAndBytesConfig(load_in_8bit=True)
        whole, autocast = PRECISIONS[self.precision]
        return BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type=kind,
            bnb_4bit_use_double_quant=bool(double),
            bnb_4bit_compute_dtype=autocast or whole,
        )

    def _step(
        self, model: Any, optimizer: Any, scaler: Any, batch: Batch, *, number: int, observer: Observer
    ) -> torch.Tensor:
        tokens, targets = batch
        _, autocast = PRECISIONS[self.precision]
        with observer.phase("forward", number):
            with torch.autocast(tokens.device.type, dtype=autocast, enabled=autocast is not None):
                output = model(input_ids=tokens, labels=targets)
            loss: torch.Tensor = output.loss
            observer.see("activations", "logits", (output.logits,))
            observer.see("activations", "loss", (loss,))
        with observer.phase("backward", number):
            scaled = loss / self.steps
            (scaler.scale(scaled) if scaler else scaled).backward()
        if (number + 1) % self.steps == 0:
            with observer.phase("optimizer", number):
                if scaler:
                    scaler.step(optimizer)
                    scaler.update()
                else:
                    optimizer.step()
                optimizer.zero_grad()
        return loss.detach()


@contextmanager
def _loading_here() -> Iterator[None]:
    """Let transformers load weights on this thread: the profiler does not see the allocations of its thread pool."""
    name = "HF_DEACTIVATE_ASYNC_LOAD"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
