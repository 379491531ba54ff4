"""Third round: encoders, encoder-decoders, sound and pairs of images and texts."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812  # the name that everybody gives it
from torch import nn
from wider_runs import train

from truth_cases.registry import registry

__all__ = ["CASES"]

CASES, case = registry()


@case
def deberta_classifies_fp32() -> None:
    """Train a DeBERTa v2 to classify padded texts in float32, with clipping."""
    import transformers

    config = transformers.DebertaV2Config(
        vocab_size=20000,
        hidden_size=480,
        num_hidden_layers=4,
        num_attention_heads=8,
        intermediate_size=1440,
        relative_attention=True,
        position_buckets=64,
        pos_att_type=["p2c", "c2p"],
        norm_rel_ebd="layer_norm",
        share_att_key=True,
        num_labels=5,
    )
    model = transformers.DebertaV2ForSequenceClassification(config).cuda()

    def loss() -> torch.Tensor:
        tokens = torch.randint(3, 20000, (12, 180), device="cuda")
        mask = torch.ones_like(tokens)
        mask[:4, 90:] = 0
        labels = torch.randint(0, 5, (12,), device="cuda")
        result: torch.Tensor = model(input_ids=tokens, attention_mask=mask, labels=labels).loss
        return result

    train(model, torch.optim.AdamW(model.parameters(), 1e-5), loss, clip=1.0)


@case
def distilbert_tags_fp16() -> None:
    """Train a DistilBERT to tag words in float16 autocast with a scaler, two batches a step."""
    import transformers

    config = transformers.DistilBertConfig(n_layers=4, vocab_size=25000, num_labels=17)
    model = transformers.DistilBertForTokenClassification(config).cuda()

    def loss() -> torch.Tensor:
        tokens = torch.randint(3, 25000, (20, 140), device="cuda")
        mask = torch.ones_like(tokens)
        mask[:, 120:] = 0
        labels = torch.randint(0, 17, (20, 140), device="cuda").masked_fill(mask == 0, -100)
        result: torch.Tensor = model(input_ids=tokens, attention_mask=mask, labels=labels).loss
        return result

    optimizer = torch.optim.AdamW(model.parameters(), 5e-5)
    train(model, optimizer, loss, autocast=torch.float16, scaler=True, accumulate=2, steps=2)


@case
def electra_answers_capturable() -> None:
    """Train an ELECTRA to find answers in bfloat16, with AdamW that keeps its step on the device."""
    import transformers

    config = transformers.ElectraConfig(
        vocab_size=20000,
        embedding_size=128,
        hidden_size=512,
        num_hidden_layers=6,
        num_attention_heads=8,
        intermediate_size=2048,
    )
    model = transformers.ElectraForQuestionAnswering(config).to(torch.bfloat16).cuda()

    def loss() -> torch.Tensor:
        tokens = torch.randint(3, 20000, (10, 384), device="cuda")
        start, end = (torch.randint(0, 384, (10,), device="cuda") for _ in range(2))
        result: torch.Tensor = model(input_ids=tokens, start_positions=start, end_positions=end).loss
        return result

    train(model, torch.optim.AdamW(model.parameters(), 1e-4, capturable=True), loss)


@case
def mbart_torch_adafactor() -> None:
    """Train an mBART in bfloat16 autocast with torch's own Adafactor and smoothed labels."""
    import transformers

    config = transformers.MBartConfig(
        vocab_size=30000,
        d_model=512,
        encoder_layers=2,
        decoder_layers=4,
        encoder_attention_heads=8,
        decoder_attention_heads=8,
        encoder_ffn_dim=1536,
        decoder_ffn_dim=1536,
    )
    model = transformers.MBartForConditionalGeneration(config).cuda()

    def loss() -> torch.Tensor:
        source = torch.randint(3, 30000, (6, 220), device="cuda")
        target = torch.randint(3, 30000, (6, 90), device="cuda")
        logits = model(input_ids=source, decoder_input_ids=target).logits
        return F.cross_entropy(logits.flatten(0, 1), target.flatten(), label_smoothing=0.1)

    train(model, torch.optim.Adafactor(model.parameters()), loss, autocast=torch.bfloat16)


@case
def pegasus_beams() -> None:
    """Generate with a Pegasus in float16 by four beams."""
    import transformers

    config = transformers.PegasusConfig(
        vocab_size=20000,
        d_model=512,
        encoder_layers=3,
        decoder_layers=3,
        encoder_attention_heads=8,
        decoder_attention_heads=8,
        encoder_ffn_dim=2048,
        decoder_ffn_dim=2048,
    )
    model = transformers.PegasusForConditionalGeneration(config).to(torch.float16).cuda().eval()
    tokens = torch.randint(3, 20000, (6, 150), device="cuda")
    model.generate(tokens, num_beams=4, max_new_tokens=24, min_new_tokens=24, do_sample=False)


