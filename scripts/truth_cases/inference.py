"""Evaluation and generation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from truth_cases.language import causal

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CASES"]

CASES: dict[str, Callable[[], Any]] = {}


def case(function: Callable[[], Any]) -> Callable[[], Any]:
    """Register a case under its function's name."""
    CASES[function.__name__] = function
    return function


@case
def qwen2_generate_sampled() -> None:
    """Generate 40 tokens by sampling from the likeliest, with a KV cache."""
    model = causal("Qwen2").eval()
    tokens = torch.randint(3, 1000, (6, 200), device="cuda")
    mask = torch.ones_like(tokens)
    model.generate(
        tokens, attention_mask=mask, max_new_tokens=40, min_new_tokens=40, do_sample=True, top_k=50, pad_token_id=0
    )


@case
def t5_generate() -> None:
    """Generate 30 tokens with an encoder-decoder, greedily, in float16."""
    import transformers

    config = transformers.T5Config(num_layers=3, decoder_start_token_id=0)
    model = transformers.T5ForConditionalGeneration(config).to(torch.float16).cuda().eval()
    tokens = torch.randint(3, 20000, (8, 100), device="cuda")
    mask = torch.ones_like(tokens)
    model.generate(tokens, attention_mask=mask, max_new_tokens=30, min_new_tokens=30, do_sample=False)


@case
def mistral_evaluate() -> None:
    """Measure the perplexity of long batches, keeping only sums."""
    model = causal("Mistral", sliding_window=512).eval()
    total = torch.zeros((), device="cuda")
    with torch.inference_mode():
        for _ in range(3):
            tokens = torch.randint(0, 1000, (3, 1500), device="cuda")
            total += model(input_ids=tokens, labels=tokens).loss


@case
def resnet_evaluate_fp16() -> None:
    """Classify images with a ResNet-50 in float16, channels last."""
    from wider_runs import resnet

    model = resnet().cuda().half().to(memory_format=torch.channels_last).eval()
    with torch.no_grad():
        for _ in range(2):
            images = torch.randn(24, 3, 224, 224, device="cuda", dtype=torch.float16)
            model(images.contiguous(memory_format=torch.channels_last)).argmax(1)
