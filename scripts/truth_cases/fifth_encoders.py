"""Fifth round: encoders, sentence vectors, and encoder-decoders for texts and speech."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812  # the name that everybody gives it
from wider_runs import train

from truth_cases.fifth_language import train_scaled
from truth_cases.fourth_encoders import lengths_mask, whisper
from truth_cases.registry import registry

__all__ = ["CASES"]

CASES, case = registry()
BF16 = torch.bfloat16


@case
def roberta_base_answers_bf16() -> None:
    """Train a RoBERTa base to find answers in padded texts of 384, bfloat16 autocast, clipping."""
    import transformers

    config = transformers.RobertaConfig(vocab_size=50265, max_position_embeddings=514, type_vocab_size=1)
    model = transformers.RobertaForQuestionAnswering(config).cuda()

    def loss() -> torch.Tensor:
        mask = lengths_mask(8, 384, 25)
        tokens = torch.randint(5, 50000, mask.shape).masked_fill(mask == 0, 1)
        result: torch.Tensor = model(
            input_ids=tokens.cuda(),
            attention_mask=mask.cuda(),
            start_positions=torch.randint(0, 200, (8,)).cuda(),
            end_positions=torch.randint(0, 200, (8,)).cuda(),
        ).loss
        return result

    train(model, torch.optim.AdamW(model.parameters(), 3e-5), loss, autocast=BF16, clip=1.0)


@case
def bert_large_scores_fp16() -> None:
    """Train eight layers of a BERT large to score padded texts in float16 with a scaler."""
    import transformers

    config = transformers.BertConfig(
        hidden_size=1024, num_hidden_layers=8, num_attention_heads=16, intermediate_size=4096, num_labels=1
    )
    model = transformers.BertForSequenceClassification(config).cuda()

    def loss() -> torch.Tensor:
        mask = lengths_mask(24, 96, 8)
        tokens = torch.randint(1000, 30000, mask.shape) * mask
        scores = torch.rand(24)
        result: torch.Tensor = model(input_ids=tokens.cuda(), attention_mask=mask.cuda(), labels=scores.cuda()).loss
        return result

    train_scaled(model, torch.optim.AdamW(model.parameters(), 1e-5, weight_decay=0.01), loss, clip=1.0)


@case
def sentences_triplets_fp32() -> None:
    """Train sentence vectors of a small BERT on triplets in float32: three passes a step, means over padded texts."""
    import transformers

    config = transformers.BertConfig(
        hidden_size=512, num_hidden_layers=4, num_attention_heads=8, intermediate_size=2048
    )
    model = transformers.BertModel(config, add_pooling_layer=False).cuda()

    def encode(longest: int) -> torch.Tensor:
        mask = lengths_mask(32, longest, 5)
        tokens = torch.randint(1000, 30000, mask.shape) * mask
        shown = mask.cuda()
        hidden = model(input_ids=tokens.cuda(), attention_mask=shown).last_hidden_state
        weights = shown.unsqueeze(-1).to(hidden.dtype)
        return (hidden * weights).sum(1) / weights.sum(1)

    def loss() -> torch.Tensor:
        return F.triplet_margin_loss(encode(40), encode(80), encode(72), margin=5.0)

    train(model, torch.optim.AdamW(model.parameters(), 2e-5), loss)


@case
def retriever_hard_negatives_fp16() -> None:
    """Train a retriever of BGE-small's shape on three passages a question, first tokens' vectors, float16, scaler."""
    import transformers

    config = transformers.BertConfig(
        hidden_size=384, num_hidden_layers=12, num_attention_heads=12, intermediate_size=1536
    )
    model = transformers.BertModel(config).cuda()

    def encode(count: int, longest: int) -> torch.Tensor:
        mask = lengths_mask(count, longest, 3)
        tokens = torch.randint(1000, 30000, mask.shape) * mask
        hidden = model(input_ids=tokens.cuda(), attention_mask=mask.cuda()).last_hidden_state
        return F.normalize(hidden[:, 0], dim=-1)

    def loss() -> torch.Tensor:
        scores = encode(24, 32) @ encode(72, 112).T / 0.05
        return F.cross_entropy(scores, torch.arange(24, device="cuda") * 3)

    train_scaled(model, torch.optim.AdamW(model.parameters(), 1e-5), loss, scale=64.0)


@case
def flan_t5_base_bf16_adafactor() -> None:
    """Train half of a Flan-T5 base on padded pairs, weights in bfloat16, with Adafactor at a fixed rate."""
    import transformers
    from transformers.optimization import Adafactor

    config = transformers.T5Config(
        d_model=768,
        d_ff=2048,
        d_kv=64,
        num_heads=12,
        num_layers=6,
        feed_forward_proj="gated-gelu",
        tie_word_embeddings=False,
        decoder_start_token_id=0,
    )
    model = transformers.T5ForConditionalGeneration(config).to(BF16).cuda()

    def loss() -> torch.Tensor:
        mask, wanted = lengths_mask(8, 224, 16), lengths_mask(8, 48, 4)
        tokens = torch.randint(5, 32000, mask.shape) * mask
        labels = torch.randint(5, 32000, wanted.shape).masked_fill(wanted == 0, -100)
        result: torch.Tensor = model(input_ids=tokens.cuda(), attention_mask=mask.cuda(), labels=labels.cuda()).loss
        return result

    optimizer = Adafactor(model.parameters(), lr=1e-3, relative_step=False, scale_parameter=False, warmup_init=False)
    train(model, optimizer, loss)


@case
def whisper_small_8bit_bf16() -> None:
    """Train half of a Whisper small, bfloat16 autocast, checkpointing, 8-bit AdamW, two batches a step."""
    import bitsandbytes as bnb

    model = whisper(768, 6, 12).cuda()
    model.gradient_checkpointing_enable({"use_reentrant": False})

    def loss() -> torch.Tensor:
        sound = torch.randn(4, 80, 3000).cuda()
        labels = torch.randint(0, 50000, (4, 56)).masked_fill(lengths_mask(4, 56, 9) == 0, -100).cuda()
        result: torch.Tensor = model(input_features=sound, labels=labels).loss
        return result

    optimizer = bnb.optim.AdamW8bit(model.parameters(), 1e-5)
    train(model, optimizer, loss, autocast=BF16, accumulate=2, clip=1.0, steps=2)


@case
def texts_embedded_half() -> None:
    """Embed texts of four lengths by a BERT base in float16 in inference mode, vectors kept on the host."""
    import transformers

    model = transformers.BertModel(transformers.BertConfig()).half().cuda().eval()
    kept = []
    with torch.inference_mode():
        for longest in (448, 320, 160, 96):
            mask = lengths_mask(64, longest, 9)
            tokens = torch.randint(1000, 30000, mask.shape) * mask
            hidden = model(input_ids=tokens.cuda(), attention_mask=mask.cuda()).last_hidden_state
            kept.append(F.normalize(hidden[:, 0].float(), dim=-1).cpu())
    torch.cat(kept)
