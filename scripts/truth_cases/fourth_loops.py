"""Fourth round: other people's loops, generation, and the batch at which a capped card is full."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812  # the name that everybody gives it
from torch import nn
from torch.utils.data import DataLoader

from truth_cases.fourth_encoders import lengths_mask
from truth_cases.fourth_language import smollm
from truth_cases.registry import registry
from truth_cases.third_language import family
from truth_cases.vision import basic_resnet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["CASES"]

CASES, case = registry()
BF16 = torch.bfloat16


@case
def trainer_smollm_8bit_checkpointed() -> None:
    """Run Trainer on a SmolLM: bfloat16, checkpointing, four batches a step, 8-bit AdamW, a warm-up."""
    import transformers

    rows = [{"input_ids": row, "labels": row} for row in torch.randint(0, 49152, (64, 512))]
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            folder,
            max_steps=3,
            per_device_train_batch_size=2,
            gradient_accumulation_steps=4,
            gradient_checkpointing=True,
            bf16=True,
            optim="adamw_bnb_8bit",
            warmup_steps=1,
            lr_scheduler_type="cosine",
            logging_steps=1,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
        )
        transformers.Trainer(smollm(), arguments, train_dataset=rows).train()


@case
def trainer_vit_tiny_fp16() -> None:
    """Run Trainer on a ViT-Ti/16 in float16 until the scale has settled, evaluating at the end of each epoch."""
    import transformers

    config = transformers.ViTConfig(
        hidden_size=192, intermediate_size=768, num_hidden_layers=12, num_attention_heads=3, num_labels=10
    )
    rows = [{"pixel_values": torch.randn(3, 224, 224), "labels": index % 10} for index in range(192)]
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            folder,
            num_train_epochs=2,
            per_device_train_batch_size=24,
            per_device_eval_batch_size=32,
            eval_strategy="epoch",
            fp16=True,
            remove_unused_columns=False,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
        )
        transformers.Trainer(
            transformers.ViTForImageClassification(config),
            arguments,
            train_dataset=rows,
            eval_dataset=rows[:64],
            compute_metrics=lambda found: {"right": float((found.predictions.argmax(-1) == found.label_ids).mean())},
        ).train()


@case
def fabric_gpt2_bf16_accumulates() -> None:
    """Run Lightning Fabric on eight layers of a GPT-2, mixed bfloat16, four batches a step, clipping, a loader."""
    from lightning.fabric import Fabric

    fabric = Fabric(accelerator="cuda", devices=1, precision="bf16-mixed")
    fabric.launch()
    model = family("GPT2", n_layer=8)
    model, optimizer = fabric.setup(model, torch.optim.AdamW(model.parameters(), 3e-4, fused=False, foreach=True))
    loader = fabric.setup_dataloaders(DataLoader(torch.randint(0, 50257, (24, 384)), 2))
    for step, tokens in enumerate(loader):
        last = step % 4 == 3
        with fabric.no_backward_sync(model, enabled=not last):
            fabric.backward(model(input_ids=tokens, labels=tokens).loss / 4)
        if last:
            fabric.clip_gradients(model, optimizer, max_norm=1.0)
            optimizer.step()
            optimizer.zero_grad()


@case
def lightning_resnet18_small_images_fp16() -> None:
    """Run Lightning's Trainer on a ResNet-18 and images of 64 in mixed float16, with a validation loop."""
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.network = basic_resnet((2, 2, 2, 2)).cpu()

        def training_step(self, batch: Any, _index: int) -> torch.Tensor:
            loss = F.cross_entropy(self.network(batch[0]), batch[1])
            self.log("loss", loss)
            return loss

        def validation_step(self, batch: Any, _index: int) -> None:
            scores = self.network(batch[0])
            self.log("apart", F.cross_entropy(scores, batch[1]))
            self.log("right", (scores.argmax(1) == batch[1]).float().mean())

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.SGD(self.parameters(), 0.05, momentum=0.9, weight_decay=5e-4)
            schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=20)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    rows = [(torch.randn(3, 64, 64), index % 100) for index in range(896)]
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
    trainer.fit(Module(), DataLoader(rows, 128), DataLoader(rows[:256], 128))


