# ruff: noqa: INP001  # a script, not a package
"""Put what other estimators say beside what was measured on a GPU and what memprof predicts.

    python scripts/side_by_side.py --kitsune DIRECTORY [--output docs/side-by-side.md]

DIRECTORY is where `pip install --no-deps --target DIRECTORY torch-kitsune` put it; accelerate and litgpt have to be
installed. Measured and predicted figures are read from ``docs/predictions.json`` and ``docs/wider-*.json``; no GPU and
no hub is asked.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from dataclasses import dataclass
from importlib.metadata import distribution, version
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

ROOT = Path(__file__).parents[1]
HALF = {"16": torch.float16, "bf16": torch.bfloat16}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One run: how the estimators are told of it, what was measured, and what memprof predicted."""

    name: str
    model: Callable[[], nn.Module]
    """Builds it with its own dtype."""
    configuration: Any
    """transformers' configuration of it, for accelerate."""
    shape: tuple[int, ...]
    """Of one sample."""
    batch: int
    dtype: torch.dtype
    """What is computed in."""
    weights: str
    """accelerate's name of what weights are stored in."""
    allocated: int
    reserved: int
    predicted_allocated: int
    predicted_reserved: int
    quantized: bool = False
    targets: tuple[str, ...] = ()
    """Parts of the names of layers that have adapters."""


HEAD = "| run | measured allocated | reserved | memprof allocated | reserved | torch-kitsune as it is | helped |"


class Helped(nn.Module):
    """A language model that runs on the meta device, given anything of the right shape in place of tokens."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, given: torch.Tensor) -> Any:
        """Run it on token 0."""
        # transformers' rotary embedding asks whether there is autocast on the device, which torch refuses for meta.
        with mock.patch("torch.is_autocast_enabled", return_value=False):
            return self.model(torch.zeros(given.shape, dtype=torch.int64, device=given.device))


def lora_rows() -> list[Row]:
    """Return the LoRA runs of ``docs/predictions.json``."""
    rows = []
    for entry in json.loads((ROOT / "docs/predictions.json").read_text(encoding="utf-8")):
        given = entry["config"]
        quantized = given.get("quant", "none") != "none"
        if given["run"] == "lit_gpt":
            mixed = given["precision"].endswith("mixed")
            dtype = HALF[given["precision"].partition("-")[0]]
            build, targets = _litgpt(given["model"]), ("attn.qkv",)
            configuration, shape, batch = _config(given["model"]), (given["seq"],), given["mbs"]
        else:
            mixed, dtype = given.get("autocast", False), torch.bfloat16
            configuration, shape, batch = _config(given["model"]), (1024,), 4
            build = _transformers(configuration)
            targets = ("query_key_value",) if given["model"] == "neox" else ("q_proj", "v_proj")
        stored = (
            torch.float32 if mixed or quantized else dtype
        )  # the LoRA estimate wants the model before it is quantized
        rows.append(
            Row(
                name=entry["name"],
                model=lambda build=build, stored=stored: build().to(stored),
                configuration=configuration,
                shape=shape,
                batch=batch,
                dtype=dtype,
                weights="int4" if quantized else "float32" if mixed else "float16",
                allocated=entry["allocated"],
                reserved=entry["reserved"],
                predicted_allocated=entry["predicted"]["max_allocated_bytes"],
                predicted_reserved=entry["predicted"]["max_reserved_bytes"],
                quantized=quantized,
                targets=targets,
            )
        )
    return rows


def full_rows() -> list[Row]:
    """Return the runs of ``scripts/wider_runs.py`` that train all of a model with Adam."""
    import transformers as hf

    llama = {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 4, "num_attention_heads": 16}
    plain = hf.LlamaConfig(**llama, num_key_value_heads=16)
    grouped = hf.LlamaConfig(**llama, num_key_value_heads=4)
    half, single = torch.bfloat16, torch.float32
    cases = {
        "llama_full_adamw_clip": (hf.LlamaForCausalLM, plain, half, half, 4, (512,)),
        "llama_full_fused_long": (hf.LlamaForCausalLM, plain, half, half, 1, (4096,)),
        "llama_grouped_accumulate": (hf.LlamaForCausalLM, grouped, half, half, 4, (512,)),
        "gpt2_amp_scaler": (hf.GPT2LMHeadModel, hf.GPT2Config(n_layer=4), single, torch.float16, 4, (512,)),
        "bert_fp32_mask": (
            hf.BertForSequenceClassification, hf.BertConfig(num_hidden_layers=4), single, single, 8, (256,),
        ),
        "vit_bf16": (
            hf.ViTForImageClassification, hf.ViTConfig(num_hidden_layers=4, num_labels=1000), single, half,
            16, (3, 224, 224),
        ),
    }  # fmt: skip
    measured = json.loads((ROOT / "docs/wider-measured.json").read_text(encoding="utf-8"))["measured"]
    entries = json.loads((ROOT / "docs/wider-predictions.json").read_text(encoding="utf-8"))["predicted"]
    predicted = {entry["case"]: entry for entry in entries}
    return [
        Row(
            name=name.replace("_", " "),
            model=lambda kind=kind, configuration=configuration, stored=stored: kind(configuration).to(stored),
            configuration=configuration,
            shape=shape,
            batch=batch,
            dtype=computed,
            weights="float32" if computed == single else "float16",
            allocated=measured[name]["allocated"],
            reserved=measured[name]["reserved"],
            predicted_allocated=predicted[name]["allocated"],
            predicted_reserved=predicted[name]["reserved"],
        )
        for name, (kind, configuration, stored, computed, batch, shape) in cases.items()
    ]


def _litgpt(name: str) -> Callable[[], nn.Module]:
    from litgpt import GPT, Config

    return lambda: GPT(Config.from_name(name))


def _transformers(configuration: Any) -> Callable[[], nn.Module]:
    from transformers import AutoModelForCausalLM

    return lambda: AutoModelForCausalLM.from_config(configuration)


def _config(name: str) -> Any:
    """Return transformers' configuration of a model of the table (`scripts/prediction_runs.py` has the small ones)."""
    import transformers as hf

    if name in ("pythia-70m", "neox"):
        return hf.GPTNeoXConfig(
            vocab_size=50304, hidden_size=512, intermediate_size=2048, num_hidden_layers=6, num_attention_heads=8
        )
    if name == "qwen":
        return hf.Qwen2Config(
            vocab_size=151936, hidden_size=896, intermediate_size=4864, num_hidden_layers=6, num_attention_heads=14,
            num_key_value_heads=2,
        )  # fmt: skip
    return hf.LlamaConfig(
        vocab_size=32000, hidden_size=2048, intermediate_size=5632, num_attention_heads=32, num_key_value_heads=4,
        num_hidden_layers=22 if name == "tiny-llama-1.1b" else 4,
    )  # fmt: skip


