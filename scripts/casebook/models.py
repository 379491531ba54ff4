"""Models of the casebook: Llama-shaped, random weights, built on the host as ``from_pretrained`` leaves them.

Weights keep whatever memory they get: their values change no allocation.
"""

# ruff: noqa: INP001, T201 - beside scripts
from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

SHAPES: dict[str, dict[str, Any]] = {
    "small": {"hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 4, "num_attention_heads": 8,
              "num_key_value_heads": 8, "vocab_size": 32000},
    "tiny-llama-1.1b": {"hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 22,
                        "num_attention_heads": 32, "num_key_value_heads": 4, "vocab_size": 32000},
    "llama-3.2-1b": {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
                     "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
                     "tie_word_embeddings": True},
    "llama-2-7b": {"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
                   "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 32000},
    "mistral-7b": {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
                   "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000},
    "llama-3.1-8b": {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
                     "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256},
    "ministral-8b": {"hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36,
                     "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 131072},
}  # fmt: skip
"""As in the models' published configurations, but for the attention windows of Mistral and Ministral."""
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def build(name: str, dtype: torch.dtype = torch.bfloat16, **changes: Any) -> Any:
    """Build a model on the host."""
    nn.Linear.reset_parameters = nn.Embedding.reset_parameters = lambda *_: None  # type: ignore[method-assign,assignment]
    LlamaForCausalLM.init_weights = LlamaForCausalLM._init_weights = lambda *_: None  # type: ignore[method-assign]
    settings = {"max_position_embeddings": 1 << 17, "use_cache": False, "pad_token_id": 0, **SHAPES[name], **changes}
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        model = LlamaForCausalLM(LlamaConfig(**settings))
    finally:
        torch.set_default_dtype(before)
    model.tie_weights()
    return model


def quantize(model: Any, compute: torch.dtype, *, only: list[str] | None = None, double: bool = False) -> Any:
    """Make the linear layers nf4, as ``BitsAndBytesConfig(load_in_4bit=True)`` does: all but the output layer."""
    import bitsandbytes

    for name, module in list(model.named_modules()):
        last = name.rpartition(".")[2]
        if not isinstance(module, nn.Linear) or last == "lm_head" or (only and last not in only):
            continue
        options = {"compute_dtype": compute, "quant_type": "nf4", "compress_statistics": double}
        with torch.device("meta"):
            new = bitsandbytes.nn.Linear4bit(module.in_features, module.out_features, bias=False, **options)
        new.weight = bitsandbytes.nn.Params4bit(
            module.weight.data, requires_grad=False, quant_type="nf4", compress_statistics=double
        )
        model.set_submodule(name, new)
    model.is_loaded_in_4bit = True
    return model


def adapt(model: Any, targets: list[str], r: int = 8, dropout: float = 0.05) -> Any:
    """Give a model adapters by peft."""
    from peft import LoraConfig, get_peft_model

    return get_peft_model(model, LoraConfig(r=r, lora_alpha=16, lora_dropout=dropout, target_modules=targets))


def batch(mbs: int, seq: int, vocabulary: int = 32000) -> dict[str, torch.Tensor]:
    """Return random tokens that are their own labels."""
    tokens = torch.randint(0, vocabulary, (mbs, seq)).cuda()
    return {"input_ids": tokens, "labels": tokens}


def train(model: Any, steps: int, mbs: int, seq: int, *, lr: float = 1e-4, vocabulary: int = 32000) -> None:
    """Train as everybody does: the loss of the model, AdamW on what is trained."""
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=lr)
    for _ in range(steps):
        loss = model(**batch(mbs, seq, vocabulary)).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        del loss


def say() -> None:
    """Print what the threads print."""
    free, total = torch.cuda.mem_get_info()
    print(
        f"now {torch.cuda.memory_allocated()} peak {torch.cuda.max_memory_allocated()} "
        f"reserved {torch.cuda.memory_reserved()} most reserved {torch.cuda.max_memory_reserved()} used {total - free}"
    )
