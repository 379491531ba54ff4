"""Practice, second set: further families of language models, and layers written by hand."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  # the name that everybody gives it
from torch import nn
from wider_runs import token_loss, train

from truth_cases.practice_language import padded
from truth_cases.practice_language_encoders import built, pairs, texts
from truth_cases.registry import registry
from truth_cases.third_language import family

__all__ = ["CASES"]

CASES, case = registry()

SHAPE = {"hidden_size": 512, "intermediate_size": 1280, "num_hidden_layers": 3, "num_attention_heads": 8}
BF16 = torch.bfloat16


def _adamw(model: nn.Module, rate: float = 1e-4, **options: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), rate, **options)


@case
def mixtral_eager_experts_fp16() -> None:
    """Train a Mixtral whose experts run one after the other, in float16 autocast with a scaler."""
    model = family(
        "Mixtral", vocab_size=12000, num_key_value_heads=4, num_local_experts=6, experts_implementation="eager", **SHAPE
    ).cuda()
    train(model, _adamw(model), token_loss(model, 3, 290), autocast=torch.float16, scaler=True, steps=12)


@case
def qwen3moe_checkpointing() -> None:
    """Train a Qwen3-MoE in bfloat16 with checkpointing, padded."""
    model = family(
        "Qwen3Moe", vocab_size=12000, num_key_value_heads=2, head_dim=64, num_experts=16, num_experts_per_tok=4,
        moe_intermediate_size=256, **SHAPE,
    ).to(BF16).cuda()  # fmt: skip
    model.gradient_checkpointing_enable({"use_reentrant": True})
    train(model, _adamw(model, fused=True), padded(model, 4, 333))


@case
def jetmoe_bf16() -> None:
    """Train a JetMoE, whose attention is a mixture as well, in bfloat16."""
    model = family(
        "JetMoe", vocab_size=12000, hidden_size=512, intermediate_size=768, num_hidden_layers=3, num_key_value_heads=4,
        kv_channels=64, num_local_experts=4, num_experts_per_tok=2,
    ).to(BF16).cuda()  # fmt: skip
    train(model, _adamw(model), token_loss(model, 2, 310))


@case
def llama4_text_bf16() -> None:
    """Train the text part of a Llama 4 (complex rotation, chunks, experts) in bfloat16."""
    import transformers

    config = transformers.Llama4TextConfig(
        vocab_size=12000, num_key_value_heads=4, head_dim=64, intermediate_size_mlp=1280, num_local_experts=4,
        attention_chunk_size=128, **{**SHAPE, "num_hidden_layers": 4},
    )  # fmt: skip
    model = transformers.Llama4ForCausalLM(config).to(BF16).cuda()
    train(model, _adamw(model), token_loss(model, 2, 300))


@case
def qwen3next_bf16() -> None:
    """Train a Qwen3-Next (gated delta rule, gated attention) in bfloat16."""
    model = family(
        "Qwen3Next", vocab_size=12000, num_key_value_heads=2, head_dim=64, num_experts=4, num_experts_per_tok=2,
        moe_intermediate_size=256, shared_expert_intermediate_size=256, linear_num_value_heads=8,
        linear_num_key_heads=4, linear_key_head_dim=64, linear_value_head_dim=64,
        **{**SHAPE, "num_hidden_layers": 4},
    ).to(BF16).cuda()  # fmt: skip
    train(model, _adamw(model), token_loss(model, 2, 256), steps=2)


@case
def lfm2_autocast() -> None:
    """Train an LFM2 (short convolutions between attention) in bfloat16 autocast."""
    model = family("Lfm2", vocab_size=12000, num_key_value_heads=4, full_attn_idxs=[1], **SHAPE).cuda()
    train(model, _adamw(model), token_loss(model, 3, 340), autocast=BF16)


@case
def recurrentgemma_fp32() -> None:
    """Train a RecurrentGemma in float32."""
    model = family(
        "RecurrentGemma", vocab_size=12000, num_key_value_heads=1, lru_width=512, attention_window_size=64, **SHAPE
    ).cuda()
    train(model, _adamw(model), token_loss(model, 2, 100), steps=2)


@case
def jamba_bf16() -> None:
    """Train a Jamba without its own kernels in bfloat16."""
    model = family(
        "Jamba", vocab_size=12000, num_key_value_heads=2, num_experts=2, num_experts_per_tok=1, use_mamba_kernels=False,
        attn_layer_period=2, attn_layer_offset=1, expert_layer_period=2, expert_layer_offset=1, mamba_d_state=8,
        **{**SHAPE, "num_hidden_layers": 2, "hidden_size": 256},
    ).to(BF16).cuda()  # fmt: skip
    train(model, _adamw(model), token_loss(model, 2, 80), steps=2)


@case
def zamba2_bf16() -> None:
    """Train a Zamba 2 without its own kernels in bfloat16."""
    model = family(
        "Zamba2", vocab_size=12000, num_key_value_heads=8, mamba_d_state=32, n_mamba_heads=8, mamba_headdim=128,
        mamba_ngroups=1, chunk_size=64, hybrid_layer_ids=[2], num_mem_blocks=1, use_mamba_kernels=False,
        layers_block_type=["mamba", "mamba", "hybrid", "mamba"],
        use_mem_rope=True, **{**SHAPE, "num_hidden_layers": 4},
    ).to(BF16).cuda()  # fmt: skip
    train(model, _adamw(model), token_loss(model, 2, 200), steps=2)


@case
def diffllama_eager() -> None:
    """Train a DiffLlama, attention written out, in float32."""
    model = family("DiffLlama", vocab_size=12000, num_key_value_heads=4, attn_implementation="eager", **SHAPE).cuda()
    train(model, _adamw(model), padded(model, 3, 255), clip=1.0)


@case
def bitnet_bf16() -> None:
    """Train a BitNet's shape in bfloat16, plain weights."""
    model = family("BitNet", vocab_size=12000, num_key_value_heads=4, **SHAPE).to(BF16).cuda()
    train(model, torch.optim.Rprop(model.parameters(), 1e-4), token_loss(model, 3, 301))


