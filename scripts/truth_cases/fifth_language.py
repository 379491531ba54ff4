"""Fifth round: causal language models, all parameters trained, in other sizes, lengths and precisions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from wider_runs import token_loss, train

from truth_cases.registry import registry
from truth_cases.third_language import family

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CASES", "pythia160m", "train_scaled"]

CASES, case = registry()
BF16, F16 = torch.bfloat16, torch.float16

LLAMA_32 = {
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "tie_word_embeddings": True,
}
"""Widths of a Llama 3.2 of a billion parameters."""

QWEN_25 = {
    "vocab_size": 151936,
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "tie_word_embeddings": True,
}
"""Widths of a Qwen2.5 of half a billion parameters."""


def pythia160m(layers: int) -> nn.Module:
    """Build layers of a Pythia-160m, in float32 on the host."""
    return family(
        "GPTNeoX",
        vocab_size=50304,
        hidden_size=768,
        intermediate_size=3072,
        num_hidden_layers=layers,
        num_attention_heads=12,
    )


def train_scaled(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loss_of: Callable[[], torch.Tensor],
    *,
    scale: float = 256.0,
    steps: int = 3,
    clip: float | None = None,
) -> None:
    """Train in float16 autocast with a loss scale that begins so low that nothing overflows."""
    scaler = torch.amp.GradScaler("cuda", init_scale=scale)
    model.train()
    for _ in range(steps):
        optimizer.zero_grad()
        with torch.autocast("cuda", F16):
            loss = loss_of()
        scaler.scale(loss).backward()
        if clip is not None:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        scaler.step(optimizer)
        scaler.update()


@case
def gpt2_large_accumulates_bf16() -> None:
    """Train four layers of a GPT-2 large's width in bfloat16 autocast, three batches a step, clipping."""
    model = family("GPT2", n_embd=1280, n_head=20, n_layer=4).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), 2e-4, weight_decay=0.1)
    train(model, optimizer, token_loss(model, 3, 640, 50257), autocast=BF16, accumulate=3, clip=1.0, steps=2)


@case
def pythia70m_fp32_nesterov() -> None:
    """Train a Pythia-70m in float32 with SGD and Nesterov's momentum."""
    model = family(
        "GPTNeoX",
        vocab_size=50304,
        hidden_size=512,
        intermediate_size=2048,
        num_hidden_layers=6,
        num_attention_heads=8,
    ).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.02, momentum=0.9, nesterov=True)
    train(model, optimizer, token_loss(model, 6, 384, 50000))


@case
def smollm2_360m_8bit() -> None:
    """Train ten layers of a SmolLM2-360M, weights in bfloat16, with 8-bit AdamW and clipping."""
    import bitsandbytes as bnb

    model = family(
        "Llama",
        vocab_size=49152,
        hidden_size=960,
        intermediate_size=2560,
        num_hidden_layers=10,
        num_attention_heads=15,
        num_key_value_heads=5,
        tie_word_embeddings=True,
    )
    model = model.to(BF16).cuda()
    train(model, bnb.optim.AdamW8bit(model.parameters(), 2e-5), token_loss(model, 3, 640, 49152), clip=1.0)


@case
def gemma3_270m_paged() -> None:
    """Train six layers of a Gemma 3 270M (a large vocabulary), weights in bfloat16, with paged 32-bit AdamW."""
    import bitsandbytes as bnb
    import transformers

    config = transformers.Gemma3TextConfig(
        vocab_size=262144,
        hidden_size=640,
        intermediate_size=2048,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=1,
        head_dim=256,
        sliding_window=512,
    )
    model = transformers.Gemma3ForCausalLM(config).to(BF16).cuda()
    train(model, bnb.optim.PagedAdamW32bit(model.parameters(), 1e-5), token_loss(model, 2, 448, 262000))


@case
def qwen25_6k_torch_adafactor() -> None:
    """Train six layers of a Qwen2.5-0.5B on 6,144 tokens in bfloat16, checkpointing, torch's Adafactor."""
    model = family("Qwen2", num_hidden_layers=6, **QWEN_25).to(BF16).cuda()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    train(model, torch.optim.Adafactor(model.parameters(), 1e-3), token_loss(model, 1, 6144, 151936))


@case
def llama_12k_autocast() -> None:
    """Train a Llama with grouped queries on 12,288 tokens, float32 weights in bfloat16 autocast."""
    model = family(
        "Llama",
        vocab_size=32000,
        hidden_size=1024,
        intermediate_size=2816,
        num_hidden_layers=4,
        num_attention_heads=16,
        num_key_value_heads=4,
        max_position_embeddings=16384,
    ).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4, betas=(0.9, 0.95))
    train(model, optimizer, token_loss(model, 1, 12288, 32000), autocast=BF16, clip=1.0)


@case
def opt350m_efficient_dropout_fp16() -> None:
    """Train six layers of an OPT-350m's width by efficient attention with dropout, float16 and a scaler."""
    model = family(
        "OPT",
        hidden_size=1024,
        ffn_dim=4096,
        num_hidden_layers=6,
        num_attention_heads=16,
        attention_dropout=0.1,
    ).cuda()
    with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
        optimizer = torch.optim.AdamW(model.parameters(), 1e-5)
        train_scaled(model, optimizer, token_loss(model, 4, 384, 50000), clip=1.0)


@case
def gpt2_1024_flash_dropout() -> None:
    """Train GPT-2's smallest on full windows by flash attention with dropout, weights in bfloat16."""
    model = family("GPT2").to(BF16).cuda()
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        optimizer = torch.optim.AdamW(model.parameters(), 1e-4, foreach=True)
        train(model, optimizer, token_loss(model, 3, 1024, 50257))


@case
def phi_cudnn_dropout() -> None:
    """Train three layers of a Phi-1.5 by cuDNN's attention with dropout, weights in bfloat16."""
    model = family(
        "Phi",
        vocab_size=51200,
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=3,
        num_attention_heads=32,
        attention_dropout=0.1,
        resid_pdrop=0.1,
    )
    model = model.to(BF16).cuda()
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        train(model, torch.optim.AdamW(model.parameters(), 2e-5, fused=True), token_loss(model, 2, 640, 51200))


@case
def qwen3_eager_dropout_fp32() -> None:
    """Train four layers of a Qwen3-0.6B, attention written out with dropout, in float32."""
    model = family(
        "Qwen3",
        vocab_size=50000,
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=4,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        attention_dropout=0.1,
        attn_implementation="eager",
    ).cuda()
    train(model, torch.optim.AdamW(model.parameters(), 1e-5), token_loss(model, 2, 320, 50000), clip=1.0)


@case
def llama32_padded_accumulates_sgd() -> None:
    """Train two layers of a Llama 3.2-1B on padded instructions, weights in bfloat16, four batches a step, SGD."""
    model = family("Llama", vocab_size=128256, num_hidden_layers=2, **LLAMA_32).to(BF16).cuda()

    def loss() -> torch.Tensor:
        tokens = torch.randint(10, 128000, (2, 448))
        mask = torch.ones_like(tokens)
        mask[0, 360:] = 0
        labels = tokens.masked_fill(mask == 0, -100)
        labels[:, :64] = -100
        result: torch.Tensor = model(input_ids=tokens.cuda(), attention_mask=mask.cuda(), labels=labels.cuda()).loss
        return result

    optimizer = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9)
    train(model, optimizer, loss, accumulate=4, steps=2)