@case
def wav2vec2_ctc_fp32() -> None:
    """Train a Wav2Vec2 on sound with CTC in float32; its convolutions are frozen."""
    import transformers

    config = transformers.Wav2Vec2Config(
        hidden_size=384,
        num_hidden_layers=4,
        num_attention_heads=6,
        intermediate_size=1536,
        conv_dim=(256,) * 7,
        num_conv_pos_embeddings=64,
        num_conv_pos_embedding_groups=8,
        mask_time_prob=0.0,
        layerdrop=0.0,
        vocab_size=40,
    )
    model = transformers.Wav2Vec2ForCTC(config).cuda()
    model.freeze_feature_encoder()

    def loss() -> torch.Tensor:
        sound = torch.randn(4, 48000, device="cuda")
        labels = torch.randint(1, 40, (4, 30), device="cuda")
        result: torch.Tensor = model(input_values=sound, labels=labels).loss
        return result

    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    train(model, torch.optim.AdamW(trained, 1e-4), loss)


@case
def clip_contrastive() -> None:
    """Train a CLIP on a batch's own negatives in bfloat16 autocast."""
    import transformers

    config = transformers.CLIPConfig(
        text_config={
            "vocab_size": 20000,
            "hidden_size": 384,
            "intermediate_size": 1536,
            "num_hidden_layers": 4,
            "num_attention_heads": 6,
        },
        vision_config={
            "hidden_size": 512,
            "intermediate_size": 2048,
            "num_hidden_layers": 5,
            "num_attention_heads": 8,
            "image_size": 160,
            "patch_size": 16,
        },
        projection_dim=256,
    )
    model = transformers.CLIPModel(config).cuda()

    def loss() -> torch.Tensor:
        tokens = torch.randint(3, 20000, (48, 64), device="cuda")
        images = torch.randn(48, 3, 160, 160, device="cuda")
        result: torch.Tensor = model(input_ids=tokens, pixel_values=images, return_loss=True).loss
        return result

    train(model, torch.optim.AdamW(model.parameters(), 1e-4), loss, autocast=torch.bfloat16)


class Translator(nn.Module):
    """Torch's own encoder-decoder between two vocabularies."""

    def __init__(self) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(12000, 320), nn.Embedding(15000, 320)
        self.body = nn.Transformer(320, 8, 3, 3, 1280, batch_first=True)
        self.head = nn.Linear(320, 15000)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Return scores for the next token of the target."""
        causal = self.body.generate_square_subsequent_mask(target.shape[1], device=target.device)
        padding = source == 0
        hidden = self.body(
            self.source(source),
            self.target(target),
            tgt_mask=causal,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )
        scores: torch.Tensor = self.head(hidden)
        return scores


@case
def torch_transformer_fp16() -> None:
    """Train torch's own encoder-decoder in float16 autocast with a scaler."""
    model = Translator().cuda()

    def loss() -> torch.Tensor:
        source = torch.randint(1, 12000, (24, 110), device="cuda")
        source[:, 100:] = 0
        target = torch.randint(1, 15000, (24, 81), device="cuda")
        return F.cross_entropy(model(source, target[:, :-1]).transpose(1, 2), target[:, 1:])

    train(model, torch.optim.Adam(model.parameters(), 1e-4), loss, autocast=torch.float16, scaler=True)


@case
def t5_teacher_student() -> None:
    """Distil a larger T5 into a smaller one in bfloat16."""
    import transformers

    def build(layers: int, **options: int) -> nn.Module:
        config = transformers.T5Config(num_layers=layers, decoder_start_token_id=0, vocab_size=20000, **options)
        model: nn.Module = transformers.T5ForConditionalGeneration(config).to(torch.bfloat16).cuda()
        return model

    teacher, student = build(4, d_model=640, d_ff=2560, num_heads=10).eval(), build(2, d_model=384, num_heads=6)

    def loss() -> torch.Tensor:
        source = torch.randint(3, 20000, (8, 130), device="cuda")
        target = torch.randint(3, 20000, (8, 60), device="cuda")
        with torch.no_grad():
            wanted = teacher(input_ids=source, labels=target).logits
        found = student(input_ids=source, labels=target)
        apart = F.kl_div(F.log_softmax(found.logits / 2, -1), F.softmax(wanted / 2, -1), reduction="batchmean")
        result: torch.Tensor = found.loss + 4 * apart
        return result

    train(student, torch.optim.AdamW(student.parameters(), 1e-4), loss)