@case
def apertus_fp16() -> None:
    """Train an Apertus (xIELU) in float16 autocast with a scaler and clipping."""
    model = family("Apertus", vocab_size=12000, num_key_value_heads=4, **SHAPE).cuda()
    train(model, _adamw(model), token_loss(model, 3, 270), autocast=torch.float16, scaler=True, clip=1.0, steps=12)


@case
def helium_seedoss_two() -> None:
    """Train a Helium and a Seed-OSS one after the other in one process."""
    for name, options in (("Helium", {"head_dim": 64}), ("SeedOss", {"head_dim": 64, "attention_dropout": 0.1})):
        model = family(name, vocab_size=12000, num_key_value_heads=4, **SHAPE, **options).to(BF16).cuda()
        train(model, _adamw(model), token_loss(model, 2, 350), steps=2)


@case
def biogpt_layerdrop() -> None:
    """Train a BioGPT with layers dropped by the host's random numbers."""
    model = family("BioGpt", vocab_size=12000, layerdrop=0.3, scale_embedding=True, **SHAPE).cuda()
    train(model, _adamw(model), token_loss(model, 4, 222), autocast=BF16, steps=6)


@case
def ctrl_openai_fp32() -> None:
    """Train a CTRL in float32."""
    import transformers

    config = transformers.CTRLConfig(vocab_size=12000, n_embd=512, n_layer=3, n_head=8, dff=1280, n_positions=300)
    model = transformers.CTRLLMHeadModel(config).cuda()
    train(model, _adamw(model), token_loss(model, 4, 180))