def accelerate_says(row: Row) -> tuple[int, int]:
    """Return what ``accelerate estimate-memory`` prints: size of the weights, and the peak of training with Adam."""
    import transformers
    from accelerate import init_empty_weights
    from accelerate.commands.estimate import estimate_training_usage
    from accelerate.utils import calculate_maximum_sizes

    # As its create_empty_model does after it has read the configuration from the hub.
    with init_empty_weights():
        model = transformers.AutoModel.from_config(row.configuration, dtype=torch.float32)
    size, _ = calculate_maximum_sizes(model)
    training = estimate_training_usage(size, row.weights) if row.weights != "int4" else {"model": -1}
    return size // {"float32": 1, "float16": 2, "int4": 8}[row.weights], max(training.values())


def kitsune_says(row: Row, *, helped: bool) -> int:
    """Return the total of torch-kitsune: its LoRA estimate, or where nothing is adapted its prediction of training."""
    from kitsune.predict import LoRAConfig, estimate_lora_memory, predict_memory

    with torch.device("meta"):
        model = row.model()
    if helped and len(row.shape) == 1:
        model = Helped(model)
    if not row.targets:
        return predict_memory(model, row.shape, row.batch, row.dtype, optimizer="adamw").total_bytes
    config = LoRAConfig(rank=8, target_modules=row.targets, use_qlora=row.quantized)
    found = estimate_lora_memory(model, row.shape, row.batch, row.dtype, config)
    if not found.num_targeted_layers:
        raise SystemExit(f"{row.name}: torch-kitsune found no layer named {row.targets}")
    return found.total_bytes


def off(said: int, measured: int) -> float:
    """Return the relative error."""
    return (said - measured) / measured


def cell(said: int, measured: int) -> str:
    """Write a figure with its error."""
    error = off(said, measured)
    return f"{said:,} ({error:+.1%})" if abs(error) >= 0.0005 else f"{said:,} (0)"


def summary(errors: Iterable[float]) -> str:
    """Write the median and the worst of absolute errors."""
    sizes = [abs(error) for error in errors]
    return f"median {statistics.median(sizes):.1%}, worst {max(sizes):.1%}"


