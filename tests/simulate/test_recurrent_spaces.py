"""What cuDNN asked for on an H200 for recurrent networks, and what `memprof.simulate.recurrent` says."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import torch

from memprof.simulate.cards import card_named
from memprof.simulate.recurrent import Call, Network

_TABLE = json.loads(gzip.decompress((Path(__file__).parent / "data" / "recurrent_spaces_h200.json.gz").read_bytes()))
_DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "f64": torch.float64}


def _call(row: dict) -> Call:
    network = Network(
        dtype=_DTYPES[row["dtype"]],
        **{name: row[name] for name in ("mode", "inputs", "hidden", "projected", "layers", "directions")},
    )
    sizes = {name: row[name] for name in ("steps", "batch", "rows")}
    return Call(
        network=network, card=card_named("h200"), dropped=bool(row["dropped"]), packed=bool(row["packed"]), **sizes
    )


@pytest.mark.parametrize("dtype", list(_DTYPES))
def test_spaces_are_those_that_cudnn_asked_for(dtype: str) -> None:
    """Given recorded networks, when their spaces are asked for, then they are the recorded ones to the byte."""
    rows = [dict(zip(_TABLE["columns"], row, strict=True)) for row in _TABLE["rows"]]
    checked = 0
    for row in rows:
        if row["dtype"] != dtype:
            continue
        call = _call(row)
        training, evaluation = call.space(train=True), call.space(train=False)
        backward = call.space(train=True, backward=True)
        found = [training.workspace, backward.workspace, evaluation.workspace, training.reserve]
        measured = [row[name] for name in ("training", "backward", "evaluation", "reserve")]
        assert all(size in {None, said} for size, said in zip(measured, found, strict=True)), (row, found)
        checked += 1
    assert checked > 20
