"""Fourth round: causal language models in the sizes that people train, all parameters or most of them."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812  # the name that everybody gives it
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from wider_runs import token_loss, train

from truth_cases.registry import registry
from truth_cases.third_language import family

__all__ = ["CASES", "smollm"]

CASES, case = registry()
BF16 = torch.bfloat16

TINY_LLAMA = {
    "vocab_size": 32000,
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
}
"""TinyLlama's widths."""


def smollm(layers: int = 30) -> nn.Module:
    """Build a SmolLM of 135 million parameters, in float32 on the host."""
    return family(
        "Llama",
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=layers,
        num_attention_heads=9,
        num_key_value_heads=3,
        tie_word_embeddings=True,
    )


@case
def gpt2_small_accumulates() -> None:
    """Train GPT-2's smallest in bfloat16 autocast, two batches a step, clipping, decay for matrices only."""
    model = family("GPT2").cuda()
    groups = [
        {"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": 0.1},
        {"params": [p for p in model.parameters() if p.ndim < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, 6e-4, betas=(0.9, 0.95), fused=True)
    train(model, optimizer, token_loss(model, 4, 512, 50257), autocast=BF16, accumulate=2, clip=1.0, steps=2)


@case
def tinyllama_8k_paged() -> None:
    """Train four layers of a TinyLlama on 8,192 tokens in bfloat16, checkpointing, paged 8-bit AdamW."""
    import bitsandbytes as bnb

    model = family("Llama", num_hidden_layers=4, max_position_embeddings=8192, **TINY_LLAMA).to(BF16).cuda()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    train(model, bnb.optim.PagedAdamW8bit(model.parameters(), 1e-5), token_loss(model, 1, 8192, 32000), clip=1.0)


@case
def bytes_16k_bf16() -> None:
    """Train a model of bytes on 16,384 of them in bfloat16."""
    model = family(
        "Llama",
        vocab_size=384,
        hidden_size=512,
        intermediate_size=1408,
        num_hidden_layers=6,
        num_attention_heads=8,
        num_key_value_heads=2,
        max_position_embeddings=16384,
    )
    model = model.to(BF16).cuda()
    train(model, torch.optim.AdamW(model.parameters(), 3e-4), token_loss(model, 1, 16384, 256))


@case
def qwen25_adafactor_checkpointed() -> None:
    """Train half of the layers of a Qwen2.5-0.5B in bfloat16 with Adafactor at a fixed rate, checkpointing."""
    from transformers.optimization import Adafactor

    model = family(
        "Qwen2",
        vocab_size=151936,
        hidden_size=896,
        intermediate_size=4864,
        num_hidden_layers=12,
        num_attention_heads=14,
        num_key_value_heads=2,
        tie_word_embeddings=True,
    )
    model = model.to(BF16).cuda()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    optimizer = Adafactor(model.parameters(), lr=1e-5, relative_step=False, scale_parameter=False, warmup_init=False)
    train(model, optimizer, token_loss(model, 1, 1024, 151936))


@case
def opt125m_settled_fp16() -> None:
    """Train an OPT-125m in float16 autocast until the scale has settled, with clipping."""
    model = family("OPT").cuda()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-5)
    train(model, optimizer, token_loss(model, 3, 512, 50000), autocast=torch.float16, scaler=True, clip=1.0, steps=12)


@case
def llama32_4k_flash() -> None:
    """Train two layers of a Llama 3.2's width on 4,096 tokens by flash attention, weights in bfloat16."""
    model = family(
        "Llama",
        vocab_size=32000,
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=2,
        num_attention_heads=32,
        num_key_value_heads=8,
        tie_word_embeddings=True,
    )
    model = model.to(BF16).cuda()
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        optimizer = torch.optim.AdamW(model.parameters(), 2e-5, fused=True)
        train(model, optimizer, token_loss(model, 1, 4096, 32000), clip=1.0)


@case
def pythia410m_cudnn_dropout() -> None:
    """Train six layers of a Pythia-410m by cuDNN's attention with dropout, bfloat16 autocast."""
    model = family(
        "GPTNeoX",
        vocab_size=50304,
        hidden_size=1024,
        intermediate_size=4096,
        num_hidden_layers=6,
        num_attention_heads=16,
        attention_dropout=0.1,
        hidden_dropout=0.1,
    ).cuda()
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        train(model, torch.optim.AdamW(model.parameters(), 1e-4), token_loss(model, 2, 512, 50000), autocast=BF16)


@case
def gpt2_medium_eager_sgd() -> None:
    """Train six layers of a GPT-2 medium, attention written out, in float32 with SGD and momentum."""
    model = family("GPT2", n_embd=1024, n_head=16, n_layer=6, attn_implementation="eager").cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, weight_decay=1e-4)
    train(model, optimizer, token_loss(model, 2, 512, 50257))


@case
def qwen3_padded_efficient() -> None:
    """Train eight layers of a Qwen3-0.6B on padded instructions by efficient attention, weights in bfloat16."""
    model = family(
        "Qwen3",
        vocab_size=151936,
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=8,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        tie_word_embeddings=True,
    )
    model = model.to(BF16).cuda()

    def loss() -> torch.Tensor:
        tokens = torch.randint(10, 151000, (2, 384))
        mask = torch.ones_like(tokens)
        mask[1, 290:] = 0
        labels = tokens.masked_fill(mask == 0, -100)
        labels[:, :100] = -100  # nobody learns to ask
        result: torch.Tensor = model(input_ids=tokens.cuda(), attention_mask=mask.cuda(), labels=labels.cuda()).loss
        return result

    with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
        train(model, torch.optim.AdamW(model.parameters(), 1e-5), loss, clip=1.0)


@case
def llama_packed_sequences() -> None:
    """Train on sequences packed into one row, told apart by their positions, weights in bfloat16."""
    model = family(
        "Llama",
        vocab_size=32000,
        hidden_size=768,
        intermediate_size=2048,
        num_hidden_layers=8,
        num_attention_heads=12,
        num_key_value_heads=4,
    )
    model = model.to(BF16).cuda()
    lengths = (512, 130, 700, 410, 296)
    positions = torch.cat([torch.arange(length) for length in lengths])[None]

    def loss() -> torch.Tensor:
        tokens = torch.randint(0, 32000, (1, sum(lengths)))
        labels = tokens.masked_fill(positions == 0, -100)
        result: torch.Tensor = model(input_ids=tokens.cuda(), position_ids=positions.cuda(), labels=labels.cuda()).loss
        return result

    train(model, torch.optim.AdamW(model.parameters(), 1e-4), loss)


@case
def gpt2_distilled() -> None:
    """Distil a GPT-2 in bfloat16 into one of half its layers, bfloat16 autocast."""
    teacher = family("GPT2").to(BF16).cuda().eval().requires_grad_(requires_grad=False)
    student = family("GPT2", n_layer=6).cuda()

    def loss() -> torch.Tensor:
        tokens = torch.randint(0, 50257, (4, 256), device="cuda")
        with torch.no_grad():
            wanted = teacher(input_ids=tokens).logits
        found = student(input_ids=tokens, labels=tokens)
        apart = F.kl_div(
            F.log_softmax(found.logits / 2.0, dim=-1), F.softmax(wanted / 2.0, dim=-1), reduction="batchmean"
        )
        result: torch.Tensor = 0.5 * found.loss + 0.5 * 4.0 * apart / tokens.shape[1]
        return result

    train(student, torch.optim.AdamW(student.parameters(), 5e-5), loss, autocast=BF16, clip=1.0)
