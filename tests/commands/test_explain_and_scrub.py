"""``memprof explain`` and ``memprof scrub`` from outside."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

TRACES = Path(__file__).parents[2] / "traces"
NF4 = TRACES / "h200-pythia-70m-16-mixed-bnb.nf4-mbs16.pickle"


def memprof(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "memprof", *map(str, arguments)], capture_output=True, text=True, check=False
    )


def test_explain_of_a_sweep_names_the_cause_and_its_bytes_per_sample():
    done = memprof("explain", TRACES / "sweep-pythia-70m")

    assert done.returncode == 0, done.stderr
    assert "mbs 1, 2, 4, 8, 16, 32" in done.stdout
    assert "quantized-output-float32, activations, certain, 125.6 MB per sample" in done.stdout
    assert "\x1b" not in done.stdout


def test_explain_as_json_is_a_list():
    done = memprof("explain", NF4, "--json")

    assert done.returncode == 0, done.stderr
    assert "quantized-output-float32" in [finding["id"] for finding in json.loads(done.stdout)]


def test_breakdown_ends_with_the_most_important_finding():
    done = memprof("breakdown", NF4)

    assert done.returncode == 0, done.stderr
    assert "most important finding: Tensors as wide as the vocabulary take 80% of the peak" in done.stdout


def test_scrub_writes_a_file_that_breaks_down_alike(tmp_path):
    done = memprof("scrub", NF4, tmp_path / "public.pickle")

    assert done.returncode == 0, done.stderr
    assert "every number is as it was" in done.stdout
    before, after = (
        json.loads(memprof("breakdown", path, "--json").stdout) for path in (NF4, tmp_path / "public.pickle")
    )
    before.pop("file")
    after.pop("file")
    assert after == before


@pytest.mark.parametrize("arguments", [("explain", "nothing.pickle"), ("scrub", "nothing.pickle", "out.pickle")])
def test_missing_file_is_one_line(arguments, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.chdir(tmp_path)

    done = memprof(*arguments)

    assert (done.returncode, done.stderr) == (1, "memprof: nothing.pickle: no such file\n")
    assert list(tmp_path.iterdir()) == []
