"""Values that are decided though not all that they come from is known; the search that beams make."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from children import simulate

pytestmark = pytest.mark.torch


def test_one_number_everywhere_stays_known_where_it_is_joined_or_taken() -> None:
    # given a mask of ones that PEFT joins to another, in floating point, and more of one number
    answers = simulate("""
        ones = torch.ones(3, 20).to("cuda")
        mask = torch.cat((ones, torch.ones(3, 470, dtype=torch.int64, device="cuda")), dim=1)
        other = torch.cat((ones, torch.full((3, 470), 0.5, device="cuda")), dim=1)
        unknown = torch.randn(6, 4, device="cuda").argmax(dim=1, keepdim=True)
        none = torch.zeros(6, 4, dtype=torch.bool, device="cuda")
        written = ones.clone()
        written[1:] = 0
        report(mask=bool(mask.to(torch.bool).all()), half=float((other[:, -1] * 1)[0]),
               taken=bool((~none.gather(1, unknown)).all()), clone=float(ones.clone()[2, 2]),
               written=float(written[0, 0]))
    """)
    # then what has that number everywhere is known, and what has two numbers is not: it is taken as 0
    assert answers == {"mask": True, "half": 0.0, "taken": True, "clone": 1.0, "written": 0.0}


def test_comparisons_that_decide_whether_beams_go_on() -> None:
    # given scores that are not known, tokens that are not, and a number that says "no score yet"
    answers = simulate("""
        scores = torch.randn(6, 1, device="cuda")
        tokens = torch.randn(6, 9, device="cuda").argmax(dim=1)
        finished = torch.zeros(6, 1, dtype=torch.bool, device="cuda")
        worst = torch.where(finished, scores, -1.0e9)
        ends = torch.isin(tokens, torch.tensor([1], device="cuda"))
        report(better=bool((scores > worst).all()), worse=bool((scores <= worst).any()),
               same=bool((worst < scores).all()), ends=bool((~ends).all()), plain=bool((scores > 3).any()),
               early=bool(~((scores > 3).all() & False)), caveats=[c.what for c in device.caveats])
    """)
    # then any score is better, no token ends the text, and both are said to be taken for granted
    caveats = answers.pop("caveats")
    assert answers == {
        "better": True,
        "worse": False,
        "same": True,
        "ends": True,
        "plain": False,
        "early": True,
    }
    assert sum("none of those" in what for what in caveats) == 1
    assert sum("smaller in size" in what for what in caveats) == 1


def test_largest_of_long_rows_is_searched_by_several_blocks() -> None:
    # given six rows of 80,000, as four beams over 20,000 tokens have them
    answers = simulate("""
        rows, short = torch.zeros(6, 80000, device="cuda"), torch.zeros(6, 19999, device="cuda")
        torch.cuda.memory._record_memory_history()
        rows.topk(8)
        short.topk(8)
        entries = torch.cuda.memory._snapshot()["device_traces"][0]
        report(sizes=[entry["size"] for entry in entries if entry["action"] == "alloc"])
    """)
    # then the search takes what an H200 was asked for in the run `pegasus_beams`; shorter rows take nothing
    searched = [24, 48, 48, 242688, 6144, 1896, 1896, 1279, 1279]
    assert answers["sizes"] == [192, 384, *searched, 192, 384]


def test_a_number_that_is_put_at_indices_is_copied_to_the_device() -> None:
    # given scores of 24 beams, and the token that must come last
    answers = simulate("""
        scores, last = torch.zeros(24, 20000, device="cuda"), torch.tensor([1], device="cuda")
        mask = torch.zeros(24, 20000, dtype=torch.bool, device="cuda")
        torch.cuda.memory._record_memory_history()
        scores[:, last] = 0
        scores[mask] = 0
        entries = torch.cuda.memory._snapshot()["device_traces"][0]
        report(sizes=[entry["size"] for entry in entries if entry["action"] == "alloc"])
    """)
    # then it takes the 4 bytes that it took in the run `pegasus_beams`; what goes where a mask says takes none
    assert answers["sizes"] == [4]
