"""`growth`, `compare` and `report` from outside, on the H200 captures that are in the repository."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TRACES = Path(__file__).parents[2] / "traces"
NAME = "h200-pythia-70m-16-mixed-{}-mbs{}.pickle"
PEAKS = {("none", 16): 9_417_176_576, ("bnb.nf4", 16): 9_369_105_920}
"""What torch.cuda.max_memory_allocated() said, of recordings by an independent script."""


def memprof(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "memprof", *map(str, arguments)], capture_output=True, text=True, check=False
    )


def trace(quant, mbs):
    return TRACES / NAME.format(quant, mbs)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two configurations at two points each, without a sweep.json."""
    made = tmp_path_factory.mktemp("captures")
    for quant in ("none", "bnb.nf4"):
        for mbs in (1, 16):
            shutil.copy(trace(quant, mbs), made)
    return made


@pytest.fixture(scope="module")
def growth(folder):
    done = memprof("growth", folder, "--by", "module", "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def compared():
    done = memprof("compare", trace("none", 16), trace("bnb.nf4", 16), "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_growth_reads_plain_directories(growth):
    groups = {group["config"]["quant"]: group for group in growth["groups"]}

    for (quant, mbs), peak in PEAKS.items():
        (point,) = (point for point in groups[quant]["points"] if point["at"] == mbs)
        assert (point["allocated_bytes"], point["status"]) == (peak, "ok")
    for group in groups.values():
        slopes = [fit["slope_bytes"] for fit in group["categories"].values()]
        assert sum(slopes) == pytest.approx(group["total"]["slope_bytes"], abs=1e-3)
        assert sum(cause["slope_bytes"] for cause in group["causes"]) == pytest.approx(sum(slopes), abs=1e-3)
        assert group["reserved"]["slope_bytes"] > 0


def test_growth_finds_the_crossover_and_its_tensors(growth):
    (crossover,) = growth["crossovers"]

    assert crossover["setting"] == "quant"
    assert 16 < crossover["low"] <= crossover["at"] <= crossover["high"] < 20
    assert crossover["extrapolated"]
    assert abs(sum(crossover["paid_by"].values())) <= 10  # each of ten categories is rounded to a byte
    outputs = [cause for cause in crossover["causes"] if cause["module"] == "lm_head.linear"]
    assert {cause["dtype_a"] for cause in outputs} | {cause["dtype_b"] for cause in outputs} >= {"float16", "float32"}


def test_growth_names_the_cause_and_what_it_costs_by_the_sample(growth):
    (found,) = (each for each in growth["findings"] if each["id"] == "quantized-output-float32")

    assert growth["groups"][found["group"]]["config"]["quant"] == "bnb.nf4"
    # Two bytes for each logit of 1037 tokens, and for what five of six layers keep between their linear ones; blocks of
    # a single sample are rounded by more than those of 16.
    assert found["bytes_per_sample"] == pytest.approx(2 * 1037 * (50304 + 5 * 2048), rel=0.005)
    assert [each["finding"] for each in growth["crossovers"][0]["explained_by"]] == ["quantized-output-float32"]


def test_growth_for_people_names_the_float32_outputs(folder):
    done = memprof("growth", folder)

    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert re.search(
        r"^crossover  mbs 17\.\d, between 1\d\.\d and 1\d\.\d, beyond what was measured", done.stdout, re.MULTILINE
    )
    assert re.search(r"MB  activations logits lm_head\.linear .*float(16|32) -> float(16|32)", done.stdout)


def test_rows_of_compare_sum_to_the_difference(compared):
    assert compared["difference_bytes"] == PEAKS["bnb.nf4", 16] - PEAKS["none", 16]
    assert sum(row["difference_bytes"] for row in compared["rows"]) == compared["difference_bytes"]
    assert sum(row["bytes_a"] for row in compared["rows"]) == PEAKS["none", 16]
    assert all(row["bytes_b"] - row["bytes_a"] == row["difference_bytes"] for row in compared["rows"])
    keys = {"category", "module", "op", "dtype_a", "dtype_b", "bytes_a", "bytes_b", "difference_bytes"}
    assert all(set(row) >= keys for row in compared["rows"])


def test_compare_pairs_the_logits_that_changed_type(compared):
    (row,) = (
        row
        for row in compared["rows"]
        if row["module"] == "lm_head.linear" and (row["dtype_a"], row["dtype_b"]) == ("float16", "float32")
    )

    # mbs x length x vocabulary, in 2 and in 4 bytes; the rest is what blocks are larger.
    assert row["bytes_a"] == pytest.approx(16 * 1037 * 50304 * 2, rel=0.001)
    assert row["bytes_b"] == pytest.approx(16 * 1037 * 50304 * 4, rel=0.01)


def test_compare_says_it_in_words():
    done = memprof("compare", trace("none", 16), trace("bnb.nf4", 16), "--by", "dtype")

    assert done.returncode == 0
    assert (
        "lm_head.linear logits of aten::mm -> aten::_to_copy: float16 -> float32, +1.678 GB, 9 tensors" in done.stdout
    )
    assert done.stdout.rstrip().endswith("-48.07 MB")


def test_report_of_a_capture_is_one_page_that_fetches_nothing(tmp_path):
    page = tmp_path / "page.html"

    done = memprof("report", trace("bnb.nf4", 1), "-o", page)

    assert done.returncode == 0, done.stderr
    text = page.read_text(encoding="utf-8")
    assert "default-src &#x27;none&#x27;" in text or "default-src 'none'" in text
    assert not re.search(r"<(script|link|img|iframe)[^>]+(src|href)\s*=", text)
    assert "lm_head.linear" in text
    assert len(text) > 4_000_000  # plotly itself is in it
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_report_of_a_sweep_shows_the_crossover(folder, tmp_path):
    page = tmp_path / "page.html"

    done = memprof("report", folder, "-o", page)

    assert done.returncode == 0, done.stderr
    text = page.read_text(encoding="utf-8")
    assert "Crossover at mbs 17." in text
    assert "float16 -&gt; float32" in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("growth", "{tmp}"), "no capture to measure growth on"),
        (("growth", "{tmp}/none"), "is not a directory"),
        (("compare", "{tmp}/none", "{tmp}/none"), "no such file"),
        (("compare", "{trace}", "{trace}", "--device", "3"), "nothing recorded for device 3"),
        (("report", "{tmp}/none"), "no such file"),
        (("report", "{trace}", "-o", "{tmp}/none/page.html"), "cannot be written"),
    ],
)
def test_what_cannot_be_done_is_one_line(arguments, said, folder, tmp_path):
    done = memprof(*(each.format(tmp=tmp_path, folder=folder, trace=trace("none", 1)) for each in arguments))

    assert done.returncode == 1
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("growth", "{folder}", "--over", "rank"), "--over rank: unknown; it can be mbs or seq"),
        (("growth", "{folder}", "--by", "stack"), "--by stack: unknown; it can be module, op, dtype"),
        (("compare", "{trace}", "{trace}", "--by", "stack"), "--by stack: unknown"),
    ],
)
def test_a_value_that_an_option_cannot_have_is_wrong_usage(arguments, said, folder):
    done = memprof(*(each.format(folder=folder, trace=trace("none", 1)) for each in arguments))

    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_none_of_it_imports_torch_and_only_report_imports_plotly(folder):
    code = "import sys; from memprof.cli import app; app({!r}, standalone_mode=False); print(*sorted(sys.modules))"
    for arguments in (["growth", str(folder)], ["compare", str(trace("none", 1)), str(trace("none", 16))]):
        done = subprocess.run(
            [sys.executable, "-c", code.format(arguments)], capture_output=True, text=True, check=True
        )
        modules = set(done.stdout.splitlines()[-1].split())
        assert not modules & {"torch", "plotly"}