@case
def minimax_bf16() -> None:
    """Train a MiniMax (lightning attention beside softmax) in bfloat16."""
    model = family(
        "MiniMax", vocab_size=12000, num_key_value_heads=4, num_local_experts=4, num_experts_per_tok=2, head_dim=64,
        block_size=64, **SHAPE,
    ).to(BF16).cuda()  # fmt: skip
    train(model, _adamw(model), token_loss(model, 2, 300))


@case
def roformer_fp16() -> None:
    """Train a RoFormer to classify in float16 autocast with a scaler."""
    model = built(
        "RoFormerConfig", "RoFormerForSequenceClassification", vocab_size=12000, embedding_size=256, num_labels=3,
        max_position_embeddings=300, **SHAPE,
    )  # fmt: skip
    train(model, _adamw(model, 1e-5), texts(model, 9, 220, 3), autocast=torch.float16, scaler=True, steps=12)


@case
def funnel_fp32() -> None:
    """Train a Funnel (pooled sequences) in float32."""
    model = built(
        "FunnelConfig", "FunnelForSequenceClassification", vocab_size=12000, d_model=384, n_head=6, d_head=64,
        d_inner=1024, block_sizes=[2, 2], num_decoder_layers=1, num_labels=3,
    )  # fmt: skip
    train(model, _adamw(model), texts(model, 6, 128, 3))


@case
def mobilebert_bf16() -> None:
    """Train a MobileBERT (bottlenecks) in bfloat16 autocast."""
    model = built(
        "MobileBertConfig", "MobileBertForMaskedLM", vocab_size=12000, num_hidden_layers=4, hidden_size=512,
        intra_bottleneck_size=128, embedding_size=128, intermediate_size=512, num_attention_heads=4,
    )  # fmt: skip
    train(model, _adamw(model), texts(model, 8, 160), autocast=BF16)


@case
def squeezebert_fp32() -> None:
    """Train a SqueezeBERT (grouped convolutions of length one) in float32."""
    model = built(
        "SqueezeBertConfig", "SqueezeBertForSequenceClassification", vocab_size=12000, embedding_size=512,
        num_labels=2, **{**SHAPE, "num_hidden_layers": 2},
    )  # fmt: skip
    train(model, _adamw(model), texts(model, 6, 140, 2))


@case
def nystromformer_fp32() -> None:
    """Train a Nystromformer in float32."""
    model = built(
        "NystromformerConfig",
        "NystromformerForMaskedLM", vocab_size=12000, num_landmarks=32, segment_means_seq_len=256,
        max_position_embeddings=300, **SHAPE,
    )  # fmt: skip
    train(model, _adamw(model), texts(model, 4, 256))


@case
def canine_fp32() -> None:
    """Train a CANINE on characters in bfloat16 autocast."""
    model = built(
        "CanineConfig", "CanineForSequenceClassification", num_labels=3, max_position_embeddings=1024,
        local_transformer_stride=128, **{**SHAPE, "num_hidden_layers": 2},
    )  # fmt: skip
    train(model, _adamw(model), texts(model, 3, 512, 3), autocast=BF16)


@case
def deberta_v3_like_bf16() -> None:
    """Train a first DeBERTa in bfloat16 autocast."""
    model = built(
        "DebertaConfig", "DebertaForSequenceClassification", vocab_size=12000, relative_attention=True,
        pos_att_type=["c2p", "p2c"], max_relative_positions=64, num_labels=3, **SHAPE,
    )  # fmt: skip
    train(model, _adamw(model), texts(model, 6, 150, 3), autocast=BF16, steps=4)


@case
def umt5_bf16_true() -> None:
    """Train a UMT5 (a position table in every layer) in bfloat16."""
    model = built(
        "UMT5Config", "UMT5ForConditionalGeneration", vocab_size=12000, d_model=384, d_kv=64, d_ff=1024, num_layers=3,
        num_heads=6, decoder_start_token_id=0,
    ).to(BF16)  # fmt: skip
    train(model, torch.optim.Adafactor(model.parameters()), pairs(model, 5, 190, 88))


