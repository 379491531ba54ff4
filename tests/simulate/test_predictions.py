"""Predictions against what an H200's allocator said: rows of the table that `scripts/predict_table.py` makes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("transformers", reason="the rows are transformers' models")
pytest.importorskip("peft", reason="the rows are adapted by peft")
pytest.importorskip("bitsandbytes", reason="some rows are quantized")

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
from predict_table import predict

pytestmark = pytest.mark.torch

ROWS = {row["name"]: row for row in json.loads((Path(__file__).parent / "data/measured.json").read_text("utf-8"))}


@pytest.mark.parametrize("name", ["transformers neox autocast", "transformers llama nf4 checkpointing"])
def test_rows_are_met_to_the_byte(name: str) -> None:
    row = ROWS[name]
    found = predict(row["config"])
    assert found["max_allocated_bytes"] == row["allocated"]
    assert found["max_reserved_bytes"] == row["reserved"]
    assert found["reserved_low"] <= row["reserved"] <= found["reserved_high"]


def test_seven_billion_parameters_need_little_host_memory() -> None:
    config = {
        "run": "lit_gpt",
        "model": "Llama-2-7b-hf",
        "precision": "bf16-true",
        "quant": "none",
        "seq": 128,
        "mbs": 1,
    }
    found = predict(config)
    assert found["max_allocated_bytes"] > 13_000_000_000
    assert found["host_peak_bytes"] < 1 << 30
