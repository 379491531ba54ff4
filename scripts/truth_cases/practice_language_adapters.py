"""Practice: ways to adapt and to quantize that no frozen round had."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from wider_runs import token_loss, train

from truth_cases.practice_language import padded
from truth_cases.registry import registry
from truth_cases.third_language import family

__all__ = ["CASES", "adapt", "quantized"]

CASES, case = registry()

SHAPE = {"hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 3, "num_attention_heads": 12}
BF16 = torch.bfloat16


def adapt(model: nn.Module, kind: str, **options: Any) -> nn.Module:
    """Put adapters of one of peft's kinds into a model."""
    import peft

    result: nn.Module = peft.get_peft_model(model, getattr(peft, f"{kind}Config")(**options))
    return result


def quantized(model: nn.Module, layer: Any) -> nn.Module:
    """Replace the linear layers inside a model on the host, all but the head, and move it to the device."""
    for name, module in list(model.named_modules()):
        if isinstance(module, nn.Linear) and "head" not in name:
            parent = model.get_submodule(name.rpartition(".")[0])
            fresh = layer(module)
            setattr(parent, name.rpartition(".")[2], fresh)
    return model.cuda()


def _train(model: nn.Module, batch: int = 4, length: int = 400, **options: Any) -> None:
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    train(model, torch.optim.AdamW(trained, 1e-4), token_loss(model, batch, length), **options)


def _qwen(**options: Any) -> nn.Module:
    return family("Qwen2", vocab_size=16000, num_key_value_heads=4, **{**SHAPE, **options})


@case
def adalora_llama() -> None:
    """Train AdaLoRA, which is told of each step, on a Llama in bfloat16."""
    model = family("Llama", vocab_size=16000, **SHAPE).to(BF16).cuda()
    model = adapt(
        model, "AdaLora", target_modules=["q_proj", "v_proj", "down_proj"], init_r=12, target_r=4, total_step=6,
        tinit=1, tfinal=2, deltaT=1,
    )  # fmt: skip
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-4)
    loss_of = token_loss(model, 3, 350)
    for step in range(5):
        loss_of().backward()
        optimizer.step()
        model.base_model.update_and_allocate(step)
        optimizer.zero_grad()


@case
def loha_qwen2() -> None:
    """Train LoHa on a Qwen2 in bfloat16."""
    _train(adapt(_qwen().to(BF16).cuda(), "LoHa", target_modules=["q_proj", "v_proj", "up_proj"], r=8, alpha=16))


@case
def lokr_qwen2_autocast() -> None:
    """Train LoKr on a Qwen2 in float32 with bfloat16 autocast."""
    model = adapt(_qwen().cuda(), "LoKr", target_modules=["q_proj", "o_proj", "gate_proj"], r=8, alpha=16)
    _train(model, 3, 377, autocast=BF16)


@case
def vera_llama_fp32() -> None:
    """Train VeRA on a Llama in float32."""
    model = family("Llama", vocab_size=16000, **SHAPE).cuda()
    _train(adapt(model, "Vera", target_modules=["q_proj", "v_proj"], r=64), 2, 390)


@case
def oft_mistral() -> None:
    """Train OFT on a Mistral in bfloat16."""
    model = family("Mistral", vocab_size=16000, num_key_value_heads=4, **SHAPE).to(BF16).cuda()
    _train(adapt(model, "OFT", target_modules=["q_proj", "v_proj"], oft_block_size=32))


@case
def boft_llama_fp32() -> None:
    """Train BOFT on a Llama in float32."""
    model = family("Llama", vocab_size=16000, **SHAPE).cuda()
    _train(adapt(model, "BOFT", target_modules=["q_proj"], boft_block_size=32), 2, 300)


@case
def lntuning_neox() -> None:
    """Tune only the norms of a GPT-NeoX in bfloat16 autocast."""
    model = family("GPTNeoX", vocab_size=16000, **SHAPE).cuda()
    _train(adapt(model, "LNTuning", target_modules=["input_layernorm", "final_layer_norm"]), 3, 500, autocast=BF16)


