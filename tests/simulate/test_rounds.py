"""Runs of the rounds that were predicted before they were measured: some that are quick, held to what was recorded."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("transformers", reason="the runs train transformers' models")
pytest.importorskip("peft", reason="some runs are adapted by peft")
pytest.importorskip("bitsandbytes", reason="some runs are quantized")

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
sys.path.insert(0, str(Path(__file__).parent))
from recorded_events import read_events, sizes_of
from recorded_runs import recorded_runs
from truth_predict import predict

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("script", "case"),
    [
        ("wider_runs", "encoder_fp32_loop"),
        ("truth_runs", "convnext_bf16"),
        ("truth_runs", "lora_falcon"),
        ("truth_runs", "neox_lora_expandable"),
        ("truth_runs", "unet_fp16_channels_last"),
        ("third_runs", "pegasus_beams"),
        ("third_runs", "prompt_granite"),
    ],
)
def test_a_recorded_run_is_repeated(script: str, case: str, tmp_path: Path) -> None:
    # given a run recorded on an H200
    truth = recorded_runs(script)[case]
    # when the same program runs on the simulated card
    found = predict(script, case, tmp_path)
    # then it asks for the same sizes, in the same order, from first to last
    assert sizes_of(read_events(tmp_path / f"{case}.json.gz")) == sizes_of(truth)
    # and the peaks are the same, where the simulation puts its segments as where the card's driver put the run's
    peaks = (truth["allocated"], truth["reserved"])
    assert (found["allocated"], found["reserved"]) == peaks
    assert tuple(found.get("at_recorded_addresses") or peaks) == peaks


def test_a_mask_of_ones_is_known_to_be_all_true(tmp_path: Path) -> None:
    # given a model that makes its own mask, of ones in float32
    truth = recorded_runs("truth_runs")["opt_fp32"]
    predict("truth_runs", "opt_fp32", tmp_path)
    # then the mask is not applied, as on the card
    assert sizes_of(read_events(tmp_path / "opt_fp32.json.gz")) == sizes_of(truth)
