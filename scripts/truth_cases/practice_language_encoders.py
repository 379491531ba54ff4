"""Practice: encoders and encoder-decoders of families that no frozen round had."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812  # the name that everybody gives it
from torch import nn
from wider_runs import train

from truth_cases.registry import registry

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CASES", "built", "pairs", "texts"]

CASES, case = registry()

SHAPE = {"hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 3, "num_attention_heads": 8}
PAIR = {
    "d_model": 512,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 8,
    "decoder_attention_heads": 8,
    "encoder_ffn_dim": 1536,
    "decoder_ffn_dim": 1536,
}


def built(config: str, model: str, **options: Any) -> nn.Module:
    """Build a model of transformers with random weights, on the device."""
    import transformers

    result: nn.Module = getattr(transformers, model)(getattr(transformers, config)(**options)).cuda()
    return result


def texts(model: nn.Module, batch: int, length: int, labels: int = 0) -> Callable[[], torch.Tensor]:
    """Return the loss of padded texts: of each word, or of classes if there are any."""

    def loss() -> torch.Tensor:
        tokens = torch.randint(5, 8000, (batch, length), device="cuda")
        mask = torch.ones(batch, length, dtype=torch.long, device="cuda")
        mask[: batch // 2, length - 30 :] = 0
        wanted = torch.randint(0, labels, (batch,), device="cuda") if labels else tokens.masked_fill(mask == 0, -100)
        result: torch.Tensor = model(input_ids=tokens, attention_mask=mask, labels=wanted).loss
        return result

    return loss


def pairs(model: nn.Module, batch: int, source: int, target: int) -> Callable[[], torch.Tensor]:
    """Return the loss of padded pairs of texts."""

    def loss() -> torch.Tensor:
        tokens = torch.randint(5, 8000, (batch, source), device="cuda")
        mask = torch.ones_like(tokens)
        mask[1::2, source - 20 :] = 0
        labels = torch.randint(5, 8000, (batch, target), device="cuda")
        labels[1::2, target - 9 :] = -100
        result: torch.Tensor = model(input_ids=tokens, attention_mask=mask, labels=labels).loss
        return result

    return loss


def _adamw(model: nn.Module, rate: float = 1e-4) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), rate)


@case
def albert_fp16_scaler() -> None:
    """Train an ALBERT (one layer many times) to fill masks in float16 autocast."""
    model = built("AlbertConfig", "AlbertForMaskedLM", vocab_size=16000, embedding_size=128, **SHAPE)
    train(model, _adamw(model), texts(model, 12, 157), autocast=torch.float16, scaler=True, steps=12)


@case
def modernbert_padded_bf16() -> None:
    """Train a ModernBERT, windows and padding, in bfloat16 autocast."""
    model = built(
        "ModernBertConfig", "ModernBertForMaskedLM", vocab_size=16000, pad_token_id=0, local_attention=64,
        **{**SHAPE, "num_hidden_layers": 4},
    )  # fmt: skip
    train(model, _adamw(model), texts(model, 8, 301), autocast=torch.bfloat16)


@case
def longformer_fp32() -> None:
    """Train a Longformer with global attention at the first word, in float32."""
    model = built(
        "LongformerConfig",
        "LongformerForSequenceClassification",
        vocab_size=16000,
        attention_window=64,
        max_position_embeddings=1030,
        num_labels=4,
        **SHAPE,
    )
    train(model, _adamw(model), texts(model, 4, 512, 4))


@case
def bigbird_block_sparse() -> None:
    """Train a BigBird with its sparse blocks in bfloat16 autocast."""
    model = built(
        "BigBirdConfig",
        "BigBirdForMaskedLM",
        vocab_size=16000,
        block_size=16,
        num_random_blocks=2,
        max_position_embeddings=1024,
        **SHAPE,
    )
    train(model, _adamw(model), texts(model, 3, 512), autocast=torch.bfloat16)


@case
def mpnet_fp32_contrastive() -> None:
    """Train sentence vectors of an MPNet on a batch's own negatives."""
    model = built("MPNetConfig", "MPNetModel", vocab_size=16000, **SHAPE)

    def encode() -> torch.Tensor:
        tokens = torch.randint(5, 8000, (32, 61), device="cuda")
        mask = torch.ones_like(tokens)
        mask[::3, 40:] = 0
        hidden = model(input_ids=tokens, attention_mask=mask).last_hidden_state
        wide = mask.unsqueeze(-1).to(hidden.dtype)
        return F.normalize((hidden * wide).sum(1) / wide.sum(1).clamp(min=1e-9), dim=-1)

    def loss() -> torch.Tensor:
        scores = encode() @ encode().T * 20
        return F.cross_entropy(scores, torch.arange(32, device="cuda"))

    train(model, _adamw(model), loss, clip=1.0)


@case
def fnet_fp32() -> None:
    """Train an FNet (Fourier transforms) in float32."""
    model = built("FNetConfig", "FNetForMaskedLM", vocab_size=16000, max_position_embeddings=512,
                  hidden_size=512, intermediate_size=1536, num_hidden_layers=3)  # fmt: skip

    def loss() -> torch.Tensor:
        tokens = torch.randint(5, 8000, (8, 200), device="cuda")
        result: torch.Tensor = model(input_ids=tokens, labels=tokens).loss
        return result

    train(model, _adamw(model), loss)


