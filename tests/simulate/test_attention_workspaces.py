"""What cuDNN's attention worked in on an H200, in inference in bfloat16, and what the simulation says."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import torch

from memprof.simulate.cards import card_named
from memprof.simulate.kernels.attention import cudnn_forward_workspace

_TABLE = json.loads(
    gzip.decompress((Path(__file__).parent / "data" / "attention_workspaces_h200.json.gz").read_bytes())
)


def test_workspaces_are_those_that_cudnn_asked_for() -> None:
    """Given recorded calls, when their workspaces are asked for, then they are the recorded ones to the byte."""
    rows = [dict(zip(_TABLE["columns"], row, strict=True)) for row in _TABLE["rows"]]
    found = []
    for row in rows:
        query = torch.empty(row["batch"], row["heads"], row["rows"], row["size"], device="meta")
        key = torch.empty(row["batch"], row["key_heads"], row["keys"], row["size"], device="meta")
        found.append(cudnn_forward_workspace(card_named("h200"), query, key, key))
    wrong = [(row, said) for row, said in zip(rows, found, strict=True) if row["workspace"] != said]
    assert wrong == []
    assert len({row["workspace"] for row in rows}) > 30