@case
def accelerate_bert_bf16() -> None:
    """Run accelerate on a BERT base that classifies padded texts, bfloat16, a schedule, answers gathered."""
    import transformers
    from accelerate import Accelerator

    accelerator = Accelerator(mixed_precision="bf16")
    model = transformers.BertForSequenceClassification(transformers.BertConfig(num_labels=3))
    mask = lengths_mask(80, 144, 11)
    tokens, labels = torch.randint(1000, 30000, mask.shape) * mask, torch.randint(0, 3, (80,))
    rows = [
        {"input_ids": row, "attention_mask": shown, "labels": label}
        for row, shown, label in zip(tokens, mask, labels, strict=True)
    ]
    optimizer = torch.optim.AdamW(model.parameters(), 2e-5)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, 1, 5)
    model, optimizer, loader, evaluated, schedule = accelerator.prepare(
        model, optimizer, DataLoader(rows, 16, shuffle=True), DataLoader(rows[:64], 32), schedule
    )
    model.train()
    for batch in loader:
        accelerator.backward(model(**batch).loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    model.eval()
    for batch in evaluated:
        with torch.no_grad():
            answers = model(**batch).logits.argmax(-1)
        accelerator.gather_for_metrics((answers, batch["labels"]))


@case
def smollm_generates_left_padded() -> None:
    """Sample answers of a SmolLM to eight prompts padded on the left, bfloat16, a KV cache."""
    model = smollm().to(BF16).cuda().eval()
    mask = lengths_mask(8, 224, 17).flip(1)
    tokens = torch.randint(10, 49000, mask.shape) * mask
    model.generate(
        input_ids=tokens.cuda(),
        attention_mask=mask.cuda(),
        max_new_tokens=48,
        min_new_tokens=48,
        do_sample=True,
        temperature=0.7,
        top_p=0.9,
        pad_token_id=0,
    )


@case
def gpt2_generates_by_beams() -> None:
    """Generate with a GPT-2 in float32 by five beams."""
    model = family("GPT2").cuda().eval()
    tokens = torch.randint(10, 50000, (4, 64), device="cuda")
    model.generate(
        input_ids=tokens,
        attention_mask=torch.ones_like(tokens),
        num_beams=5,
        do_sample=False,
        max_new_tokens=24,
        min_new_tokens=24,
        pad_token_id=50256,
    )


def first_that_fails(
    model: nn.Module, loss_of: Callable[[int], torch.Tensor], batches: Iterable[int], share: float
) -> int:
    """Return the first batch size that does not fit into a share of the card."""
    torch.cuda.set_per_process_memory_fraction(share)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-5)
    for batch in batches:
        try:
            for _ in range(2):
                loss_of(batch).backward()
                optimizer.step()
                optimizer.zero_grad()
        except torch.OutOfMemoryError:  # noqa: PERF203  # the point of the loop
            return batch
    return 0


@case
def oom_pythia160m() -> int:
    """Find the batch size at which a capped card is full, for a Pythia-160m in bfloat16."""
    model = family(
        "GPTNeoX",
        vocab_size=50304,
        hidden_size=768,
        intermediate_size=3072,
        num_hidden_layers=12,
        num_attention_heads=12,
    )
    model = model.to(BF16).cuda()

    def loss(batch: int) -> torch.Tensor:
        tokens = torch.randint(0, 50304, (batch, 512), device="cuda")
        result: torch.Tensor = model(input_ids=tokens, labels=tokens).loss
        return result

    return first_that_fails(model, loss, range(1, 64), 0.04)


@case
def oom_bert_base() -> int:
    """Find the batch size at which a capped card is full, for a BERT base in float32."""
    import transformers

    model = transformers.BertForSequenceClassification(transformers.BertConfig()).cuda()

    def loss(batch: int) -> torch.Tensor:
        tokens, labels = torch.randint(1000, 30000, (batch, 128)), torch.randint(0, 2, (batch,))
        mask = torch.ones_like(tokens)
        result: torch.Tensor = model(input_ids=tokens.cuda(), attention_mask=mask.cuda(), labels=labels.cuda()).loss
        return result

    return first_that_fails(model, loss, range(8, 512, 8), 0.04)