@case
def ptuning_gpt2() -> None:
    """Tune a prompt by an encoder on a GPT-2 in float32, with padding."""
    model = family("GPT2", vocab_size=16000, n_embd=512, n_layer=3, n_head=8).cuda()
    model = adapt(
        model, "PromptEncoder", task_type="CAUSAL_LM", num_virtual_tokens=20, encoder_hidden_size=256,
        encoder_reparameterization_type="MLP",
    )  # fmt: skip
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    train(model, torch.optim.AdamW(trained, 1e-3), padded(model, 6, 211))


@case
def fourierft_qwen2() -> None:
    """Train FourierFT on a Qwen2 in float32."""
    _train(adapt(_qwen().cuda(), "FourierFT", target_modules=["q_proj", "v_proj"], n_frequency=500), 2, 256)


@case
def lora_fp4_float16_compute() -> None:
    """Train LoRA over fp4 without double quantization, computing in float16, with a scaler."""
    import bitsandbytes as bnb

    def layer(module: nn.Linear) -> nn.Module:
        fresh = bnb.nn.Linear4bit(
            module.in_features, module.out_features, module.bias is not None, compute_dtype=torch.float16,
            compress_statistics=False, quant_type="fp4",
        )  # fmt: skip
        fresh.weight = bnb.nn.Params4bit(
            module.weight.data, requires_grad=False, compress_statistics=False, quant_type="fp4"
        )
        fresh.bias = module.bias
        return fresh

    model = adapt(quantized(_qwen(), layer), "Lora", target_modules=["q_proj", "v_proj", "up_proj"], r=16)
    _train(model, 3, 444, autocast=torch.float16, scaler=True, steps=12)


@case
def lora_nf4_loaded_by_transformers() -> None:
    """Train rank-stabilised LoRA over nf4 with double quantization, prepared by peft for it."""
    import bitsandbytes as bnb
    import peft

    def layer(module: nn.Linear) -> nn.Module:
        fresh = bnb.nn.Linear4bit(
            module.in_features, module.out_features, module.bias is not None, compute_dtype=BF16, quant_type="nf4"
        )
        fresh.weight = bnb.nn.Params4bit(module.weight.data, requires_grad=False, quant_type="nf4")
        fresh.bias = module.bias
        return fresh

    model = quantized(family("Mistral", vocab_size=16000, num_key_value_heads=4, **SHAPE), layer)
    model.is_loaded_in_4bit = True
    model = peft.prepare_model_for_kbit_training(model, gradient_checkpointing_kwargs={"use_reentrant": False})
    model = adapt(
        model, "Lora", target_modules="all-linear", r=32, lora_alpha=64, lora_dropout=0.05, use_rslora=True,
        task_type="CAUSAL_LM",
    )  # fmt: skip
    optimizer = bnb.optim.PagedAdamW8bit([p for p in model.parameters() if p.requires_grad], 1e-4)
    train(model, optimizer, token_loss(model, 2, 700), autocast=BF16, accumulate=2, clip=0.3)


@case
def lora_int8_threshold() -> None:
    """Train LoRA over 8-bit layers that take outliers apart, on a GPT-2."""
    import bitsandbytes as bnb

    def layer(module: nn.Linear) -> nn.Module:
        fresh = bnb.nn.Linear8bitLt(
            module.in_features, module.out_features, module.bias is not None, has_fp16_weights=False, threshold=6.0
        )
        fresh.weight = bnb.nn.Int8Params(module.weight.data, requires_grad=False, has_fp16_weights=False)
        fresh.bias = module.bias
        return fresh

    model = quantized(family("OPT", vocab_size=16000, hidden_size=512, ffn_dim=2048, num_hidden_layers=3,
                             num_attention_heads=8, word_embed_proj_dim=512).half(), layer)  # fmt: skip
    _train(adapt(model, "Lora", target_modules=["q_proj", "v_proj"], r=8), 4, 256)
