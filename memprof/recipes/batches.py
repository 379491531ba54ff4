"""The batches of a run: random tokens, or the longest samples of an Alpaca file.

lit-gpt put the longest sample of the data into its first batch, so that a run that does not fit fails at once.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch

from memprof.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["Batch", "alpaca_batches", "random_batches"]

Batch = tuple[torch.Tensor, torch.Tensor]
"""Token ids and targets, each micro-batch x length, int64."""

IGNORED = -100
"""Target that cross entropy leaves out: padding."""


def random_batches(vocabulary: int, mbs: int, seq: int, device: torch.device) -> Callable[[int], Batch]:
    """Return a function that makes the batch of a step: random tokens below `vocabulary`, also as the targets."""

    def batch(_step: int) -> Batch:
        tokens = torch.randint(0, vocabulary, (mbs, seq), device=device)
        return tokens, tokens.clone()

    return batch


def alpaca_batches(path: Path, tokenizer_dir: Path, mbs: int, seq: int, device: torch.device) -> Callable[[int], Batch]:
    """Return a function that makes the batch of a step from an Alpaca file, longest samples first.

    Samples are cut at `seq` tokens; a batch is padded to its longest one.

    Raises
    ------
    InputError
        If the file is not a JSON list of objects with ``instruction`` and ``output``, or the tokenizer cannot be read.
    """
    samples = _samples(path)
    tokenizer = _tokenizer(tokenizer_dir)
    from litgpt.data.base import SFTDataset

    dataset = SFTDataset(
        data=samples,
        tokenizer=tokenizer,
        prompt_style="alpaca",
        max_seq_length=seq,
        mask_prompt=False,
        ignore_index=IGNORED,
    )
    rows = [dataset[index] for index in range(len(samples))]
    rows.sort(key=lambda row: len(row["input_ids"]), reverse=True)

    def batch(step: int) -> Batch:
        chosen = [rows[(step * mbs + offset) % len(rows)] for offset in range(mbs)]
        pad = torch.nn.utils.rnn.pad_sequence
        tokens = pad([row["input_ids"] for row in chosen], batch_first=True, padding_value=0)
        targets = pad([row["labels"] for row in chosen], batch_first=True, padding_value=IGNORED)
        return tokens.to(device), targets.to(device)

    return batch


def _samples(path: Path) -> list[dict[str, Any]]:
    try:
        with path.open(encoding="utf-8") as file:
            samples = json.load(file)
    except OSError as error:
        raise InputError(f"--data {path}: {error.strerror}; give a JSON file in Alpaca's format") from None
    except ValueError as error:
        raise InputError(f"--data {path}: not JSON ({error}); give a JSON file in Alpaca's format") from None
    fine = (
        isinstance(samples, list)
        and samples
        and all(
            isinstance(sample, dict)
            and isinstance(sample.get("instruction"), str)
            and isinstance(sample.get("output"), str)
            for sample in samples
        )
    )
    if not fine:
        raise InputError(
            f"--data {path}: not in Alpaca's format; it must be a list of objects that have 'instruction' and 'output'"
        )
    return [{"input": "", **sample} for sample in samples]


def _tokenizer(directory: Path) -> Any:
    from litgpt.tokenizer import Tokenizer

    try:
        return Tokenizer(directory)
    except Exception as error:  # noqa: BLE001 - litgpt, tokenizers and sentencepiece raise what they like
        raise InputError(
            f"no tokenizer in {directory} ({error}); give --tokenizer-dir a directory with tokenizer.json"
        ) from None