@case
def m2m100_layerdrop_fp16() -> None:
    """Train an M2M-100 with layers dropped, in float16 autocast with a scaler."""
    model = built(
        "M2M100Config", "M2M100ForConditionalGeneration", vocab_size=12000, d_model=512, encoder_layers=3,
        decoder_layers=3, encoder_attention_heads=8, decoder_attention_heads=8, encoder_ffn_dim=1280,
        decoder_ffn_dim=1280, encoder_layerdrop=0.2, decoder_layerdrop=0.2,
    )  # fmt: skip
    train(model, _adamw(model), pairs(model, 6, 100, 75), autocast=torch.float16, scaler=True, steps=12)


@case
def t5gemma_bf16() -> None:
    """Train a T5Gemma in bfloat16."""
    import transformers

    part = {
        "vocab_size": 12000, "hidden_size": 384, "intermediate_size": 1024, "num_hidden_layers": 2,
        "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 64, "sliding_window": 64,
    }  # fmt: skip
    config = transformers.T5GemmaConfig(encoder=part, decoder={**part, "cross_attention_hidden_size": 384},
                                        vocab_size=12000)  # fmt: skip
    model = transformers.T5GemmaForConditionalGeneration(config).to(BF16).cuda()
    train(model, _adamw(model), pairs(model, 4, 150, 90))


@case
def bert2bert_fp32() -> None:
    """Train two BERTs as an encoder-decoder in float32."""
    import transformers

    shape = {**SHAPE, "vocab_size": 12000, "num_hidden_layers": 2}
    encoder = transformers.BertModel(transformers.BertConfig(**shape))
    decoder = transformers.BertLMHeadModel(transformers.BertConfig(is_decoder=True, add_cross_attention=True, **shape))
    model = transformers.EncoderDecoderModel(encoder=encoder, decoder=decoder).cuda()
    model.config.decoder_start_token_id, model.config.pad_token_id = 1, 0
    train(model, _adamw(model), pairs(model, 5, 140, 60))


@case
def nllbmoe_bf16() -> None:
    """Train an NLLB-MoE in bfloat16 autocast."""
    model = built(
        "NllbMoeConfig", "NllbMoeForConditionalGeneration", vocab_size=12000, d_model=384, encoder_layers=2,
        decoder_layers=2, encoder_attention_heads=6, decoder_attention_heads=6, encoder_ffn_dim=1024,
        decoder_ffn_dim=1024, num_experts=4, encoder_sparse_step=2, decoder_sparse_step=2, expert_capacity=64,
    )  # fmt: skip
    train(model, _adamw(model), pairs(model, 4, 90, 60), autocast=BF16)


@case
def moonshine_transcribes_bf16() -> None:
    """Train a Moonshine on raw sound in bfloat16 autocast."""
    model = built(
        "MoonshineConfig", "MoonshineForConditionalGeneration", vocab_size=8000, hidden_size=288,
        intermediate_size=1152, encoder_num_hidden_layers=2, decoder_num_hidden_layers=2,
        pad_token_id=2, encoder_num_attention_heads=8, decoder_num_attention_heads=8,
    )  # fmt: skip

    def loss() -> torch.Tensor:
        sound = torch.randn(4, 32000, device="cuda")
        labels = torch.randint(3, 8000, (4, 40), device="cuda")
        result: torch.Tensor = model(input_values=sound, labels=labels).loss
        return result

    train(model, _adamw(model), loss, autocast=BF16)


