"""Language models, all parameters trained: optimizers, loops and precisions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812  # the name that everybody gives it
from wider_runs import llama, token_loss, train

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

__all__ = ["CASES", "causal"]

CASES: dict[str, Callable[[], Any]] = {}


def case(function: Callable[[], Any]) -> Callable[[], Any]:
    """Register a case under its function's name."""
    CASES[function.__name__] = function
    return function


def causal(name: str, *, dtype: torch.dtype = torch.bfloat16, **options: Any) -> nn.Module:
    """Build a small causal language model of a family, with random weights."""
    import transformers

    config = getattr(transformers, f"{name}Config")(
        vocab_size=20000,
        hidden_size=768,
        intermediate_size=2048,
        num_hidden_layers=4,
        num_attention_heads=12,
        **{**({"num_key_value_heads": 4} if name in {"Qwen2", "Qwen3", "Mistral", "Gemma2"} else {}), **options},
    )
    model: nn.Module = getattr(transformers, f"{name}ForCausalLM")(config).to(dtype).cuda()
    return model


@case
def qwen2_full_adamw() -> None:
    """Train all of a Qwen2 with AdamW and clipping."""
    model = causal("Qwen2")
    train(model, torch.optim.AdamW(model.parameters()), token_loss(model, 3, 700), clip=1.0)


@case
def qwen3_sgd_nesterov() -> None:
    """Train a Qwen3 with SGD, momentum, Nesterov's way."""
    model = causal("Qwen3", head_dim=64)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, nesterov=True, weight_decay=0.1)
    train(model, optimizer, token_loss(model, 6, 384))


@case
def gemma2_adafactor_relative() -> None:
    """Train a Gemma 2 with transformers' Adafactor, which sets its own step size."""
    from transformers.optimization import Adafactor

    model = causal("Gemma2", head_dim=64, attn_implementation="eager")
    train(model, Adafactor(model.parameters(), relative_step=True, warmup_init=True, lr=None), token_loss(model))


@case
def neox_adamw_8bit() -> None:
    """Train a GPT-NeoX in float32 with bfloat16 autocast and 8-bit AdamW."""
    import bitsandbytes as bnb

    model = causal("GPTNeoX", dtype=torch.float32)
    train(model, bnb.optim.AdamW8bit(model.parameters(), 1e-4), token_loss(model), autocast=torch.bfloat16)


@case
def mistral_paged_adamw_8bit() -> None:
    """Train a Mistral with a sliding window, paged 8-bit AdamW."""
    import bitsandbytes as bnb

    model = causal("Mistral", sliding_window=256)
    train(model, bnb.optim.PagedAdamW8bit(model.parameters(), 1e-4), token_loss(model, 2, 1024))


@case
def phi_lion_8bit() -> None:
    """Train a Phi with 8-bit Lion."""
    import bitsandbytes as bnb

    model = causal("Phi")
    train(model, bnb.optim.Lion8bit(model.parameters(), 1e-4), token_loss(model, 5, 300))


@case
def llama_long_8k() -> None:
    """Train with grouped queries on one sequence of 8,192 tokens."""
    model = llama(num_key_value_heads=2, num_hidden_layers=3)
    train(model, torch.optim.AdamW(model.parameters()), token_loss(model, 1, 8192))


@case
def opt_fp32() -> None:
    """Train an OPT in float32 with a fused Adam that keeps the largest second moment."""
    import transformers

    config = transformers.OPTConfig(
        vocab_size=20000,
        hidden_size=512,
        ffn_dim=2048,
        num_hidden_layers=4,
        num_attention_heads=8,
        word_embed_proj_dim=512,
    )
    model = transformers.OPTForCausalLM(config).cuda()
    train(model, torch.optim.Adam(model.parameters(), amsgrad=True), token_loss(model, 4, 320))


@case
def llama_fp16_scaler_accumulate() -> None:
    """Train in float16 autocast with a scaler, three batches a step."""
    model = llama().float()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-5)
    train(model, optimizer, token_loss(model, 2, 512), autocast=torch.float16, scaler=True, accumulate=3, steps=2)


@case
def bloom_rmsprop() -> None:
    """Train a BLOOM (ALiBi, embedding norm) with RMSprop."""
    import transformers

    config = transformers.BloomConfig(vocab_size=20000, hidden_size=512, n_layer=4, n_head=8)
    model = transformers.BloomForCausalLM(config).to(torch.bfloat16).cuda()
    train(model, torch.optim.RMSprop(model.parameters(), 1e-4, momentum=0.9), token_loss(model, 4, 256))


@case
def preference_two_models() -> None:
    """Train a policy against a frozen reference, as direct preference optimization does."""
    policy, reference = causal("Qwen2"), causal("Qwen2").requires_grad_(requires_grad=False).eval()

    def score(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
        logits = model(input_ids=tokens).logits[:, :-1].float()
        return F.log_softmax(logits, -1).gather(-1, tokens[:, 1:, None]).squeeze(-1).sum(-1)

    def loss() -> torch.Tensor:
        chosen, rejected = (torch.randint(0, 1000, (2, 256), device="cuda") for _ in range(2))
        tokens = torch.cat([chosen, rejected])
        with torch.no_grad():
            base = score(reference, tokens)
        margin = (score(policy, tokens) - base).chunk(2)
        return -F.logsigmoid(0.1 * (margin[0] - margin[1])).mean()

    train(policy, torch.optim.AdamW(policy.parameters(), 1e-6), loss)
