"""Third round: other people's loops, and runs at the edge."""

from __future__ import annotations

import tempfile
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  # the name that everybody gives it
from torch import nn
from torch.utils.data import DataLoader
from wider_runs import largest_batch, token_loss, train

from truth_cases.registry import registry
from truth_cases.third_language import SHAPE, family
from truth_cases.third_vision import labelled, swin

__all__ = ["CASES"]

CASES, case = registry()


@case
def trainer_classifies_fp16() -> None:
    """Run transformers' Trainer in float16 with padding by length, evaluation and a metric each epoch."""
    import transformers

    config = transformers.ElectraConfig(
        vocab_size=20000, hidden_size=384, num_hidden_layers=5, num_attention_heads=6, intermediate_size=1536
    )
    model = transformers.ElectraForSequenceClassification(config)
    rows = [
        {"input_ids": torch.randint(5, 20000, (60 + 7 * (index % 20),)).tolist(), "labels": index % 2}
        for index in range(96)
    ]

    def collate(batch: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        longest = max(len(row["input_ids"]) for row in batch)
        padded = [row["input_ids"] + [0] * (longest - len(row["input_ids"])) for row in batch]
        tokens = torch.tensor(padded)
        return {
            "input_ids": tokens,
            "attention_mask": (tokens != 0).long(),
            "labels": torch.tensor([row["labels"] for row in batch]),
        }

    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            folder,
            num_train_epochs=2,
            per_device_train_batch_size=16,
            per_device_eval_batch_size=24,
            eval_strategy="epoch",
            fp16=True,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
        )
        trainer = transformers.Trainer(
            model,
            arguments,
            train_dataset=rows,
            eval_dataset=rows[:48],
            data_collator=collate,
            compute_metrics=lambda found: {"right": float((found.predictions.argmax(-1) == found.label_ids).mean())},
        )
        trainer.train()


@case
def trainer_adafactor_accumulates() -> None:
    """Run transformers' Trainer on a Cohere, bfloat16 throughout, Adafactor, three batches a step."""
    import transformers

    model = family("Cohere", vocab_size=20000, **SHAPE).to(torch.bfloat16)
    rows = [{"input_ids": row, "labels": row} for row in torch.randint(0, 1000, (48, 320))]
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            folder,
            max_steps=3,
            per_device_train_batch_size=3,
            gradient_accumulation_steps=3,
            optim="adafactor",
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
        )
        transformers.Trainer(model, arguments, train_dataset=rows).train()


@case
def lightning_validates_fp16() -> None:
    """Run Lightning's Trainer in float16 with a validation loop and a schedule."""
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            layer = nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True, dropout=0.1)
            self.network = nn.Sequential(nn.Linear(40, 256), nn.TransformerEncoder(layer, 3), nn.Linear(256, 7))

        def loss(self, batch: Any) -> torch.Tensor:
            return F.cross_entropy(self.network(batch[0]).flatten(0, 1), batch[1].flatten())

        def training_step(self, batch: Any, _index: int) -> torch.Tensor:
            return self.loss(batch)

        def validation_step(self, batch: Any, _index: int) -> None:
            self.log("apart", self.loss(batch))

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.SGD(self.parameters(), 0.01, momentum=0.9)
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]

    rows = [(torch.randn(90, 40), torch.randint(0, 7, (90,))) for _ in range(192)]
    trainer = lightning.Trainer(
        accelerator="cuda",
        devices=1,
        precision="16-mixed",
        max_epochs=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Module(), DataLoader(rows, 48), DataLoader(rows[:64], 64))


@case
def fabric_true_bf16_clips() -> None:
    """Run Lightning Fabric with weights in bfloat16 and clipping."""
    from lightning.fabric import Fabric

    fabric = Fabric(accelerator="cuda", devices=1, precision="bf16-true")
    fabric.launch()
    with fabric.init_module():
        model = family("StableLm", vocab_size=20000, num_key_value_heads=10, **SHAPE)
    model, optimizer = fabric.setup(model, torch.optim.AdamW(model.parameters(), 1e-4))
    for _ in range(3):
        tokens = torch.randint(0, 1000, (4, 384), device=fabric.device)
        fabric.backward(model(input_ids=tokens, labels=tokens).loss)
        fabric.clip_gradients(model, optimizer, max_norm=1.0)
        optimizer.step()
        optimizer.zero_grad()


@case
def bigcode_split_limited() -> None:
    """Train on changing lengths under max_split_size_mb, evaluating between."""
    model = family("GPTBigCode", vocab_size=20000, n_embd=768, n_layer=4, n_head=12, n_positions=1200).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    for length in (250, 900, 400, 1100):
        train(model, optimizer, token_loss(model, 3, length), autocast=torch.bfloat16, steps=1)
        with torch.no_grad():
            token_loss(model, 6, length)()


@case
def swinv2_expandable() -> None:
    """Train a Swin v2 on batches that change under expandable segments, the cache emptied once."""
    model = swin()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    for batch in (4, 9, 6, 12):
        train(model, optimizer, labelled(model, batch, 192), steps=1)
        if batch == 6:
            torch.cuda.empty_cache()


@case
def olmo2_rounded_up() -> None:
    """Train an OLMo 2 on changing lengths with sizes rounded up to eighths of powers of two."""
    model = family("Olmo2", vocab_size=20000, **SHAPE).to(torch.bfloat16).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    for length in (310, 350, 420, 380):
        train(model, optimizer, token_loss(model, 4, length), steps=1)


@case
def oom_gptj() -> int:
    """Find the batch size at which a capped card is full, for a GPT-J in float32."""
    model = family("GPTJ", vocab_size=16000, n_embd=512, n_layer=4, n_head=8, rotary_dim=32, n_positions=512).cuda()
    return largest_batch(lambda: (model, lambda n: token_loss(model, n, 320)()))
