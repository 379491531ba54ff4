"""Fourth round: encoders, and encoder-decoders for texts and speech."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812  # the name that everybody gives it
from torch import nn
from wider_runs import train

from truth_cases.registry import registry

__all__ = ["CASES", "lengths_mask"]

CASES, case = registry()
BF16, F16 = torch.bfloat16, torch.float16


def lengths_mask(batch: int, longest: int, step: int) -> torch.Tensor:
    """Return a mask of texts, each some tokens shorter than the one before."""
    lengths = torch.tensor([longest - step * (index % 8) for index in range(batch)])
    return (torch.arange(longest)[None] < lengths[:, None]).long()


@case
def bert_base_masked_words_bf16() -> None:
    """Train a BERT base to fill in a sixth of the words of padded texts, bfloat16 autocast."""
    import transformers

    model = transformers.BertForMaskedLM(transformers.BertConfig()).cuda()

    def loss() -> torch.Tensor:
        mask = lengths_mask(16, 128, 9)
        tokens = torch.randint(1000, 30000, (16, 128)) * mask
        hidden = (torch.rand(16, 128) < 0.15) & (mask == 1)
        labels = tokens.masked_fill(~hidden, -100)
        inputs = tokens.masked_fill(hidden, 103)
        result: torch.Tensor = model(input_ids=inputs.cuda(), attention_mask=mask.cuda(), labels=labels.cuda()).loss
        return result

    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, weight_decay=0.01)
    train(model, optimizer, loss, autocast=BF16, clip=1.0)


@case
def roberta_settled_fp16_split_limited() -> None:
    """Train a RoBERTa base to classify in float16 until the scale has settled, lengths that change, splits limited."""
    import transformers

    model = transformers.RobertaForSequenceClassification(transformers.RobertaConfig(vocab_size=50265)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), 2e-5)
    scaler = torch.amp.GradScaler("cuda")
    model.train()
    for step in range(14):
        mask = lengths_mask(16, (128, 96, 112, 80)[step % 4], 7)
        tokens = torch.randint(5, 50000, mask.shape).masked_fill(mask == 0, 1)
        with torch.autocast("cuda", F16):
            labels = torch.randint(0, 2, (16,)).cuda()
            loss = model(input_ids=tokens.cuda(), attention_mask=mask.cuda(), labels=labels).loss
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


@case
def minilm_contrastive_bf16() -> None:
    """Train a MiniLM's sentence vectors on a batch's own negatives, means over padded texts, bfloat16 autocast."""
    import transformers

    config = transformers.BertConfig(
        hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536
    )
    model = transformers.BertModel(config).cuda()

    def encode(longest: int) -> torch.Tensor:
        mask = lengths_mask(64, longest, 4)
        tokens = torch.randint(1000, 30000, mask.shape) * mask
        mask = mask.cuda()
        hidden = model(input_ids=tokens.cuda(), attention_mask=mask).last_hidden_state
        shown = mask[:, :, None].expand(hidden.shape).float()
        return F.normalize((hidden * shown).sum(1) / shown.sum(1).clamp(min=1e-9), dim=1)

    def loss() -> torch.Tensor:
        scores = encode(48) @ encode(96).T * 20
        return F.cross_entropy(scores, torch.arange(64, device="cuda"))

    train(model, torch.optim.AdamW(model.parameters(), 2e-5), loss, autocast=BF16, steps=4)


@case
def xlmr_tags_frozen_fp32() -> None:
    """Train the upper four layers of an XLM-R base to tag words, its large table and the rest frozen, float32."""
    import transformers

    config = transformers.XLMRobertaConfig(
        vocab_size=250002, max_position_embeddings=514, type_vocab_size=1, num_labels=9
    )
    model = transformers.XLMRobertaForTokenClassification(config).cuda()
    model.roberta.embeddings.requires_grad_(requires_grad=False)
    for layer in model.roberta.encoder.layer[:8]:
        layer.requires_grad_(requires_grad=False)

    def loss() -> torch.Tensor:
        mask = lengths_mask(16, 160, 12)
        tokens = torch.randint(5, 250000, mask.shape).masked_fill(mask == 0, 1)
        labels = torch.randint(0, 9, mask.shape).masked_fill(mask == 0, -100)
        result: torch.Tensor = model(input_ids=tokens.cuda(), attention_mask=mask.cuda(), labels=labels.cuda()).loss
        return result

    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 3e-5)
    train(model, optimizer, loss, clip=1.0)


@case
def t5_small_padded_bf16() -> None:
    """Train a T5 small on padded pairs in bfloat16 autocast with fused AdamW."""
    import transformers

    config = transformers.T5Config(num_layers=6, decoder_start_token_id=0)
    model = transformers.T5ForConditionalGeneration(config).cuda()

    def loss() -> torch.Tensor:
        mask, wanted = lengths_mask(8, 256, 20), lengths_mask(8, 64, 5)
        tokens = torch.randint(5, 32000, mask.shape) * mask
        labels = torch.randint(5, 32000, wanted.shape).masked_fill(wanted == 0, -100)
        result: torch.Tensor = model(input_ids=tokens.cuda(), attention_mask=mask.cuda(), labels=labels.cuda()).loss
        return result

    train(model, torch.optim.AdamW(model.parameters(), 1e-4, fused=True), loss, autocast=BF16)


@case
def bart_base_settled_fp16() -> None:
    """Train a BART base to summarize in float16 until the scale has settled, two batches a step."""
    import transformers

    config = transformers.BartConfig(
        d_model=768,
        encoder_layers=6,
        decoder_layers=6,
        encoder_attention_heads=12,
        decoder_attention_heads=12,
        encoder_ffn_dim=3072,
        decoder_ffn_dim=3072,
    )
    model = transformers.BartForConditionalGeneration(config).cuda()

    def loss() -> torch.Tensor:
        mask = lengths_mask(4, 320, 30)
        tokens = torch.randint(5, 50000, mask.shape).masked_fill(mask == 0, 1)
        labels = torch.randint(5, 50000, (4, 64))
        result: torch.Tensor = model(input_ids=tokens.cuda(), attention_mask=mask.cuda(), labels=labels.cuda()).loss
        return result

    optimizer = torch.optim.AdamW(model.parameters(), 3e-5)
    train(model, optimizer, loss, autocast=F16, scaler=True, accumulate=2, clip=0.1, steps=12)


def whisper(width: int, layers: int, heads: int) -> nn.Module:
    """Build a Whisper."""
    import transformers

    config = transformers.WhisperConfig(
        d_model=width,
        encoder_layers=layers,
        decoder_layers=layers,
        encoder_attention_heads=heads,
        decoder_attention_heads=heads,
        encoder_ffn_dim=4 * width,
        decoder_ffn_dim=4 * width,
    )
    model: nn.Module = transformers.WhisperForConditionalGeneration(config)
    return model


@case
def whisper_base_decoder_bf16() -> None:
    """Train the decoder of a Whisper base, its encoder frozen, bfloat16 autocast."""
    model = whisper(512, 6, 8).cuda()
    model.freeze_encoder()

    def loss() -> torch.Tensor:
        sound = torch.randn(8, 80, 3000).cuda()
        labels = torch.randint(0, 50000, (8, 72)).masked_fill(lengths_mask(8, 72, 6) == 0, -100).cuda()
        result: torch.Tensor = model(input_features=sound, labels=labels).loss
        return result

    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-5)
    train(model, optimizer, loss, autocast=BF16, clip=1.0)


@case
def whisper_tiny_transcribes_fp16() -> None:
    """Transcribe four clips by a Whisper tiny in float16, greedily, with a KV cache."""
    model = whisper(384, 4, 6).half().cuda().eval()
    for _ in range(2):
        sound = torch.randn(4, 80, 3000).half().cuda()
        model.generate(input_features=sound, max_new_tokens=40, min_new_tokens=40, do_sample=False)


@case
def distilbert_scores_half() -> None:
    """Score texts of many lengths by a DistilBERT in float16 in inference mode, answers gathered on the device."""
    import transformers

    model = transformers.DistilBertForSequenceClassification(transformers.DistilBertConfig()).half().cuda().eval()
    found = []
    with torch.inference_mode():
        for longest in (256, 192, 128, 64):
            mask = lengths_mask(96, longest, 5)
            tokens = torch.randint(1000, 30000, mask.shape) * mask
            logits = model(input_ids=tokens.cuda(), attention_mask=mask.cuda()).logits
            found.append(logits.float().softmax(-1))
    torch.cat(found).argmax(-1).tolist()
