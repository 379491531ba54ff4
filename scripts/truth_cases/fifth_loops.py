"""Fifth round: other people's loops, changing lengths, generation, and the batch at which a capped card is full."""

from __future__ import annotations

import tempfile
from typing import Any

import torch
from torch.utils.data import DataLoader
from wider_runs import token_loss, train

from truth_cases.fifth_language import pythia160m
from truth_cases.fifth_vision import vit
from truth_cases.fourth_encoders import lengths_mask
from truth_cases.fourth_language import TINY_LLAMA, smollm
from truth_cases.fourth_loops import first_that_fails
from truth_cases.lora import adapted
from truth_cases.registry import registry
from truth_cases.third_language import family

__all__ = ["CASES"]

CASES, case = registry()
BF16, F16 = torch.bfloat16, torch.float16


@case
def trainer_pythia_paged_evaluates() -> None:
    """Run Trainer on eight layers of a Pythia-160m: bfloat16, paged 8-bit AdamW, evaluation every second step."""
    import transformers

    rows = [{"input_ids": row, "labels": row} for row in torch.randint(0, 50000, (48, 384))]
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            folder,
            max_steps=4,
            per_device_train_batch_size=4,
            per_device_eval_batch_size=8,
            eval_strategy="steps",
            eval_steps=2,
            prediction_loss_only=True,
            bf16=True,
            optim="paged_adamw_8bit",
            weight_decay=0.01,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
        )
        transformers.Trainer(pythia160m(8), arguments, train_dataset=rows, eval_dataset=rows[:16]).train()


@case
def trainer_lora_smollm_padded() -> None:
    """Run Trainer on LoRA of a SmolLM, texts padded to their batch's longest, checkpointing, two batches a step."""
    import transformers

    model = smollm(15).to(BF16)
    model.enable_input_require_grads()
    model = adapted(model, "all-linear", r=16, lora_dropout=0.05, task_type="CAUSAL_LM")
    rows = [{"input_ids": torch.randint(5, 49000, (180 + 13 * (index % 17),)).tolist()} for index in range(48)]

    def collate(batch: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        longest = max(len(row["input_ids"]) for row in batch)
        padded = [row["input_ids"] + [0] * (longest - len(row["input_ids"])) for row in batch]
        tokens = torch.tensor(padded)
        mask = (tokens != 0).long()
        return {"input_ids": tokens, "attention_mask": mask, "labels": tokens.masked_fill(mask == 0, -100)}

    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            folder,
            max_steps=3,
            per_device_train_batch_size=4,
            gradient_accumulation_steps=2,
            gradient_checkpointing=True,
            gradient_checkpointing_kwargs={"use_reentrant": False},
            bf16=True,
            learning_rate=2e-4,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
        )
        transformers.Trainer(model, arguments, train_dataset=rows, data_collator=collate).train()


@case
def fabric_smollm_fp16_scaled() -> None:
    """Run Lightning Fabric on ten layers of a SmolLM in mixed float16 with a scaler of its own, clipping."""
    from lightning.fabric import Fabric
    from lightning.fabric.plugins import MixedPrecision

    scaler = torch.amp.GradScaler("cuda", init_scale=256.0)
    fabric = Fabric(accelerator="cuda", devices=1, plugins=[MixedPrecision("16-mixed", "cuda", scaler)])
    fabric.launch()
    model = smollm(10)
    model, optimizer = fabric.setup(model, torch.optim.AdamW(model.parameters(), 1e-4))
    loader = fabric.setup_dataloaders(DataLoader(torch.randint(0, 49152, (16, 288)), 4))
    for tokens in loader:
        loss = model(input_ids=tokens, labels=tokens).loss
        optimizer.zero_grad()
        fabric.backward(loss)
        fabric.clip_gradients(model, optimizer, max_norm=1.0)
        optimizer.step()