@case
def xlmr_eager_fp16_true() -> None:
    """Train an XLM-RoBERTa, attention written out, weights in float16, plain SGD."""
    model = built(
        "XLMRobertaConfig",
        "XLMRobertaForSequenceClassification",
        vocab_size=16000,
        attn_implementation="eager",
        num_labels=2,
        **SHAPE,
    ).half()
    train(model, torch.optim.SGD(model.parameters(), 1e-4), texts(model, 10, 190, 2))


@case
def convbert_bf16() -> None:
    """Train a ConvBERT (spans by convolution) in bfloat16 autocast."""
    model = built("ConvBertConfig", "ConvBertForMaskedLM", vocab_size=16000, embedding_size=256, **SHAPE)
    train(model, _adamw(model), texts(model, 6, 128), autocast=torch.bfloat16)


@case
def esm_rotary_bf16() -> None:
    """Train an ESM on proteins, rotary positions, in bfloat16."""
    model = built(
        "EsmConfig", "EsmForMaskedLM", vocab_size=8000, pad_token_id=1, mask_token_id=32,
        position_embedding_type="rotary", token_dropout=True, **SHAPE,
    ).to(torch.bfloat16)  # fmt: skip
    train(model, _adamw(model), texts(model, 6, 290))


@case
def mt5_fp32_clip() -> None:
    """Train an mT5 in float32 with clipping."""
    model = built(
        "MT5Config", "MT5ForConditionalGeneration", vocab_size=24000, d_model=384, d_kv=48, d_ff=1024, num_layers=3,
        num_heads=8, decoder_start_token_id=0,
    )  # fmt: skip
    train(model, torch.optim.AdamW(model.parameters(), 1e-4, foreach=False), pairs(model, 5, 173, 77), clip=1.0)


@case
def led_bf16() -> None:
    """Train a LED (windows in the encoder) in bfloat16 autocast with checkpointing."""
    model = built(
        "LEDConfig", "LEDForConditionalGeneration", vocab_size=16000, attention_window=64,
        max_encoder_position_embeddings=1024, **PAIR,
    )  # fmt: skip
    model.gradient_checkpointing_enable()
    train(model, _adamw(model), pairs(model, 3, 640, 90), autocast=torch.bfloat16)


@case
def marian_fp16_scaler() -> None:
    """Train a Marian in float16 autocast with a scaler and two batches a step."""
    model = built(
        "MarianConfig", "MarianMTModel", vocab_size=16000, pad_token_id=0,
        decoder_start_token_id=0, dropout=0.1, **PAIR,
    )  # fmt: skip
    options = {"autocast": torch.float16, "scaler": True, "accumulate": 2, "steps": 8}
    train(model, _adamw(model, 1e-5), pairs(model, 8, 97, 83), **options)


@case
def blenderbot_lion() -> None:
    """Train a BlenderBot in bfloat16 with 32-bit Lion."""
    import bitsandbytes as bnb

    model = built("BlenderbotConfig", "BlenderbotForConditionalGeneration", vocab_size=16000, **PAIR)
    model = model.to(torch.bfloat16)
    train(model, bnb.optim.Lion32bit(model.parameters(), 1e-5), pairs(model, 6, 120, 100))


@case
def prophetnet_fp32() -> None:
    """Train a ProphetNet, which foretells two words, in float32."""
    model = built(
        "ProphetNetConfig", "ProphetNetForConditionalGeneration", vocab_size=16000, hidden_size=384,
        encoder_ffn_dim=1024, decoder_ffn_dim=1024, num_encoder_layers=2, num_decoder_layers=2,
        num_encoder_attention_heads=6, num_decoder_attention_heads=6,
    )  # fmt: skip
    train(model, _adamw(model), pairs(model, 4, 110, 70))


@case
def switch_experts_fp32() -> None:
    """Train a Switch Transformer in float32."""
    model = built(
        "SwitchTransformersConfig", "SwitchTransformersForConditionalGeneration", vocab_size=16000, d_model=384,
        d_kv=64, d_ff=1024, num_layers=2, num_heads=6, num_experts=4, decoder_start_token_id=0,
        num_sparse_encoder_layers=1, num_sparse_decoder_layers=1, num_decoder_layers=2, expert_capacity=64,
    )  # fmt: skip
    train(model, _adamw(model), pairs(model, 4, 130, 60))


@case
def longt5_local_bf16() -> None:
    """Train a LongT5 with local attention in bfloat16."""
    model = built(
        "LongT5Config", "LongT5ForConditionalGeneration", vocab_size=16000, d_model=384, d_kv=64, d_ff=1024,
        num_layers=2, num_heads=6, local_radius=32, decoder_start_token_id=0,
    ).to(torch.bfloat16)  # fmt: skip
    train(model, _adamw(model), pairs(model, 3, 500, 64))


@case
def speech2text_fp16_beams() -> None:
    """Transcribe sound in float16 by three beams that are sampled."""
    model = built(
        "Speech2TextConfig", "Speech2TextForConditionalGeneration", vocab_size=8000, **PAIR,
    ).half().eval()  # fmt: skip
    sound = torch.randn(4, 400, 80, device="cuda", dtype=torch.float16)
    model.generate(sound, num_beams=3, do_sample=True, max_new_tokens=20, min_new_tokens=20)
