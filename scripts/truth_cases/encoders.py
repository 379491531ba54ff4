"""Encoders, encoder-decoders and embedding tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812  # the name that everybody gives it
from torch import nn
from wider_runs import train

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CASES"]

CASES: dict[str, Callable[[], Any]] = {}


def case(function: Callable[[], Any]) -> Callable[[], Any]:
    """Register a case under its function's name."""
    CASES[function.__name__] = function
    return function


def pair_loss(model: nn.Module, batch: int, source: int, target: int) -> Callable[[], torch.Tensor]:
    """Return the loss of an encoder-decoder on random tokens."""

    def loss() -> torch.Tensor:
        tokens = torch.randint(3, 20000, (batch, source), device="cuda")
        labels = torch.randint(3, 20000, (batch, target), device="cuda")
        result: torch.Tensor = model(input_ids=tokens, labels=labels).loss
        return result

    return loss


@case
def t5_bf16_autocast() -> None:
    """Train a wide and shallow T5 with gated units in bfloat16 autocast."""
    import transformers

    config = transformers.T5Config(
        d_model=768,
        d_ff=2048,
        d_kv=64,
        num_heads=12,
        num_layers=2,
        feed_forward_proj="gated-gelu",
        decoder_start_token_id=0,
    )
    model = transformers.T5ForConditionalGeneration(config).cuda()
    train(model, torch.optim.AdamW(model.parameters()), pair_loss(model, 6, 192, 96), autocast=torch.bfloat16)


@case
def bart_fp32_clip() -> None:
    """Train a BART in float32 with clipping."""
    import transformers

    config = transformers.BartConfig(
        vocab_size=20000,
        d_model=512,
        encoder_layers=3,
        decoder_layers=3,
        encoder_attention_heads=8,
        decoder_attention_heads=8,
        encoder_ffn_dim=2048,
        decoder_ffn_dim=2048,
    )
    model = transformers.BartForConditionalGeneration(config).cuda()
    train(model, torch.optim.AdamW(model.parameters()), pair_loss(model, 4, 256, 128), clip=1.0)


@case
def whisper_fp16() -> None:
    """Train a Whisper of another width in float16 autocast, with 128 mel bands."""
    import transformers

    config = transformers.WhisperConfig(
        encoder_layers=2,
        decoder_layers=2,
        d_model=512,
        encoder_attention_heads=8,
        decoder_attention_heads=8,
        encoder_ffn_dim=2048,
        decoder_ffn_dim=2048,
        num_mel_bins=128,
    )
    model = transformers.WhisperForConditionalGeneration(config).cuda()

    def loss() -> torch.Tensor:
        sound = torch.randn(2, 128, 3000, device="cuda")
        labels = torch.randint(0, 50000, (2, 100), device="cuda")
        result: torch.Tensor = model(input_features=sound, labels=labels).loss
        return result

    train(model, torch.optim.AdamW(model.parameters()), loss, autocast=torch.float16)


@case
def roberta_reentrant_checkpointing() -> None:
    """Train a RoBERTa to fill masks, with reentrant gradient checkpointing."""
    import transformers

    config = transformers.RobertaConfig(num_hidden_layers=4, vocab_size=20000)
    model = transformers.RobertaForMaskedLM(config).cuda()
    model.gradient_checkpointing_enable({"use_reentrant": True})

    def loss() -> torch.Tensor:
        tokens = torch.randint(3, 20000, (8, 200), device="cuda")
        result: torch.Tensor = model(input_ids=tokens, labels=tokens).loss
        return result

    train(model, torch.optim.AdamW(model.parameters()), loss, autocast=torch.bfloat16)


@case
def encoder_bf16_pre_norm() -> None:
    """Train torch's own encoder, norm first, in bfloat16."""
    layer = nn.TransformerEncoderLayer(384, 6, 1536, batch_first=True, norm_first=True, activation="gelu")
    model = nn.Sequential(nn.TransformerEncoder(layer, 6, enable_nested_tensor=False), nn.Linear(384, 50))
    model = model.to(torch.bfloat16).cuda()

    def loss() -> torch.Tensor:
        source = torch.randn(16, 320, 384, device="cuda", dtype=torch.bfloat16)
        return F.cross_entropy(model(source).flatten(0, 1), torch.randint(0, 50, (5120,), device="cuda"))

    train(model, torch.optim.NAdam(model.parameters()), loss)


@case
def embedding_two_towers() -> None:
    """Train two embedding tables with dense gradients and a batch's own negatives."""
    users, items = nn.Embedding(120_000, 96).cuda(), nn.Embedding(60_000, 96).cuda()
    head = nn.Sequential(nn.Linear(96, 256), nn.ReLU(), nn.Linear(256, 64)).cuda()
    optimizer = torch.optim.AdamW([*users.parameters(), *items.parameters(), *head.parameters()])
    model = nn.ModuleList([users, items, head])

    def loss() -> torch.Tensor:
        left = head(users(torch.randint(0, 120_000, (4096,), device="cuda")))
        right = head(items(torch.randint(0, 60_000, (4096,), device="cuda")))
        return F.cross_entropy(left @ right.T, torch.arange(4096, device="cuda"))

    train(model, optimizer, loss)


@case
def embedding_sparse_sgd() -> None:
    """Train an embedding table with sparse gradients."""
    table = nn.Embedding(200_000, 64, sparse=True).cuda()
    head = nn.Linear(64, 8).cuda()
    optimizer = torch.optim.SGD([*table.parameters(), *head.parameters()], 0.1)

    def loss() -> torch.Tensor:
        found = table(torch.randint(0, 200_000, (1024, 12), device="cuda")).mean(1)
        return F.cross_entropy(head(found), torch.randint(0, 8, (1024,), device="cuda"))

    train(nn.ModuleList([table, head]), optimizer, loss)