@case
def accelerate_distilgpt2_fp16() -> None:
    """Run accelerate on a DistilGPT-2 in float16 with a low first scale, two batches a step, clipping, a schedule."""
    import transformers
    from accelerate import Accelerator
    from accelerate.utils import GradScalerKwargs

    accelerator = Accelerator(
        mixed_precision="fp16",
        gradient_accumulation_steps=2,
        kwargs_handlers=[GradScalerKwargs(init_scale=256.0)],
    )
    model = family("GPT2", n_layer=6)
    optimizer = torch.optim.AdamW(model.parameters(), 5e-5)
    schedule = transformers.get_cosine_schedule_with_warmup(optimizer, 1, 10)
    loader = DataLoader(torch.randint(0, 50257, (24, 320)), 4)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    model.train()
    for tokens in loader:
        with accelerator.accumulate(model):
            accelerator.backward(model(input_ids=tokens, labels=tokens).loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()


@case
def smollm_lengths_expandable() -> None:
    """Train a SmolLM in bfloat16 autocast on batches whose lengths change, expandable segments."""
    model = smollm(15).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4)
    for batch, length in ((4, 256), (3, 420), (6, 192), (2, 768), (4, 333)):
        train(model, optimizer, token_loss(model, batch, length, 49152), autocast=BF16, clip=1.0, steps=1)


@case
def tinyllama_lengths_split_limited() -> None:
    """Train four layers of a TinyLlama on lengths that change, weights in bfloat16, 8-bit AdamW, splits limited."""
    import bitsandbytes as bnb

    model = family("Llama", num_hidden_layers=4, **TINY_LLAMA).to(BF16).cuda()
    optimizer = bnb.optim.AdamW8bit(model.parameters(), 1e-5)
    for batch, length in ((4, 320), (4, 224), (2, 900), (4, 416), (3, 500)):
        train(model, optimizer, token_loss(model, batch, length, 32000), steps=1)


@case
def smollm_validates_keeps_best() -> None:
    """Train twelve layers of a SmolLM in bfloat16, validate after every second step, keep weights on the host."""
    model = smollm(12).to(BF16).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4, fused=True)
    found = token_loss(model, 8, 512, 49152)
    for _ in range(2):
        train(model, optimizer, token_loss(model, 4, 512, 49152), steps=2, clip=1.0)
        model.eval()
        with torch.no_grad():
            sum(found().item() for _ in range(2))
        kept = {name: value.detach().cpu().clone() for name, value in model.state_dict().items()}
    del kept


@case
def pythia410m_generates_fp16() -> None:
    """Generate greedily with eight layers of a Pythia-410m in float16, a KV cache."""
    model = family(
        "GPTNeoX",
        vocab_size=50304,
        hidden_size=1024,
        intermediate_size=4096,
        num_hidden_layers=8,
        num_attention_heads=16,
    )
    model = model.half().cuda().eval()
    tokens = torch.randint(10, 50000, (6, 160), device="cuda")
    model.generate(
        input_ids=tokens,
        attention_mask=torch.ones_like(tokens),
        do_sample=False,
        max_new_tokens=56,
        min_new_tokens=56,
        pad_token_id=0,
    )


@case
def tinyllama_samples_three_answers() -> None:
    """Sample three answers to each of three padded prompts with six layers of a TinyLlama in bfloat16."""
    model = family("Llama", num_hidden_layers=6, **TINY_LLAMA).to(BF16).cuda().eval()
    mask = lengths_mask(3, 144, 21).flip(1)
    tokens = torch.randint(10, 31000, mask.shape) * mask
    model.generate(
        input_ids=tokens.cuda(),
        attention_mask=mask.cuda(),
        num_return_sequences=3,
        do_sample=True,
        top_k=50,
        temperature=0.8,
        max_new_tokens=40,
        min_new_tokens=40,
        pad_token_id=0,
    )


@case
def oom_gpt2_small() -> int:
    """Find the batch size at which a capped card is full, for GPT-2's smallest in float32."""
    model = family("GPT2").cuda()
    return first_that_fails(model, lambda n: token_loss(model, n, 256, 50257)(), range(1, 64), 0.05)


@case
def oom_vit_base_bf16() -> int:
    """Find the batch size at which a capped card is full, for a ViT-B/16 in bfloat16 autocast."""
    model = vit().cuda()

    def loss(batch: int) -> torch.Tensor:
        images, labels = torch.randn(batch, 3, 224, 224).cuda(), torch.randint(0, 100, (batch,)).cuda()
        with torch.autocast("cuda", BF16):
            result: torch.Tensor = model(pixel_values=images, labels=labels).loss
        return result

    return first_that_fails(model, loss, range(4, 256, 4), 0.04)
