"""Third round: causal language models of families that no earlier round had, all parameters trained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from wider_runs import token_loss, train

from truth_cases.registry import registry

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CASES", "family"]

CASES, case = registry()


def family(name: str, **options: Any) -> nn.Module:
    """Build a causal language model with random weights, in float32 on the host."""
    import transformers

    config = getattr(transformers, f"{name}Config")(**options)
    model: nn.Module = getattr(transformers, name + ("LMHeadModel" if name == "GPT2" else "ForCausalLM"))(config)
    return model


SHAPE = {"hidden_size": 640, "intermediate_size": 1792, "num_hidden_layers": 5, "num_attention_heads": 10}


@case
def gptj_adamw_fused() -> None:
    """Train a GPT-J, weights in bfloat16, with fused AdamW."""
    model = family("GPTJ", vocab_size=30000, n_embd=768, n_layer=4, n_head=12, rotary_dim=32, n_positions=1024)
    model = model.to(torch.bfloat16).cuda()
    train(model, torch.optim.AdamW(model.parameters(), 1e-4, fused=True), token_loss(model, 5, 450))


@case
def mpt_autocast_foreach() -> None:
    """Train an MPT (ALiBi) in float32 with bfloat16 autocast and AdamW by lists."""
    model = family("Mpt", vocab_size=24000, d_model=640, n_heads=10, n_layers=4, max_seq_len=1024).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, foreach=True)
    train(model, optimizer, token_loss(model, 4, 600), autocast=torch.bfloat16, clip=1.0)


@case
def stablelm_fp16_scaler_clip() -> None:
    """Train a StableLM in float16 autocast with a scaler and clipping."""
    model = family("StableLm", vocab_size=24000, num_key_value_heads=5, **SHAPE).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-5)
    train(model, optimizer, token_loss(model, 6, 350), autocast=torch.float16, scaler=True, clip=0.5)


@case
def cohere_adagrad() -> None:
    """Train a Cohere (parallel blocks, tied head) in bfloat16 with Adagrad."""
    model = family("Cohere", vocab_size=48000, num_key_value_heads=2, **SHAPE).to(torch.bfloat16).cuda()
    train(model, torch.optim.Adagrad(model.parameters(), 1e-3), token_loss(model, 3, 512))


@case
def olmo2_muon() -> None:
    """Train an OLMo 2: matrices with Muon, all else with AdamW."""
    model = family("Olmo2", vocab_size=24000, **SHAPE).to(torch.bfloat16).cuda()
    hidden = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name and "head" not in name]
    chosen = set(hidden)
    matrices = torch.optim.Muon(hidden, 1e-3)
    others = torch.optim.AdamW([p for p in model.parameters() if p not in chosen], 1e-4)
    loss_of = token_loss(model, 4, 400)
    for _ in range(3):
        loss_of().backward()
        for optimizer in (matrices, others):
            optimizer.step()
            optimizer.zero_grad()


@case
def granite_accumulates_averaged() -> None:
    """Train a Granite over four batches a step, with a moving average of its weights."""
    model = family("Granite", vocab_size=24000, num_key_value_heads=5, **SHAPE).to(torch.bfloat16).cuda()
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.99))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    loss_of = token_loss(model, 2, 480)
    for _ in range(2):
        for _ in range(4):
            (loss_of() / 4).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        average.update_parameters(model)
        optimizer.zero_grad()


@case
def starcoder2_reentrant_paged() -> None:
    """Train a StarCoder 2 with reentrant checkpointing and paged 32-bit AdamW."""
    import bitsandbytes as bnb

    model = family("Starcoder2", vocab_size=24000, num_key_value_heads=2, **SHAPE).cuda()
    model.gradient_checkpointing_enable({"use_reentrant": True})
    optimizer = bnb.optim.PagedAdamW32bit(model.parameters(), 1e-4)
    train(model, optimizer, token_loss(model, 8, 512), autocast=torch.bfloat16)


@case
def bigcode_nadam() -> None:
    """Train a GPT-BigCode (one key head) in float32 with NAdam."""
    model = family("GPTBigCode", vocab_size=24000, n_embd=576, n_layer=4, n_head=9, n_positions=512).cuda()
    train(model, torch.optim.NAdam(model.parameters(), 1e-3), token_loss(model, 6, 256))


@case
def codegen_masked_lengths() -> None:
    """Train a CodeGen on padded batches whose length changes, with 8-bit AdamW that is not paged."""
    import bitsandbytes as bnb

    model = family("CodeGen", vocab_size=24000, n_embd=512, n_layer=5, n_head=8, rotary_dim=32, n_positions=1024).cuda()
    optimizer = bnb.optim.AdamW8bit(model.parameters(), 1e-4)
    for length in (300, 420, 250):
        train(model, optimizer, _padded(model, 6, length), autocast=torch.bfloat16, steps=2)


def _padded(model: nn.Module, batch: int, length: int) -> Callable[[], torch.Tensor]:
    def loss() -> torch.Tensor:
        tokens = torch.randint(0, 24000, (batch, length), device="cuda")
        mask = torch.ones_like(tokens)
        mask[: batch // 2, length // 2 :] = 0
        labels = tokens.masked_fill(mask == 0, -100)
        result: torch.Tensor = model(input_ids=tokens, attention_mask=mask, labels=labels).loss
        return result

    return loss
