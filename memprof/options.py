"""Options that several commands take, declared once: everything that `capture` and `sweep` have in common.

typer reads a command's options from its signature. `capture_options` puts the shared ones into the signature of a
function that takes them as ``**options``.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from memprof.capture.choices import check_device, check_labels, check_max_entries, check_stacks

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "RECIPE_DEFAULTS",
    "RECORDER_OPTIONS",
    "AsJson",
    "Labels",
    "MaxEntries",
    "Stacks",
    "capture_options",
    "path",
    "recipe_options",
    "split_options",
]

AsJson = Annotated[bool, typer.Option("--json", help="Print machine-readable JSON instead of tables.")]
Labels = Annotated[
    str,
    typer.Option(
        callback=check_labels,
        help="What each allocation is for: full, light (less time, and rules for what it does not see; CUDA only) or "
        "none.",
    ),
]
Stacks = Annotated[str, typer.Option(callback=check_stacks, help="python, or all (with C++ frames; CUDA only).")]
MaxEntries = Annotated[
    int, typer.Option(callback=check_max_entries, help="Entries kept; older ones are lost beyond it (CUDA only).")
]
Command = TypeVar("Command", bound="Callable[..., None]")


def path(text: str) -> Path:
    """Read a path; a name that is empty, as a script's unset variable leaves it, is refused."""
    if not str(text):
        raise typer.BadParameter("an empty name")
    return Path(text)


def _of_the_recipe(
    *,
    recipe: Annotated[str, typer.Option(help="lit_gpt_2023, litgpt or huggingface.")] = "lit_gpt_2023",
    optimizer: Annotated[str, typer.Option(help="adamw (torch's), paged-adamw, adamw8bit or sgd.")] = "adamw",
    steps: Annotated[int, typer.Option(help="Micro-steps of an optimizer cycle; the last one steps.")] = 2,
    cycles: Annotated[int, typer.Option(help="Optimizer cycles; from the second on, optimizer state is there.")] = 1,
    lora_r: Annotated[int, typer.Option(help="Rank of the adapters.")] = 8,
    lora_alpha: Annotated[int, typer.Option(help="Scale of the adapters.")] = 16,
    lora_dropout: Annotated[float, typer.Option(help="Dropout in front of the adapters.")] = 0.05,
    lora_query: Annotated[bool, typer.Option(help="Adapt the query projection.")] = True,
    lora_key: Annotated[bool, typer.Option(help="Adapt the key projection.")] = False,
    lora_value: Annotated[bool, typer.Option(help="Adapt the value projection.")] = True,
    lora_projection: Annotated[bool, typer.Option(help="Adapt the attention's output projection.")] = False,
    lora_mlp: Annotated[bool, typer.Option(help="Adapt the MLP.")] = False,
    lora_head: Annotated[bool, typer.Option(help="Adapt the output layer.")] = False,
    lm_head_chunk_size: Annotated[
        int, typer.Option(help="Tokens for which the output layer runs at a time; 0 for all at once.")
    ] = 128,
    cross_entropy_chunk_size: Annotated[
        int, typer.Option(help="Tokens over which the loss is taken at a time where logits are one tensor; 0 for all.")
    ] = 128,
    checkpoint_dir: Annotated[
        Path | None, typer.Option(parser=path, help="Directory with lit_model.pth; else random weights.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(parser=path, help="JSON file in Alpaca's format; else random tokens.")
    ] = None,
    tokenizer_dir: Annotated[
        Path | None, typer.Option(parser=path, help="Directory of the tokenizer for --data.")
    ] = None,
    matmul_4bit: Annotated[
        str | None, typer.Option("--matmul-4bit", help="2023: 4-bit layers compute as bitsandbytes 0.41 did.")
    ] = None,
    fabric_output: Annotated[
        bool, typer.Option(help="Logits become float32, and the loss is outside of autocast, as in Lightning Fabric.")
    ] = False,
    gradient_checkpointing: Annotated[bool, typer.Option(help="Checkpoint every layer (huggingface).")] = False,
    prepare_kbit: Annotated[bool, typer.Option(help="Call prepare_model_for_kbit_training (huggingface).")] = False,
) -> None:
    """Declare the options that are fields of the recipe, but for those that a sweep varies."""


def _of_the_recorder(
    *,
    device: Annotated[
        str,
        typer.Option(callback=check_device, help="auto (CUDA if there is one, else a simulated H200), cuda or cpu."),
    ] = "auto",
    simulate: Annotated[
        str | None, typer.Option(metavar="CARD", help="Run on a CUDA device that is not there, such as t4.")
    ] = None,
    labels: Labels = "full",
    stacks: Stacks = "python",
    max_entries: MaxEntries = 2_000_000,
    absolute_paths: Annotated[bool, typer.Option(help="Keep file names as they are, home directory and all.")] = False,
) -> None:
    """Declare the options of the recorder."""


def _parameters(function: Callable[..., None]) -> list[inspect.Parameter]:
    found = inspect.signature(function, eval_str=True).parameters.values()
    return [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in found]


RECIPE_DEFAULTS = {parameter.name: parameter.default for parameter in _parameters(_of_the_recipe)}
RECORDER_OPTIONS = frozenset(parameter.name for parameter in _parameters(_of_the_recorder))


def capture_options(command: Command) -> Command:
    """Add the options of a capture to `command`, which takes them as ``**options``, before its last own one."""
    return _with_options(command, [*_parameters(_of_the_recipe), *_parameters(_of_the_recorder)])


def recipe_options(command: Command) -> Command:
    """Add those of the recipe only, but for what `command` has itself, with a default of its own."""
    own = inspect.signature(command).parameters
    return _with_options(command, [each for each in _parameters(_of_the_recipe) if each.name not in own])


def _with_options(command: Command, shared: list[inspect.Parameter]) -> Command:
    signature = inspect.signature(command, eval_str=True)
    own = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    own = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
    command.__signature__ = signature.replace(parameters=[*own[:-1], *shared, own[-1]])  # type: ignore[attr-defined] # what inspect looks for first
    return command


def split_options(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Part the values of the shared options into those of the recipe and those of the recorder; paths become texts."""
    values = {name: str(value) if isinstance(value, Path) else value for name, value in options.items()}
    recipe = {name: value for name, value in values.items() if name not in RECORDER_OPTIONS}
    return recipe, {name: value for name, value in values.items() if name in RECORDER_OPTIONS}
