"""Third round: peft's other ways to adapt a model, plain and quantized."""

from __future__ import annotations

from typing import Any

import torch
from prediction_runs import _quantize
from torch import nn
from wider_runs import token_loss, train

from truth_cases.lora import adapted
from truth_cases.registry import registry
from truth_cases.third_language import SHAPE, family
from truth_cases.third_vision import labelled

__all__ = ["CASES"]

CASES, case = registry()


def _trained(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


@case
def ia3_stablelm() -> None:
    """Train IA3's scales on a StableLM, weights in bfloat16."""
    import peft

    model = family("StableLm", vocab_size=20000, num_key_value_heads=10, **SHAPE).to(torch.bfloat16).cuda()
    config = peft.IA3Config(
        target_modules=["k_proj", "v_proj", "down_proj"], feedforward_modules=["down_proj"], task_type="CAUSAL_LM"
    )
    model = peft.get_peft_model(model, config)
    train(model, torch.optim.AdamW(_trained(model), 1e-3), token_loss(model, 4, 500))


@case
def prefix_gpt2() -> None:
    """Train a prefix for a GPT-2 in float32 with bfloat16 autocast."""
    import peft

    model = family("GPT2", vocab_size=20000, n_embd=640, n_layer=5, n_head=10).cuda()
    config = peft.PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=24)
    model = peft.get_peft_model(model, config)
    train(model, torch.optim.AdamW(_trained(model), 1e-2), _masked_loss(model, 5, 400), autocast=torch.bfloat16)


@case
def prompt_granite() -> None:
    """Train a soft prompt for a Granite in float16, with a scaler."""
    import peft

    model = family("Granite", vocab_size=20000, num_key_value_heads=2, **SHAPE).cuda()
    config = peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=20)
    model = peft.get_peft_model(model, config)
    optimizer = torch.optim.AdamW(_trained(model), 1e-3)
    train(model, optimizer, _masked_loss(model, 3, 470), autocast=torch.float16, scaler=True)


def _masked_loss(model: nn.Module, batch: int, length: int) -> Any:
    def loss() -> torch.Tensor:
        tokens = torch.randint(0, 1000, (batch, length), device="cuda")
        result: torch.Tensor = model(input_ids=tokens, attention_mask=torch.ones_like(tokens), labels=tokens).loss
        return result

    return loss


@case
def dora_nf4_starcoder2() -> None:
    """Train DoRA on a 4-bit StarCoder 2 with checkpointing that is not reentrant and 8-bit paged AdamW."""
    import bitsandbytes as bnb

    model = family("Starcoder2", vocab_size=20000, num_key_value_heads=5, **SHAPE).to(torch.bfloat16)
    _quantize(model)
    model = model.cuda()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    model.enable_input_require_grads()
    model = adapted(model, ["q_proj", "v_proj"], use_dora=True, r=8)
    train(model, bnb.optim.PagedAdamW8bit(_trained(model), 1e-4), token_loss(model, 4, 640), accumulate=2, steps=2)


@case
def rslora_int8_gptj() -> None:
    """Train rank-stabilized LoRA on a GPT-J whose linear layers are 8-bit, in float16."""
    import bitsandbytes as bnb

    model = family("GPTJ", vocab_size=20000, n_embd=640, n_layer=4, n_head=10, rotary_dim=32, n_positions=1024).half()
    for name, module in list(model.named_modules()):
        if isinstance(module, nn.Linear) and "head" not in name:
            has_bias = module.bias is not None
            packed = bnb.nn.Linear8bitLt(module.in_features, module.out_features, has_bias, has_fp16_weights=False)
            packed.weight = bnb.nn.Int8Params(module.weight.data, requires_grad=False)
            packed.bias = module.bias
            parent, _, child = name.rpartition(".")
            setattr(model.get_submodule(parent), child, packed)
    model = adapted(model.cuda(), ["q_proj", "v_proj", "fc_in"], use_rslora=True, r=24)
    train(model, torch.optim.AdamW(_trained(model), 1e-5), token_loss(model, 3, 300), autocast=torch.float16)


@case
def lora_vit_saves_head() -> None:
    """Train LoRA on the attention of a ViT, and its head as a whole, in bfloat16 autocast."""
    import peft
    import transformers

    config = transformers.ViTConfig(hidden_size=576, intermediate_size=2304, num_hidden_layers=6, num_attention_heads=9)
    config.num_labels = 100
    model = transformers.ViTForImageClassification(config).cuda()
    settings = peft.LoraConfig(
        r=12, lora_alpha=24, lora_dropout=0.05, target_modules=["query", "value"], modules_to_save=["classifier"]
    )
    model = peft.get_peft_model(model, settings)
    train(model, torch.optim.AdamW(_trained(model), 1e-3), labelled(model, 24, 224), autocast=torch.bfloat16)
