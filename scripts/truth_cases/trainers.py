"""Other people's training loops."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812  # the name that everybody gives it
from prediction_runs import _quantize
from torch import nn
from torch.utils.data import DataLoader

from truth_cases.language import causal
from truth_cases.lora import adapted

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CASES"]

CASES: dict[str, Callable[[], Any]] = {}


def case(function: Callable[[], Any]) -> Callable[[], Any]:
    """Register a case under its function's name."""
    CASES[function.__name__] = function
    return function


def _trainer(model: nn.Module, length: int, **options: Any) -> None:
    import transformers

    rows = [
        {"input_ids": torch.randint(0, 1000, (length,)), "labels": torch.randint(0, 1000, (length,))} for _ in range(48)
    ]
    with tempfile.TemporaryDirectory() as folder:
        settings = {"max_steps": 3, "report_to": [], "save_strategy": "no", "disable_tqdm": True, **options}
        arguments = transformers.TrainingArguments(folder, **settings)
        transformers.Trainer(model, arguments, train_dataset=rows).train()


@case
def trainer_checkpointing() -> None:
    """Run transformers' Trainer with gradient checkpointing, float32, clipping."""
    model = causal("Qwen2", dtype=torch.float32)
    _trainer(
        model,
        384,
        per_device_train_batch_size=4,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        gradient_accumulation_steps=2,
    )


@case
def trainer_peft_nf4() -> None:
    """Run transformers' Trainer on a 4-bit model with adapters, bfloat16, paged 8-bit AdamW."""
    model = causal("Mistral", dtype=torch.bfloat16).cpu()
    _quantize(model)
    model = adapted(model.cuda(), ["q_proj", "k_proj", "v_proj", "o_proj"])
    _trainer(model, 512, per_device_train_batch_size=4, bf16=True, optim="paged_adamw_8bit", learning_rate=1e-4)


@case
def trainer_evaluates() -> None:
    """Run transformers' Trainer that evaluates after every step."""
    import transformers

    model = causal("Phi", dtype=torch.float32)
    rows = [{"input_ids": torch.randint(0, 1000, (256,)), "labels": torch.randint(0, 1000, (256,))} for _ in range(24)]
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            folder,
            max_steps=2,
            per_device_train_batch_size=4,
            per_device_eval_batch_size=8,
            eval_strategy="steps",
            eval_steps=1,
            prediction_loss_only=True,
            bf16=True,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
        )
        transformers.Trainer(model, arguments, train_dataset=rows, eval_dataset=rows).train()


def network() -> nn.Module:
    """Build a plain network."""
    layers: list[nn.Module] = []
    for _ in range(5):
        layers += [nn.Linear(1536, 1536), nn.LayerNorm(1536), nn.GELU(), nn.Dropout(0.1)]
    return nn.Sequential(*layers, nn.Linear(1536, 40))


@case
def lightning_trainer() -> None:
    """Run Lightning's Trainer in bfloat16, two batches a step, clipping."""
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.network = network()

        def training_step(self, batch: Any, _index: int) -> torch.Tensor:
            return F.cross_entropy(self.network(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), 1e-3)

    rows = [(torch.randn(1536), torch.tensor(3)) for _ in range(1024)]
    trainer = lightning.Trainer(
        accelerator="cuda",
        devices=1,
        precision="bf16-mixed",
        max_steps=3,
        accumulate_grad_batches=2,
        gradient_clip_val=1.0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Module(), DataLoader(rows, 128))


@case
def fabric_fp16() -> None:
    """Run Lightning Fabric in float16 with its scaler, accumulating."""
    from lightning.fabric import Fabric

    fabric = Fabric(accelerator="cuda", devices=1, precision="16-mixed")
    fabric.launch()
    model = network()
    model, optimizer = fabric.setup(model, torch.optim.AdamW(model.parameters(), 1e-4))
    for step in range(6):
        with fabric.no_backward_sync(model, enabled=step % 2 == 0):
            source = torch.randn(512, 1536, device=fabric.device)
            fabric.backward(
                F.cross_entropy(model(source), torch.zeros(512, dtype=torch.int64, device=fabric.device)) / 2
            )
        if step % 2:
            optimizer.step()
            optimizer.zero_grad()
