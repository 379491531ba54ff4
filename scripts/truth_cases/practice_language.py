"""Practice: causal language models of families and precisions that no frozen round had."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from wider_runs import token_loss, train

from truth_cases.registry import registry
from truth_cases.third_language import family

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CASES", "padded"]

CASES, case = registry()

SHAPE = {"hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 3, "num_attention_heads": 8}
BF16 = torch.bfloat16


def padded(model: nn.Module, batch: int, length: int, vocabulary: int = 8000) -> Callable[[], torch.Tensor]:
    """Return the loss of a batch of texts of different lengths, padded at the end."""

    def loss() -> torch.Tensor:
        tokens = torch.randint(1, vocabulary, (batch, length), device="cuda")
        ends = torch.arange(length - 3 * batch, length, 3, device="cuda")[:batch]
        mask = (torch.arange(length, device="cuda") < ends[:, None]).long()
        labels = tokens.masked_fill(mask == 0, -100)
        result: torch.Tensor = model(input_ids=tokens, attention_mask=mask, labels=labels).loss
        return result

    return loss


def _adamw(model: nn.Module, **options: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), 1e-4, **options)


@case
def qwen2moe_bf16() -> None:
    """Train a Qwen2-MoE, with a shared expert, in bfloat16."""
    model = family(
        "Qwen2Moe",
        vocab_size=16000,
        num_key_value_heads=4,
        moe_intermediate_size=384,
        shared_expert_intermediate_size=768,
        num_experts=12,
        num_experts_per_tok=3,
        output_router_logits=True,
        **SHAPE,
    )
    model = model.to(BF16).cuda()
    train(model, _adamw(model), token_loss(model, 3, 333))


@case
def olmoe_autocast() -> None:
    """Train an OLMoE in float32 with bfloat16 autocast."""
    model = family("Olmoe", vocab_size=16000, num_experts=8, num_experts_per_tok=2, **SHAPE).cuda()
    train(model, _adamw(model), token_loss(model, 2, 511), autocast=BF16, clip=1.0)


@case
def gptoss_bf16() -> None:
    """Train a GPT-OSS (sinks, sliding windows, experts with biases) in bfloat16."""
    model = family(
        "GptOss",
        vocab_size=16000,
        num_key_value_heads=2,
        head_dim=64,
        num_local_experts=8,
        num_experts_per_tok=2,
        sliding_window=128,
        **{**SHAPE, "num_hidden_layers": 4},
    )
    model = model.to(BF16).cuda()
    train(model, _adamw(model), token_loss(model, 3, 401))


@case
def gemma3_sliding_padded() -> None:
    """Train a Gemma 3 with heads of 256 and real padding in bfloat16."""
    model = _gemma3()
    train(model, _adamw(model), padded(model, 5, 777))


def _gemma3() -> nn.Module:
    import transformers

    config = transformers.Gemma3TextConfig(
        vocab_size=16000,
        num_key_value_heads=2,
        head_dim=256,
        sliding_window=200,
        **{**SHAPE, "num_hidden_layers": 6, "num_attention_heads": 4},
    )
    model: nn.Module = transformers.Gemma3ForCausalLM(config).to(BF16).cuda()
    return model


@case
def phi3_fp16_scaler() -> None:
    """Train a Phi-3 in float16 autocast until the scaler has settled."""
    model = family("Phi3", vocab_size=16000, pad_token_id=0, num_key_value_heads=8, **SHAPE).cuda()
    train(model, _adamw(model), padded(model, 4, 389), autocast=torch.float16, scaler=True, clip=1.0, steps=12)


@case
def deepseek2_bf16() -> None:
    """Train a DeepSeek-V2, whose values have another width than its keys."""
    model = family(
        "DeepseekV2",
        vocab_size=16000,
        kv_lora_rank=128,
        q_lora_rank=192,
        qk_nope_head_dim=64,
        qk_rope_head_dim=32,
        v_head_dim=64,
        n_routed_experts=8,
        num_experts_per_tok=2,
        moe_intermediate_size=384,
        first_k_dense_replace=1,
        n_group=1,
        topk_group=1,
        num_key_value_heads=8,
        **SHAPE,
    )
    model = model.to(BF16).cuda()
    train(model, _adamw(model), token_loss(model, 3, 450))


@case
def deepseek3_autocast_checkpointing() -> None:
    """Train a DeepSeek-V3 with bfloat16 autocast and checkpointing."""
    model = family(
        "DeepseekV3",
        vocab_size=16000,
        kv_lora_rank=128,
        q_lora_rank=192,
        qk_nope_head_dim=48,
        qk_rope_head_dim=32,
        v_head_dim=48,
        n_routed_experts=16,
        num_experts_per_tok=4,
        n_group=4,
        topk_group=2,
        moe_intermediate_size=256,
        first_k_dense_replace=1,
        num_key_value_heads=8,
        **SHAPE,
    ).cuda()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    train(model, _adamw(model), token_loss(model, 2, 600), autocast=BF16)


@case
def mamba_fp32() -> None:
    """Train a Mamba without its own kernels, in float32."""
    model = family("Mamba", vocab_size=16000, hidden_size=384, num_hidden_layers=2, state_size=16).cuda()
    train(model, _adamw(model), token_loss(model, 4, 96), steps=2)


@case
def mamba2_bf16() -> None:
    """Train a Mamba 2 without its own kernels, in bfloat16."""
    model = family(
        "Mamba2",
        vocab_size=16000,
        hidden_size=384,
        num_hidden_layers=3,
        num_heads=12,
        head_dim=64,
        state_size=64,
        n_groups=2,
        chunk_size=64,
    )
    model = model.to(BF16).cuda()
    train(model, _adamw(model), token_loss(model, 2, 300))


@case
def falconh1_bf16() -> None:
    """Train a Falcon-H1, attention beside a state space."""
    model = family(
        "FalconH1",
        vocab_size=16000,
        num_key_value_heads=2,
        mamba_d_ssm=512,
        mamba_n_heads=8,
        mamba_d_head=64,
        mamba_d_state=64,
        mamba_chunk_size=64,
        **{**SHAPE, "num_hidden_layers": 2},
    )
    model = model.to(BF16).cuda()
    train(model, _adamw(model), token_loss(model, 2, 256))


@case
def gptneo_local_fp16() -> None:
    """Train a GPT-Neo, every other layer local, with dropout, float16 autocast and a scaler."""
    model = family(
        "GPTNeo",
        vocab_size=16000,
        hidden_size=512,
        num_layers=4,
        num_heads=8,
        attention_types=[[["global", "local"], 2]],
        window_size=128,
        max_position_embeddings=1024,
        attention_dropout=0.1,
        embed_dropout=0.1,
        resid_dropout=0.1,
    ).cuda()
    train(model, _adamw(model), token_loss(model, 4, 500), autocast=torch.float16, scaler=True, steps=12)


@case
def nemotron_adamax() -> None:
    """Train a Nemotron (squared ReLU, partial rotation) with Adamax."""
    model = family("Nemotron", vocab_size=16000, num_key_value_heads=4, **SHAPE).to(BF16).cuda()
    train(model, torch.optim.Adamax(model.parameters(), 1e-3), token_loss(model, 4, 301))


@case
def olmo3_radam() -> None:
    """Train an OLMo 3 (windows) with RAdam and weight decay apart from the gradient."""
    model = family("Olmo3", vocab_size=16000, sliding_window=128, **SHAPE).to(BF16).cuda()
    optimizer = torch.optim.RAdam(model.parameters(), 1e-3, weight_decay=0.1, decoupled_weight_decay=True)
    train(model, optimizer, token_loss(model, 3, 410), steps=8)


@case
def cohere2_asgd() -> None:
    """Train a Cohere 2 with averaged SGD in float32, TF32 allowed."""
    torch.backends.cuda.matmul.allow_tf32 = True
    model = family("Cohere2", vocab_size=16000, num_key_value_heads=2, sliding_window=64, **SHAPE).cuda()
    train(model, torch.optim.ASGD(model.parameters(), 1e-3), token_loss(model, 3, 260))


@case
def exaone4_adadelta_one_by_one() -> None:
    """Train an EXAONE 4 with Adadelta, one tensor after the other."""
    model = family("Exaone4", vocab_size=16000, num_key_value_heads=4, sliding_window=128, **SHAPE).cuda()
    optimizer = torch.optim.Adadelta(model.parameters(), foreach=False)
    train(model, optimizer, token_loss(model, 2, 515), autocast=BF16)


@case
def glm4_packed_fp16() -> None:
    """Train a GLM-4 in float16 throughout, packed texts with positions that start again, RMSprop centred."""
    model = family("Glm4", vocab_size=16000, num_key_value_heads=2, head_dim=64, pad_token_id=0, **SHAPE)
    model = model.to(torch.float16).cuda()

    def loss() -> torch.Tensor:
        tokens = torch.randint(0, 8000, (2, 512), device="cuda")
        positions = torch.cat([torch.arange(200), torch.arange(312)]).expand(2, -1).cuda()
        result: torch.Tensor = model(input_ids=tokens, position_ids=positions, labels=tokens).loss
        return result

    train(model, torch.optim.RMSprop(model.parameters(), 1e-5, centered=True), loss)


@case
def xlnet_fp32() -> None:
    """Train an XLNet in float32 to classify."""
    import transformers

    config = transformers.XLNetConfig(vocab_size=16000, d_model=512, n_layer=3, n_head=8, d_inner=1536, num_labels=3)
    model = transformers.XLNetForSequenceClassification(config).cuda()

    def loss() -> torch.Tensor:
        tokens = torch.randint(1, 16000, (6, 213), device="cuda")
        mask = torch.ones_like(tokens)
        mask[::2, :50] = 0
        result: torch.Tensor = model(
            input_ids=tokens, attention_mask=mask, labels=torch.randint(0, 3, (6,), device="cuda")
        ).loss
        return result

    train(model, _adamw(model), loss)


@case
def rwkv_fp32() -> None:
    """Train an RWKV without its own kernel, in float32."""
    model = family("Rwkv", vocab_size=16000, hidden_size=512, num_hidden_layers=3, context_length=256).cuda()
    train(model, _adamw(model), token_loss(model, 3, 120), steps=2)


@case
def granitemoe_zeroed() -> None:
    """Train a GraniteMoE in bfloat16 with gradients that stay as zeros."""
    model = family(
        "GraniteMoe", vocab_size=16000, num_key_value_heads=4, num_local_experts=8, num_experts_per_tok=2, **SHAPE
    )
    model = model.to(BF16).cuda()
    optimizer = _adamw(model)
    loss_of = token_loss(model, 2, 300)
    for _ in range(3):
        loss_of().backward()
        nn.utils.clip_grad_value_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)


@case
def persimmon_eager_sgd() -> None:
    """Train a Persimmon, attention written out, with SGD one by one."""
    model = family("Persimmon", vocab_size=16000, attn_implementation="eager", **SHAPE).to(BF16).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9, dampening=0.1, weight_decay=0.1, foreach=False)
    train(model, optimizer, padded(model, 3, 350))


@case
def smollm3_distilled_in_parts() -> None:
    """Distil an ERNIE 4.5 into a SmolLM 3, the loss taken in parts of the sequence."""
    teacher = family("Ernie4_5", vocab_size=16000, num_key_value_heads=4, **SHAPE).to(BF16).cuda().eval()
    shape = {**SHAPE, "hidden_size": 256, "num_hidden_layers": 2, "intermediate_size": 768, "num_attention_heads": 4}
    student = family("SmolLM3", vocab_size=16000, num_key_value_heads=2, pad_token_id=0, **shape).to(BF16).cuda()

    def loss() -> torch.Tensor:
        tokens = torch.randint(0, 8000, (3, 420), device="cuda")
        with torch.no_grad():
            wanted = teacher(input_ids=tokens).logits
        found = student(input_ids=tokens).logits
        parts = [
            nn.functional.kl_div(f.float().log_softmax(-1), w.float().log_softmax(-1), reduction="sum", log_target=True)
            for f, w in zip(found.split(140, 1), wanted.split(140, 1), strict=True)
        ]
        return torch.stack(parts).sum() / tokens.numel()

    train(student, _adamw(student, fused=True), loss)


@case
def xglm_amsgrad_fp16() -> None:
    """Train an XGLM in float16 autocast with a scaler and a fused AMSGrad."""
    model = family(
        "XGLM",
        vocab_size=16000,
        d_model=512,
        num_layers=3,
        attention_heads=8,
        ffn_dim=2048,
        max_position_embeddings=600,
    ).cuda()
    optimizer = _adamw(model, fused=True, amsgrad=True)
    train(model, optimizer, padded(model, 4, 300), autocast=torch.float16, scaler=True, steps=12)
