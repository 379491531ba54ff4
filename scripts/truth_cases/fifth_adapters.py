"""Fifth round: LoRA, plain and quantized, by peft and by lit-gpt, and preferences."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  # the name that everybody gives it
from prediction_runs import _quantize
from torch import nn
from wider_runs import token_loss, train

from truth_cases.fifth_language import LLAMA_32, QWEN_25, pythia160m
from truth_cases.lora import adapted
from truth_cases.registry import registry
from truth_cases.third_language import family

__all__ = ["CASES"]

CASES, case = registry()
BF16 = torch.bfloat16
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
"""What is adapted of attention."""


def _trained(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


@case
def lora_llama32_checkpointed_bf16() -> None:
    """Train LoRA on all linear layers of four layers of a Llama 3.2-1B, weights in bfloat16, checkpointing."""
    model = family("Llama", vocab_size=128256, num_hidden_layers=4, **LLAMA_32).to(BF16).cuda()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    model.enable_input_require_grads()
    targets = [*ATTENTION, "gate_proj", "up_proj", "down_proj"]
    model = adapted(model, targets, r=32, lora_dropout=0.05, task_type="CAUSAL_LM")
    optimizer = torch.optim.AdamW(_trained(model), 2e-4, fused=True)
    train(model, optimizer, token_loss(model, 2, 768, 128000), clip=1.0)


@case
def lora_qwen25_nf4_8bit() -> None:
    """Train LoRA on eight 4-bit layers of a Qwen2.5-0.5B in bfloat16 autocast, 8-bit AdamW, two batches a step."""
    import bitsandbytes as bnb

    model = family("Qwen2", num_hidden_layers=8, **QWEN_25).to(BF16)
    _quantize(model)
    model = adapted(model.cuda(), ["q_proj", "v_proj"], r=8, lora_dropout=0.05, task_type="CAUSAL_LM")
    optimizer = bnb.optim.AdamW8bit(_trained(model), 1e-4)
    train(model, optimizer, token_loss(model, 2, 512, 151936), autocast=BF16, accumulate=2, steps=2)


@case
def lora_llama32_int8_bf16() -> None:
    """Train LoRA on four 8-bit layers of a Llama 3.2's width, outliers apart, weights in bfloat16."""
    import bitsandbytes as bnb
    import peft

    model = family("Llama", vocab_size=32000, num_hidden_layers=4, **LLAMA_32).to(BF16)
    for name, module in list(model.named_modules()):
        if isinstance(module, nn.Linear) and "head" not in name:
            packed = bnb.nn.Linear8bitLt(
                module.in_features, module.out_features, bias=False, has_fp16_weights=False, threshold=6.0
            )
            packed.weight = bnb.nn.Int8Params(module.weight.data, requires_grad=False, has_fp16_weights=False)
            parent, _, child = name.rpartition(".")
            setattr(model.get_submodule(parent), child, packed)
    model = model.cuda()
    model.is_loaded_in_8bit = True
    model = peft.prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    model = adapted(model, ATTENTION, r=16, lora_dropout=0.1, task_type="CAUSAL_LM")
    train(model, torch.optim.AdamW(_trained(model), 1e-4), token_loss(model, 3, 384, 32000), autocast=BF16)


def _lit_gpt(**options: Any) -> None:
    from memprof.capture.observer import Observer
    from memprof.recipes.lit_gpt_2023 import LitGpt2023

    LitGpt2023(**options).run(torch.device("cuda", 0), Observer(lambda _step: None))


@case
def lit_gpt_qwen25_nf4_dq() -> None:
    """Train lit-gpt's LoRA on a 4-bit Qwen2.5-0.5B, constants quantized too, bfloat16 autocast."""
    _lit_gpt(
        model="Qwen2.5-0.5B", precision="bf16-mixed", quant="bnb.nf4-dq", seq=384, mbs=2, cycles=2, lora_projection=True
    )


@case
def lit_gpt_pythia160m_all_layers() -> None:
    """Train lit-gpt's LoRA on all of a Pythia-160m, weights in bfloat16, long samples."""
    _lit_gpt(
        model="pythia-160m",
        precision="bf16-true",
        seq=1536,
        mbs=3,
        cycles=2,
        lora_r=32,
        lora_key=True,
        lora_projection=True,
        lora_mlp=True,
    )


@case
def preferences_pythia_rmsprop() -> None:
    """Train all of a Pythia-160m on padded preferences (DPO) against a frozen copy, bfloat16 autocast, RMSprop."""
    policy = pythia160m(12).cuda()
    reference = pythia160m(12).to(BF16).cuda().eval().requires_grad_(requires_grad=False)

    def chances(model: nn.Module, tokens: torch.Tensor, mask: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        logits = model(input_ids=tokens, attention_mask=mask).logits[:, :-1].float()
        wanted = labels[:, 1:]
        shown = wanted != -100
        each = torch.gather(logits.log_softmax(-1), 2, wanted.masked_fill(~shown, 0).unsqueeze(2)).squeeze(2)
        return (each * shown).sum(-1)

    def loss() -> torch.Tensor:
        tokens = torch.randint(10, 50000, (6, 256))
        mask = torch.ones_like(tokens)
        mask[2, 200:], mask[5, 230:] = 0, 0
        labels = tokens.masked_fill(mask == 0, -100)
        labels[:, :96] = -100
        batch = tokens.cuda(), mask.cuda(), labels.cuda()
        with torch.no_grad():
            better_before, worse_before = chances(reference, *batch).chunk(2)
        better, worse = chances(policy, *batch).chunk(2)
        margin = (better - worse) - (better_before - worse_before)
        return -F.logsigmoid(0.1 * margin).mean()

    train(policy, torch.optim.RMSprop(policy.parameters(), 5e-7), loss, autocast=BF16, clip=10.0)