def compared(rows: list[Row], title: str, last_cell: Callable[[Row], str]) -> list[str]:
    """Return the lines of a table, whose last column is accelerate's, and of the errors against reserved."""
    lines = [f"{HEAD} {title} |", "|---|---:|---:|---:|---:|---:|---:|---:|"]
    errors: dict[str, list[float]] = {"memprof": [], "plain": [], "helped": []}
    for row in rows:
        plain, helped = kitsune_says(row, helped=False), kitsune_says(row, helped=True)
        errors["memprof"].append(off(row.predicted_reserved, row.reserved))
        errors["plain"].append(off(plain, row.reserved))
        errors["helped"].append(off(helped, row.reserved))
        lines.append(
            f"| {row.name} | {row.allocated:,} | {row.reserved:,} | {cell(row.predicted_allocated, row.allocated)} "
            f"| {cell(row.predicted_reserved, row.reserved)} | {cell(plain, row.reserved)} "
            f"| {cell(helped, row.reserved)} | {last_cell(row)} |"
        )
    said = {name: summary(found) for name, found in errors.items()}
    last = "Error against reserved: memprof {memprof}; torch-kitsune as it is {plain}; helped {helped}."
    return [*lines, "", last.format(**said)]


def lora_table(rows: list[Row]) -> list[str]:
    """Return the lines about LoRA."""
    return compared(rows, "accelerate, weights", lambda row: f"{accelerate_says(row)[0]:,}")


def full_table(rows: list[Row]) -> list[str]:
    """Return the lines about training all of a model."""
    errors: list[float] = []

    def training(row: Row) -> str:
        said = accelerate_says(row)[1]
        errors.append(off(said, row.allocated))
        return cell(said, row.allocated)

    lines = compared(rows, "accelerate, training using Adam", training)
    return [*lines, f"Error against allocated: accelerate {summary(errors)}."]


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kitsune", type=Path, required=True, help="where torch-kitsune is")
    parser.add_argument("--output", type=Path, default=ROOT / "docs/side-by-side.md")
    options = parser.parse_args()
    sys.path.append(str(options.kitsune))
    text = PAGE.format(
        kitsune=distribution("torch-kitsune").version,
        accelerate=version("accelerate"),
        transformers=version("transformers"),
        torch=torch.__version__,
        lora="\n".join(lora_table(lora_rows())),
        full="\n".join(full_table(full_rows())),
    )
    options.output.write_text(text, encoding="utf-8")


PAGE = """# Side by side: what other estimators say of the same runs

Written by `scripts/side_by_side.py` with torch-kitsune {kitsune}, accelerate {accelerate}, transformers {transformers},
torch {torch}, without a GPU and without the hub. Bytes. Measured on one H200 with torch 2.11+cu130.
memprof's are those of `docs/predictions.json` and `docs/wider-predictions.json`.

The three answer different questions. What each number claims to be:

- **memprof** runs the program on a simulated device: the allocator's own peaks, of this program and this torch. It
  needs the program, and seconds for each run.
- **torch-kitsune** needs a model and a shape, and no program. Its total is a peak: weights, adapters, their gradients
  and optimizer state, activations, and 15 % of all that for the allocator's overhead and fragmentation. It is compared
  with reserved here. Activations are the outputs of leaf modules in one forward, in the dtype that is given. Not in it:
  the loss, casts of autocast, what an op in a module keeps, dequantized weights, checkpointing, and what backward and
  the optimizer hold at the peak.
  Its forward is given floating-point numbers, which an embedding does not take, and runs on the meta device, on which
  transformers' rotary embedding does not run: the column "as it is" is then what its formulas by layer say, in which a
  linear layer does not know how long a sequence is. "Helped" is the same estimator with the model wrapped so that its
  forward runs; that wrapper is ours.
- **accelerate estimate-memory** needs a model's configuration: it knows neither batch nor length nor adapters. "Total
  size" is the weights in a dtype, and claims no more, so no error stands beside it. "Training using Adam" is the
  largest of what model, gradients, optimizer and step take: four times the weights in float32, and in half precision,
  where weights are counted in float32 too, twice them. It is said to be what training needs at batch size 1. It builds
  `AutoModel`, which has no output layer. Its functions were called with the run's configuration, since the command
  itself asks the hub.

How they were told: the model with its weights in the dtype of the run (float32 in mixed precision and, as the LoRA
estimate asks, where they are quantized later), the dtype that is computed in, rank 8, and the layers that were adapted.

## LoRA and QLoRA

{lora}

## All of a model, with Adam

Six runs of `docs/wider.md` that train every parameter with AdamW, one or more of each kind of model. That page has all
runs, also those that memprof misses.

{full}
"""

if __name__ == "__main__":
    main()