class Block(nn.Module):
    """A block as people write it: fused projections, rotation by complex numbers, gated units."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.one, self.two = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 5 * width, bias=False), nn.Linear(5 * width // 2, width, bias=False)

    def forward(self, x: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
        """Attend, then transform."""
        batch, length, width = x.shape
        q, k, v = self.qkv(self.one(x)).view(batch, length, 3, self.heads, -1).unbind(2)
        q, k = (
            torch.view_as_real(torch.view_as_complex(t.float().unflatten(-1, (-1, 2))) * turns).flatten(-2).type_as(v)
            for t in (q, k)
        )
        mixed = F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v)), is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        gate, value = self.up(self.two(x)).chunk(2, -1)
        result: torch.Tensor = x + self.down(F.silu(gate) * value)
        return result


class Plain(nn.Module):
    """A language model as people write it, with tied embeddings."""

    def __init__(self, vocabulary: int = 16000, width: int = 512, heads: int = 8, layers: int = 4) -> None:
        super().__init__()
        self.table = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.table.weight
        rates = 10000 ** -(torch.arange(0, width // heads, 2) / (width // heads))
        angles = torch.outer(torch.arange(2048), rates)
        self.register_buffer("turns", torch.polar(torch.ones_like(angles), angles), persistent=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return scores of the next tokens."""
        x = self.table(tokens)
        turns = self.turns[: tokens.size(1), None]
        for block in self.blocks:
            x = block(x, turns)
        scores: torch.Tensor = self.head(self.norm(x))
        return scores


def _plain_loss(model: nn.Module, batch: int, length: int) -> Any:
    def loss() -> torch.Tensor:
        tokens = torch.randint(0, 16000, (batch, length + 1), device="cuda")
        scores = model(tokens[:, :-1])
        return F.cross_entropy(scores.view(-1, scores.size(-1)).float(), tokens[:, 1:].reshape(-1))

    return loss


@case
def plain_complex_rotation_bf16() -> None:
    """Train a model written by hand in bfloat16 autocast."""
    model = Plain().cuda()
    train(model, _adamw(model), _plain_loss(model, 3, 600), autocast=BF16, clip=1.0)


@case
def plain_selective_checkpointing() -> None:
    """Train it with checkpointing that keeps the products of matrices."""
    from functools import partial

    from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

    model = Plain().to(BF16).cuda()
    kept = [torch.ops.aten.mm.default, torch.ops.aten._scaled_dot_product_cudnn_attention.default]
    context = partial(create_selective_checkpoint_contexts, kept)
    for block in model.blocks:
        inner = block.forward
        block.forward = partial(checkpoint, inner, use_reentrant=False, context_fn=context)
    train(model, _adamw(model), _plain_loss(model, 4, 500))


@case
def plain_sharpness_aware() -> None:
    """Train it with two passes a step: at the weights, and where the loss rises most."""
    model = Plain(layers=3).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    loss_of = _plain_loss(model, 2, 400)
    for _ in range(3):
        loss_of().backward()
        with torch.no_grad():
            norm = torch.norm(torch.stack([p.grad.norm(2) for p in model.parameters()]), 2)
            moved = []
            for p in model.parameters():
                step = p.grad * (0.05 / (norm + 1e-12))
                p.add_(step)
                moved.append(step)
        optimizer.zero_grad()
        loss_of().backward()
        with torch.no_grad():
            for p, step in zip(model.parameters(), moved, strict=True):
                p.sub_(step)
        optimizer.step()
        optimizer.zero_grad()


@case
def plain_resumed_deepcopied() -> None:
    """Train it, keep the best weights, resume model and optimizer from what was saved on the host."""
    import copy

    model = Plain(layers=3).to(BF16).cuda()
    optimizer = _adamw(model)
    train(model, optimizer, _plain_loss(model, 2, 300), steps=2)
    best = copy.deepcopy(model.state_dict())
    saved = {"model": {k: v.cpu() for k, v in model.state_dict().items()}, "optimizer": optimizer.state_dict()}
    fresh = Plain(layers=3).to(BF16).cuda()
    fresh.load_state_dict(saved["model"])
    again = _adamw(fresh)
    again.load_state_dict(saved["optimizer"])
    del model, optimizer, saved
    train(fresh, again, _plain_loss(fresh, 2, 300), steps=2)
    fresh.load_state_dict(best)
