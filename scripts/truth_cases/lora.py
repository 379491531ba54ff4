"""Adapters by peft on several families of models, plain and quantized."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from prediction_runs import _quantize
from wider_runs import token_loss, train

from truth_cases.language import causal

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

__all__ = ["CASES", "adapted"]

CASES: dict[str, Callable[[], Any]] = {}


def case(function: Callable[[], Any]) -> Callable[[], Any]:
    """Register a case under its function's name."""
    CASES[function.__name__] = function
    return function


def adapted(model: nn.Module, targets: list[str] | str, **options: Any) -> nn.Module:
    """Put adapters into a model."""
    import peft

    settings = {"r": 16, "lora_alpha": 32, "lora_dropout": 0.1, **options}
    result: nn.Module = peft.get_peft_model(model, peft.LoraConfig(target_modules=targets, **settings))
    return result


def _train(model: nn.Module, **options: Any) -> None:
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    batch, length = options.pop("batch", 4), options.pop("length", 512)
    train(model, torch.optim.AdamW(trained), token_loss(model, batch, length), **options)


@case
def lora_qwen3() -> None:
    """Train LoRA on the attention of a Qwen3 in bfloat16."""
    _train(adapted(causal("Qwen3", head_dim=64), ["q_proj", "k_proj", "v_proj", "o_proj"]))


@case
def lora_mistral_sliding_dora() -> None:
    """Train DoRA on a Mistral whose window is shorter than the sequence."""
    model = causal("Mistral", sliding_window=128)
    _train(adapted(model, ["q_proj", "v_proj"], use_dora=True), batch=2, length=600)


@case
def lora_phi_all_linear() -> None:
    """Train LoRA on every linear layer of a Phi, float32 weights in bfloat16 autocast."""
    _train(adapted(causal("Phi", dtype=torch.float32), "all-linear"), autocast=torch.bfloat16)


@case
def lora_falcon() -> None:
    """Train LoRA on a Falcon, which has one key head."""
    import transformers

    config = transformers.FalconConfig(vocab_size=20000, hidden_size=768, num_hidden_layers=4, num_attention_heads=12)
    model = transformers.FalconForCausalLM(config).to(torch.bfloat16).cuda()
    _train(adapted(model, ["query_key_value"]), batch=3, length=700)


@case
def lora_neox_nf4_checkpointing() -> None:
    """Train LoRA on a 4-bit GPT-NeoX with gradient checkpointing and clipping."""
    model = causal("GPTNeoX", dtype=torch.float32).cpu()
    _quantize(model)
    model = model.cuda()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    model.enable_input_require_grads()
    _train(adapted(model, ["query_key_value", "dense"]), autocast=torch.bfloat16, clip=1.0)


@case
def lora_qwen2_int8() -> None:
    """Train LoRA on a Qwen2 whose linear layers are 8-bit."""
    import bitsandbytes as bnb
    from torch import nn

    model = causal("Qwen2", dtype=torch.float16).cpu()
    for name, module in list(model.named_modules()):
        if isinstance(module, nn.Linear) and "head" not in name:
            has_bias = module.bias is not None
            packed = bnb.nn.Linear8bitLt(module.in_features, module.out_features, has_bias, has_fp16_weights=False)
            packed.weight = bnb.nn.Int8Params(module.weight.data, requires_grad=False)
            packed.bias = module.bias
            parent, _, child = name.rpartition(".")
            setattr(model.get_submodule(parent), child, packed)
    _train(adapted(model.cuda(), ["q_proj", "v_proj", "down_proj"]), batch=2, length=400)
