"""litgpt's models in transformers: their configurations, random checkpoints of them, and the names of their layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memprof.errors import UsageError
from memprof.recipes.checkpoints import model_config

if TYPE_CHECKING:
    import torch

    from memprof.recipes.settings import CommonSettings

__all__ = ["lora_targets", "save_random_checkpoint"]

LAYERS = {
    # One fused projection: adapting any of the three adapts all.
    "GptNeoxMLP": {
        "query": ["query_key_value"],
        "key": ["query_key_value"],
        "value": ["query_key_value"],
        "projection": ["attention.dense"],
        "mlp": ["dense_h_to_4h", "dense_4h_to_h"],
        "head": ["embed_out"],
    },
    "LLaMAMLP": {
        "query": ["q_proj"],
        "key": ["k_proj"],
        "value": ["v_proj"],
        "projection": ["o_proj"],
        "mlp": ["gate_proj", "up_proj", "down_proj"],
        "head": ["lm_head"],
    },
}
"""litgpt's MLP class, which tells the family; there the names that peft finds the layers by."""


def lora_targets(run: CommonSettings) -> list[str]:
    """Return the names of the layers that `run` adapts.

    Raises
    ------
    UsageError
        If the model has no counterpart here, or nothing is adapted.
    """
    layers = LAYERS[_family(run)]
    wanted = [name for part, names in layers.items() if getattr(run, f"lora_{part}") for name in names]
    if not wanted:
        raise UsageError("nothing would be trained: adapt at least one of the layers")
    return list(dict.fromkeys(wanted))


def save_random_checkpoint(run: CommonSettings, directory: str, dtype: torch.dtype) -> None:
    """Write a checkpoint of the model with random weights, as ``from_pretrained`` reads it."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_config(_config(run)).to(dtype)
    model.save_pretrained(directory)


def _family(run: CommonSettings) -> str:
    config = model_config(run.model, None)
    family = str(config.mlp_class_name)
    if family not in LAYERS or config.norm_class_name not in ("LayerNorm", "RMSNorm") or config.sliding_window_size:
        raise UsageError(f"--model {run.model}: this recipe knows GPT-NeoX (pythia) and Llama models only")
    return family


def _config(run: CommonSettings) -> Any:
    ours = model_config(run.model, None)
    common = {
        "vocab_size": ours.padded_vocab_size,
        "hidden_size": ours.n_embd,
        "intermediate_size": ours.intermediate_size,
        "num_hidden_layers": ours.n_layer,
        "num_attention_heads": ours.n_head,
        "max_position_embeddings": ours.block_size,
        "tie_word_embeddings": False,
    }
    if _family(run) == "GptNeoxMLP":
        from transformers import GPTNeoXConfig

        return GPTNeoXConfig(**common, rotary_pct=ours.rotary_percentage, use_parallel_residual=ours.parallel_residual)
    from transformers import LlamaConfig

    return LlamaConfig(**common, num_key_value_heads=ours.n_query_groups, rms_norm_eps=ours.norm_eps)
