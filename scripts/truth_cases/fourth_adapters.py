"""Fourth round: LoRA, plain and quantized, by peft and by lit-gpt, and preferences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812  # the name that everybody gives it
from torch import nn
from wider_runs import token_loss, train

from truth_cases.fourth_language import TINY_LLAMA, smollm
from truth_cases.lora import adapted
from truth_cases.registry import registry
from truth_cases.third_language import family

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CASES"]

CASES, case = registry()
BF16 = torch.bfloat16


def _trained(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def _replaced(model: nn.Module, made: Callable[[nn.Linear], nn.Module]) -> nn.Module:
    """Replace every linear layer but the head."""
    for name, module in list(model.named_modules()):
        if isinstance(module, nn.Linear) and "head" not in name:
            parent, _, child = name.rpartition(".")
            fresh = made(module)
            fresh.bias = module.bias
            setattr(model.get_submodule(parent), child, fresh)
    return model


@case
def preferences_adapters_switched_off() -> None:
    """Train adapters of a SmolLM on preferences (DPO): the model without them is the reference, padded pairs."""
    model = adapted(
        smollm().to(BF16).cuda(),
        ["q_proj", "k_proj", "v_proj", "o_proj"],
        r=16,
        lora_dropout=0.0,
        task_type="CAUSAL_LM",
    )

    def chances(tokens: torch.Tensor, mask: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        logits = model(input_ids=tokens, attention_mask=mask).logits[:, :-1].float()
        wanted = labels[:, 1:].clone()
        shown = wanted != -100
        wanted[~shown] = 0
        each = torch.gather(logits.log_softmax(-1), 2, wanted.unsqueeze(2)).squeeze(2)
        return (each * shown).sum(-1)

    def loss() -> torch.Tensor:
        tokens = torch.randint(10, 49000, (4, 320))
        mask = torch.ones_like(tokens)
        mask[1, 250:], mask[3, 280:] = 0, 0
        labels = tokens.masked_fill(mask == 0, -100)
        labels[:, :120] = -100
        batch = tokens.cuda(), mask.cuda(), labels.cuda()
        with torch.no_grad(), model.disable_adapter():
            before = chances(*batch)
        better, worse = (chances(*batch) - before).chunk(2)
        return -F.logsigmoid(0.1 * (better - worse)).mean()

    train(model, torch.optim.AdamW(_trained(model), 5e-6), loss)


@case
def lora_tinyllama_nf4_twice_quantized() -> None:
    """Train LoRA on six 4-bit layers of a TinyLlama, constants quantized too, checkpointing, paged AdamW."""
    import bitsandbytes as bnb
    import peft

    def made(layer: nn.Linear) -> nn.Module:
        fresh = bnb.nn.Linear4bit(
            layer.in_features,
            layer.out_features,
            bias=False,
            compute_dtype=BF16,
            compress_statistics=True,
            quant_type="nf4",
        )
        fresh.weight = bnb.nn.Params4bit(
            layer.weight.data, requires_grad=False, compress_statistics=True, quant_type="nf4"
        )
        return fresh

    model = _replaced(family("Llama", num_hidden_layers=6, **TINY_LLAMA).to(BF16), made).cuda()
    model.is_loaded_in_4bit = True
    model = peft.prepare_model_for_kbit_training(model, gradient_checkpointing_kwargs={"use_reentrant": False})
    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    model = adapted(model, targets, r=16, lora_dropout=0.05, task_type="CAUSAL_LM")
    optimizer = bnb.optim.PagedAdamW32bit(_trained(model), 2e-4)
    train(model, optimizer, token_loss(model, 2, 768, 32000), autocast=BF16, accumulate=2, clip=0.3, steps=2)


@case
def lora_opt_int8_fp16() -> None:
    """Train LoRA on eight 8-bit layers of an OPT-350m's width, outliers apart, float16 autocast, checkpointing."""
    import bitsandbytes as bnb
    import peft

    def made(layer: nn.Linear) -> nn.Module:
        fresh = bnb.nn.Linear8bitLt(
            layer.in_features, layer.out_features, layer.bias is not None, has_fp16_weights=False, threshold=6.0
        )
        fresh.weight = bnb.nn.Int8Params(layer.weight.data, requires_grad=False, has_fp16_weights=False)
        return fresh

    model = family("OPT", hidden_size=1024, ffn_dim=4096, num_hidden_layers=8, num_attention_heads=16).half()
    model = _replaced(model, made).cuda()
    model.is_loaded_in_8bit = True
    model = peft.prepare_model_for_kbit_training(model, gradient_checkpointing_kwargs={"use_reentrant": False})
    model = adapted(model, ["q_proj", "v_proj"], r=16, lora_dropout=0.05, task_type="CAUSAL_LM")
    optimizer = torch.optim.AdamW(_trained(model), 1e-4)
    train(model, optimizer, token_loss(model, 4, 256, 50000), autocast=torch.float16, scaler=True, steps=12)


def _lit_gpt(**options: Any) -> None:
    from memprof.capture.observer import Observer
    from memprof.recipes.lit_gpt_2023 import LitGpt2023

    LitGpt2023(**options).run(torch.device("cuda", 0), Observer(lambda _step: None))


@case
def lit_gpt_microllama_nf4() -> None:
    """Train lit-gpt's LoRA on a 4-bit MicroLlama, every linear layer adapted, weights in bfloat16."""
    _lit_gpt(
        model="micro-llama-300M",
        precision="bf16-true",
        quant="bnb.nf4",
        seq=640,
        mbs=4,
        cycles=2,
        lora_key=True,
        lora_projection=True,
        lora_mlp=True,
        lora_head=True,
    )


@case
def lit_gpt_smollm2_plain() -> None:
    """Train lit-gpt's LoRA on a SmolLM2-360M in bfloat16 autocast, three batches a step."""
    _lit_gpt(model="SmolLM2-360M", precision="bf16-mixed", seq=448, mbs=2, steps=3, cycles=2, lora_r=16)
