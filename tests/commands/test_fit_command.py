"""`memprof fit` from outside: simulated runs of a small model, whose borders captures on the same card confirm."""

from __future__ import annotations

import importlib.util
import json
import signal
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import pytest

from memprof.errors import UnsupportedError
from memprof.simulate.support import check_build

pytestmark = pytest.mark.torch
MODEL = ("--model", "pythia-14m", "--seq", "512")


def memprof(*words):
    return subprocess.run(
        [sys.executable, "-m", "memprof", *map(str, words)], capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def simulates():
    """Skips where nothing can be simulated."""
    torch = pytest.importorskip("torch", reason="simulation needs torch")
    try:
        check_build(torch.__version__, torch.version.cuda, torch.version.hip)
    except UnsupportedError as error:
        pytest.skip(str(error))
    if importlib.util.find_spec("litgpt") is None:
        pytest.skip("the recipe needs litgpt")


@pytest.fixture(scope="module")
def answer(simulates):
    """The largest micro-batch on a T4, and what was said meanwhile."""
    done = memprof("fit", "--card", "t4", *MODEL, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def captured(tmp_path, mbs):
    file = tmp_path / f"mbs{mbs}.pickle"
    words = ("--simulate", "t4", *MODEL, "--mbs", mbs, "--cycles", 2, "--labels", "none", "--json", "-o", file)
    done = memprof("capture", *words)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_answer_says_what_it_is_and_how_sure(answer):
    document, said = answer
    (card,) = document["cards"]

    assert (document["format"], document["source"], document["over"]) == (1, "simulated", "mbs")
    assert document["config"]["model"] == "pythia-14m"
    assert (document["config"]["cycles"], "mbs" in document["config"]) == (2, False)
    assert (card["card"], card["measured"], card["limit"]) == ("t4", False, None)
    assert card["capacity_bytes"] == card["total_bytes"] - card["outside_bytes"]
    # a card that nobody measured is uncertain by what its caveats say, and the answer stays clear of it
    assert card["uncertain_bytes"] == sum(caveat["bytes"] for caveat in card["caveats"]) >= 804_000_000
    assert card["margin_bytes"] >= card["uncertain_bytes"]
    assert any("never measured" in caveat["what"] for caveat in card["caveats"])
    assert len(said.splitlines()) == len(card["points"]) <= 20


def test_borders_are_closed(answer):
    (card,) = answer[0]["cards"]
    points = {point["at"]: point for point in card["points"]}
    served = card["tight"] or card["fits"]

    assert points[card["fits"]]["answer"] == "yes"
    assert points[card["fits"] + 1]["answer"] != "yes"
    assert points[served]["answer"] in ("yes", "tight")
    assert points[served + 1]["answer"] in ("close", "no")
    assert points[card["fails"]]["answer"] == "no"
    assert points[card["fails"] - 1]["answer"] != "no"
    assert card["too_close"] in (None, [served + 1, card["fails"] - 1])


def test_captures_on_the_card_agree(answer, tmp_path):
    # given the largest size that fits and the smallest that does not, and captures that have no more than the card has
    (card,) = answer[0]["cards"]
    points = {point["at"]: point for point in card["points"]}

    fits, fails = captured(tmp_path, card["fits"]), captured(tmp_path, card["fails"])

    assert (fits["status"], fails["status"]) == ("ok", "oom")
    assert fits["peak_allocated_bytes"] == points[card["fits"]]["allocated_bytes"]
    assert fits["max_reserved_bytes"] == points[card["fits"]]["reserved_bytes"]


def test_length_is_searched_as_far_as_the_model_goes_and_several_cards_side_by_side(simulates):
    done = memprof("fit", "--card", "h200,t4", "--max", "seq", "--model", "pythia-14m", "--precision", "bf16-true")

    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("largest sequence length that fits: pythia-14m, bf16-true, none, mbs 1, 2 optimizer")
    assert lines[1].startswith(f"simulated with torch {version('torch')}")
    said = " ".join(done.stdout.split())
    assert said.count("seq 512 fits, with") == said.count("512 was looked at (the recipe takes no more)") == 2
    rows = [line.split() for line in lines[-2:]]
    assert [(row[0], row[4]) for row in rows] == [("NVIDIA", "512"), ("Tesla", "512")]
    assert lines[-1].rstrip().endswith("a bound: never measured")
    assert lines[-2].rstrip().endswith("measured")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--card", "t5"], "card 't5' is not known"),
        (["--card", ","], "names no card"),
        (["--card", "t4", "--max", "steps"], "--max steps: unknown"),
        (["--card", "t4", "--mbs", "4"], "--mbs 4: is what --max mbs searches for"),
        (["--card", "t4", "--cycles", "1"], "give at least 2"),
        (["--card", "t4", "--up-to", "0"], "--up-to 0: must be at least 1"),
        (["--card", "t4", "--prepare-kbit"], "--prepare-kbit: the recipe lit_gpt_2023 has no such option"),
    ],
)
def test_wrong_options_exit_2_in_one_line_before_torch_is_loaded(words, said):
    began = time.monotonic()
    done = memprof("fit", *words)

    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert time.monotonic() - began < 10


def test_a_wrong_recipe_option_is_told_by_the_recipe(simulates):
    done = memprof("fit", "--card", "t4", "--precision", "17-mixed")

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("memprof: --precision 17-mixed: unknown")


def test_nothing_is_left_running_after_an_interrupt(simulates):
    process = subprocess.Popen(
        [sys.executable, "-m", "memprof", "fit", "--card", "t4"], stderr=subprocess.PIPE, stdout=subprocess.PIPE
    )
    deadline = time.monotonic() + 60
    while not (children := children_of(process.pid)) and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)

    assert process.returncode != 0
    assert children
    assert not [child for child in children if Path(f"/proc/{child}").exists()]


def children_of(pid):
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]
