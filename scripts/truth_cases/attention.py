"""Attention with dropout, by each of torch's kernels, and sequences packed with a mask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from wider_runs import token_loss, train

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

__all__ = ["CASES"]

CASES: dict[str, Callable[[], Any]] = {}


def case(function: Callable[[], Any]) -> Callable[[], Any]:
    """Register a case under its function's name."""
    CASES[function.__name__] = function
    return function


def gpt2(**options: Any) -> nn.Module:
    """Build a GPT-2 with dropout everywhere."""
    import transformers

    config = transformers.GPT2Config(vocab_size=20000, n_layer=3, n_embd=512, n_head=8, attn_pdrop=0.2, **options)
    model: nn.Module = transformers.GPT2LMHeadModel(config).cuda()
    return model


def _with(backend: SDPBackend, autocast: torch.dtype) -> None:
    model = gpt2()
    with sdpa_kernel(backend):
        train(model, torch.optim.AdamW(model.parameters()), token_loss(model, 4, 640), autocast=autocast)


@case
def dropout_eager() -> None:
    """Write attention out, with dropout of its weights."""
    model = gpt2(attn_implementation="eager")
    optimizer = torch.optim.AdamW(model.parameters())
    train(model, optimizer, token_loss(model, 4, 640), autocast=torch.bfloat16, accumulate=2, steps=2)


@case
def dropout_flash() -> None:
    """Train with flash attention and dropout."""
    _with(SDPBackend.FLASH_ATTENTION, torch.bfloat16)


@case
def dropout_efficient() -> None:
    """Train with memory-efficient attention and dropout."""
    _with(SDPBackend.EFFICIENT_ATTENTION, torch.float16)


@case
def dropout_math() -> None:
    """Train with composite attention and dropout."""
    _with(SDPBackend.MATH, torch.bfloat16)


@case
def dropout_cudnn() -> None:
    """Train with attention by cuDNN and dropout."""
    _with(SDPBackend.CUDNN_ATTENTION, torch.bfloat16)


@case
def grouped_efficient_mask() -> None:
    """Train grouped queries with padding, where a mask rules flash attention out."""
    import transformers

    config = transformers.Qwen2Config(
        vocab_size=20000,
        hidden_size=768,
        intermediate_size=2048,
        num_hidden_layers=3,
        num_attention_heads=12,
        num_key_value_heads=3,
    )
    model = transformers.Qwen2ForCausalLM(config).to(torch.float16).cuda()

    def loss() -> torch.Tensor:
        tokens = torch.randint(0, 1000, (4, 500), device="cuda")
        mask = torch.ones_like(tokens)
        mask[:, :100] = 0
        result: torch.Tensor = model(input_ids=tokens, attention_mask=mask, labels=tokens).loss
        return result

    with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
        train(model, torch.optim.SGD(model.parameters(), 1e-3), loss)
