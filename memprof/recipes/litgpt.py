"""``litgpt finetune_lora`` as it is today: Lightning Fabric, its bitsandbytes plugin, a stable embedding, paged AdamW.

Model, order of work and lifetime of every name follow ``litgpt/finetune/lora.py``. Data, logging and evaluation are not
in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MethodType
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from memprof.errors import UsageError
from memprof.recipes.batches import random_batches
from memprof.recipes.checkpoints import load_weights, model_config
from memprof.recipes.lit_gpt_2023 import PRECISIONS, SEED
from memprof.recipes.loop import run_micro_steps
from memprof.recipes.optimizers import build_optimizer
from memprof.recipes.quantization import QUANTIZATIONS
from memprof.recipes.settings import CommonSettings, one_of

if TYPE_CHECKING:
    from memprof.capture.observer import Observer
    from memprof.recipes.batches import Batch

__all__ = ["LitGpt"]

BITSANDBYTES_OPTIMIZERS = ("paged-adamw", "adamw8bit")


@dataclass(frozen=True, slots=True, kw_only=True)
class LitGpt(CommonSettings):
    """One run of today's litgpt.

    Quantized runs take the optimizer ``paged-adamw``, as litgpt does, unless ``adamw8bit`` is asked for.

    Raises
    ------
    UsageError
        If a value is unknown or the values do not fit together; says which option and what is possible.
    """

    recipe: ClassVar[str] = "litgpt"

    lm_head_chunk_size: int = 128
    """Tokens for which the output layer runs at a time; 0 for all at once."""
    cross_entropy_chunk_size: int = 128
    matmul_4bit: str | None = None
    """``2023`` for 4-bit layers that compute as bitsandbytes 0.41 did; None for those of the installed one."""

    def __post_init__(self) -> None:
        """Check what can be checked before anything is built."""
        self.check_common(quantizations=QUANTIZATIONS, precisions=PRECISIONS)
        one_of("--optimizer", self.optimizer, ("adamw", *BITSANDBYTES_OPTIMIZERS))
        if self.quant != "none" and self.precision.endswith("mixed"):
            raise UsageError(
                f"--precision {self.precision}: litgpt refuses mixed precision with quantization; give bf16-true"
            )
        if self.quant == "bnb.int8-training" and self.precision != "16-true":
            raise UsageError(f"--precision {self.precision}: {self.quant} works in 16-true only")
        if self.matmul_4bit is not None:
            one_of("--matmul-4bit", self.matmul_4bit, ("2023",))
            if not self.quant.startswith(("bnb.nf4", "bnb.fp4")):
                raise UsageError(f"--matmul-4bit {self.matmul_4bit}: is for 4-bit layers; --quant is {self.quant}")
        config = model_config(self.model, self.checkpoint_dir, **self.lora())
        if self.seq > config.block_size:
            raise UsageError(f"--seq {self.seq}: {config.name} has a block size of {config.block_size}; give no more")

    def settings(self) -> dict[str, Any]:
        """Return every field, ``matmul_4bit`` only where it is set; of paths the last part only."""
        values = CommonSettings.settings(self)
        return {name: value for name, value in values.items() if value is not None or name != "matmul_4bit"}

    def check(self, device: torch.device) -> None:
        """Refuse what cannot run on `device`."""
        if device.type == "cpu" and (self.quant != "none" or self.optimizer in BITSANDBYTES_OPTIMIZERS):
            raise UsageError(f"--quant {self.quant}: this recipe's bitsandbytes optimizers run on CUDA only")

    def run(self, device: torch.device, observer: Observer) -> object:
        """Build and train, telling `observer` what happens; return everything that is alive at the end."""
        fabric = self._fabric(device)
        torch.manual_seed(SEED)
        with observer.phase("init", -1):
            model, optimizer = self._build(fabric, observer)
            batches = random_batches(model.config.vocab_size, self.mbs, self.seq, device)
            model.max_seq_length = self.seq
            model.train()
            observer.watch(model.module, optimizer)
        alive = run_micro_steps(
            self.micro_steps,
            batches,
            lambda batch, number: self._step(fabric, model, optimizer, batch, number=number, observer=observer),
            observer,
        )
        return model, optimizer, *alive

    def _fabric(self, device: torch.device) -> Any:
        from lightning.fabric import Fabric
        from lightning.fabric.plugins import BitsandbytesPrecision

        if self.quant == "none":
            return Fabric(accelerator=device.type, devices=1, precision=self.precision)
        plugin = BitsandbytesPrecision(self.quant.removeprefix("bnb."), PRECISIONS[self.precision][0])
        return Fabric(accelerator=device.type, devices=1, plugins=plugin)

    def _build(self, fabric: Any, observer: Observer) -> tuple[Any, Any]:
        from litgpt.lora import GPT, mark_only_lora_as_trainable

        with fabric.init_module(empty_init=False):
            model = GPT(model_config(self.model, self.checkpoint_dir, **self.lora()))
        mark_only_lora_as_trainable(model)
        if self.matmul_4bit is not None:
            _compute_as_in_2023(model)
        observer.watch(model)
        model = fabric.setup_module(model)
        observer.watch(model.module)
        name = self.optimizer
        if self.quant != "none" and name not in BITSANDBYTES_OPTIMIZERS:
            name = "paged-adamw"
        parameters = list(model.parameters())
        optimizer = build_optimizer(name, parameters, lr=self.learning_rate, weight_decay=self.weight_decay)
        if self.quant != "none":
            # After the optimizer was made, as there: the new embedding requires grad, and nothing ever clears it.
            _stable_embedding(model)
        optimizer = fabric.setup_optimizers(optimizer)
        if self.checkpoint_dir:
            load_weights(model.module, self.checkpoint_dir)
        return model, optimizer

    def _step(
        self,
        fabric: Any,
        model: Any,
        optimizer: Any,
        batch: Batch,
        *,
        number: int,
        observer: Observer,
    ) -> torch.Tensor:
        from litgpt.utils import chunked_cross_entropy

        tokens, targets = batch
        stepping = (number + 1) % self.steps == 0
        with observer.phase("forward", number):
            logits = model(tokens, lm_head_chunk_size=self.lm_head_chunk_size)
            observer.see("activations", "logits", logits if isinstance(logits, list) else (logits,))
            if isinstance(logits, list):
                logits[-1] = logits[-1][..., :-1, :]
            else:
                logits = logits[..., :-1, :]
            loss: torch.Tensor = chunked_cross_entropy(
                logits, targets[..., 1:], chunk_size=self.cross_entropy_chunk_size
            )
            observer.see("activations", "loss", (loss,))
        with observer.phase("backward", number):
            fabric.backward(loss / self.steps)
        if stepping:
            with observer.phase("optimizer", number):
                optimizer.step()
                optimizer.zero_grad()
        return loss.detach()


def _compute_as_in_2023(model: torch.nn.Module) -> None:
    """Give Fabric's 4-bit layers the forward pass of bitsandbytes 0.41."""
    import bitsandbytes

    from memprof.recipes.bitsandbytes_2023 import Linear4bit2023

    for module in model.modules():
        if isinstance(module, bitsandbytes.nn.Linear4bit):
            module.forward = MethodType(Linear4bit2023.forward, module)


def _stable_embedding(model: Any) -> None:
    """Replace the embedding as ``litgpt/finetune/lora.py`` does; the new one adds a norm, and is not frozen."""
    from bitsandbytes.nn import StableEmbedding

    old = model.transformer.wte
    model.transformer.wte = StableEmbedding(old.num_embeddings, old.embedding_dim)
    with torch.no_grad():
        model.transformer.wte.weight.copy_(old.weight)
    model.transformer.wte = model.transformer.wte.to(device=old.weight.device, dtype=old.weight.dtype)
