"""litgpt's model configurations and checkpoints: found by name or directory, with errors that help."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from memprof.errors import CaptureError, InputError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["available_memory", "load_weights", "model_config"]

WEIGHTS = "lit_model.pth"
"""litgpt's file name."""


def model_config(name: str, checkpoint_dir: str | None, **lora: Any) -> Any:
    """Return litgpt's LoRA configuration of a model name, or of a checkpoint directory.

    Raises
    ------
    CaptureError
        If litgpt is missing.
    UsageError
        If it knows no such model; names the closest ones.
    InputError
        If the directory is not a checkpoint.
    """
    try:
        from litgpt.config import name_to_config
        from litgpt.lora import Config
    except ImportError as error:
        raise CaptureError(f"this recipe needs litgpt: pip install 'memprof[capture]' ({error})") from None
    if checkpoint_dir is not None:
        directory = Path(checkpoint_dir)
        if not (directory / WEIGHTS).is_file():
            raise InputError(f"--checkpoint-dir {checkpoint_dir}: has no {WEIGHTS}; give a directory that litgpt wrote")
        try:
            return Config.from_checkpoint(directory, **lora)
        except FileNotFoundError:
            pass  # neither a model_config.yaml nor a directory with a model's name: --model says what it is
    try:
        return Config.from_name(name, **lora)
    except ValueError:
        close = difflib.get_close_matches(name.lower(), [known.lower() for known in name_to_config], n=3, cutoff=0.5)
        spelled = [known for lower in close for known in name_to_config if known.lower() == lower]
        hint = f"; did you mean {' or '.join(spelled)}?" if spelled else "; see litgpt/config.py for its names"
        raise UsageError(f"--model {name}: litgpt has no model of this name{hint}") from None


def load_weights(model: torch.nn.Module, checkpoint_dir: str) -> None:
    """Load ``lit_model.pth``; the adapters, which it does not have, keep their first values.

    Raises
    ------
    InputError
        If the file cannot be read or does not fit the model.
    """
    path = Path(checkpoint_dir) / WEIGHTS
    try:
        state: Mapping[str, Any] = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
        missing, unexpected = model.load_state_dict(state.get("model", state), strict=False)
    except Exception as error:  # noqa: BLE001 - a broken file raises from zipfile, pickle or torch
        raise InputError(f"--checkpoint-dir {checkpoint_dir}: cannot load {WEIGHTS} ({_first_line(error)})") from None
    wrong = [name for name in missing if "lora_" not in name] + list(unexpected)
    if wrong:
        raise InputError(
            f"--checkpoint-dir {checkpoint_dir}: {WEIGHTS} is not of this model ({len(wrong)} tensors differ, such as "
            f"{wrong[0]}); give the --model that it was made from"
        )


def available_memory() -> int | None:
    """Return the host memory in bytes that Linux says is available; None where it does not say."""
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:
        return None
    for line in text.splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines() or [type(error).__name__]
    return lines[0]
