# ruff: noqa: INP001  # a script, not a package
"""The training runs that predictions are compared on: each builds a model and trains two steps on ``cuda``.

They run unchanged on a real card and on the simulated one:

    python scripts/prediction_runs.py NAME OUTPUT.json.gz     # NAME: a row of tests/simulate/data/measured.json
"""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent))
from recorded_events import events_of, write_events

__all__ = ["run"]


def run(config: dict[str, Any]) -> None:
    """Run one configuration of the table."""
    {"lit_gpt": lit_gpt, "huggingface": huggingface}[config["run"]](config)


def lit_gpt(config: dict[str, Any]) -> None:
    """Run the LoRA step of lit-gpt (September 2023)."""
    from memprof.capture.observer import Observer
    from memprof.recipes.lit_gpt_2023 import LitGpt2023

    names = ("model", "precision", "quant", "seq", "mbs")
    recipe = LitGpt2023(**{name: config[name] for name in names})
    recipe.run(torch.device("cuda", 0), Observer(lambda _step: None))


def huggingface(config: dict[str, Any]) -> None:
    """Run two steps of LoRA on a small transformers model, batch 4 of 1024 tokens."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(0)
    model, targets = _model(config["model"])
    autocast = config.get("autocast", False)
    model = model.to(torch.float32 if autocast else torch.bfloat16)
    if config.get("quant"):
        _quantize(model)
    model = model.to("cuda")
    if config.get("checkpointing"):
        model.gradient_checkpointing_enable({"use_reentrant": False})
        model.enable_input_require_grads()
    model = get_peft_model(model, LoraConfig(r=8, lora_alpha=16, lora_dropout=0.05, target_modules=targets))
    model.train()
    optimizer = _optimizer(config.get("optimizer", "adamw"), [p for p in model.parameters() if p.requires_grad])
    for _ in range(2):
        tokens = torch.randint(0, 1000, (4, 1024), device="cuda")
        with torch.autocast("cuda", torch.bfloat16) if autocast else contextlib.nullcontext():
            # The mask is not kept: it must be gone when backward begins.
            loss = model(input_ids=tokens, labels=tokens, **_mask(tokens, config)).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def _mask(tokens: torch.Tensor, config: dict[str, Any]) -> dict[str, torch.Tensor]:
    return {"attention_mask": torch.ones_like(tokens)} if config.get("mask") else {}


def _model(name: str) -> tuple[torch.nn.Module, list[str]]:
    """Build a model with random weights, and name what LoRA adapts in it."""
    import transformers

    if name == "llama":
        config: Any = transformers.LlamaConfig(
            vocab_size=32000,
            hidden_size=2048,
            intermediate_size=5632,
            num_hidden_layers=4,
            num_attention_heads=32,
            num_key_value_heads=4,
        )
        return transformers.LlamaForCausalLM(config), ["q_proj", "v_proj"]
    if name == "neox":
        config = transformers.GPTNeoXConfig(
            vocab_size=50304,
            hidden_size=512,
            intermediate_size=2048,
            num_hidden_layers=6,
            num_attention_heads=8,
        )
        return transformers.GPTNeoXForCausalLM(config), ["query_key_value"]
    config = transformers.Qwen2Config(
        vocab_size=151936,
        hidden_size=896,
        intermediate_size=4864,
        num_hidden_layers=6,
        num_attention_heads=14,
        num_key_value_heads=2,
    )
    return transformers.Qwen2ForCausalLM(config), ["q_proj", "v_proj"]


def _quantize(model: torch.nn.Module) -> None:
    """Replace every linear layer by bitsandbytes' 4-bit one, but those that are called a head."""
    import bitsandbytes as bnb

    for name, module in list(model.named_modules()):
        if isinstance(module, torch.nn.Linear) and "head" not in name:
            packed = bnb.nn.Linear4bit(
                module.in_features,
                module.out_features,
                bias=module.bias is not None,
                compute_dtype=torch.bfloat16,
                quant_type="nf4",
            )
            packed.weight = bnb.nn.Params4bit(module.weight.data, requires_grad=False, quant_type="nf4")
            packed.bias = module.bias
            parent, _, child = name.rpartition(".")
            setattr(model.get_submodule(parent), child, packed)


def _optimizer(name: str, parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
    if name == "adamw8bit":
        import bitsandbytes as bnb

        return bnb.optim.AdamW8bit(parameters, lr=1e-4)  # type: ignore[no-any-return]
    return torch.optim.AdamW(parameters, lr=1e-4, fused=name == "fused" or None)


def main() -> None:
    """Run one row on the device that is there and write the allocator's figures and events."""
    rows = json.loads((Path(__file__).parents[1] / "tests/simulate/data/measured.json").read_text(encoding="utf-8"))
    config = next(row["config"] for row in rows if row["name"] == sys.argv[1])
    torch.cuda.memory._record_memory_history(context=None, max_entries=1_000_000)
    run(config)
    figures = {
        "case": sys.argv[1],
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(0),
        "allocated": torch.cuda.max_memory_allocated(),
        "reserved": torch.cuda.max_memory_reserved(),
        **events_of(torch.cuda.memory._snapshot()["device_traces"][0]),
    }
    write_events(Path(sys.argv[2]), figures)


if __name__ == "__main__":
    main()
