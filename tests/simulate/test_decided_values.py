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
        large = torch.ones(1000, 500, device="cuda")
        large[1:] = 0
        wide = torch.randn(3000, 3000, device="cuda")
        loss = wide.square().mean()
        infinite = torch.full((3,), float("inf"), device="cuda")
        finite = [[bool(torch.isfinite(x).all()), bool(torch.isnan(x).any()), bool(torch.isinf(x).any()),
                   bool((x != x).any()), torch.allclose(x, x)] for x in (loss, wide, infinite, infinite * 0)]
        report(finite=finite, other=torch.allclose(loss, loss + 1), product=bool((wide == wide).mul(wide > -1e9).all()),
               mask=bool(mask.to(torch.bool).all()), half=float((other[:, -1] * 1)[0]),
               taken=bool((~none.gather(1, unknown)).all()), clone=float(ones.clone()[2, 2]),
               written=float(written[0, 0]), large=float(large[0, 0]))
    """)
    # and unknown numbers are finite and themselves, where known ones are what they are
    assert answers.pop("finite") == [
        [True, False, False, False, True],
        [True, False, False, False, True],
        [False, False, True, False, True],
        [False, True, False, True, False],
    ]
    assert answers.pop("product") is True
    assert answers.pop("other") is False
    # then all of it is known while it is small; of a large one with two numbers nothing is: it is taken as 0
    assert answers == {"mask": True, "half": 0.5, "taken": True, "clone": 1.0, "written": 1.0, "large": 0.0}


def test_what_a_router_chooses_is_spread_evenly() -> None:
    # given scores that are not known, of six tokens for four experts; and experts in float32 that widen eight of
    # sixteen tokens each, before an optimizer's step
    answers = simulate("""
        scores = torch.randn(6, 4, device="cuda")
        chosen = scores.topk(2)[1]
        counts = torch.zeros(6, 4, device="cuda").scatter(1, chosen, 1).long().sum(0)
        words = torch.randn(6, 4000, device="cuda").argmax(-1)
        hit = [len(torch.where(chosen == e)[0]) for e in range(4)]
        first = torch.bincount(scores.argmax(-1)).tolist()
        experts = [torch.nn.Linear(32, 64, device="cuda") for _ in range(4)]
        optimizer = torch.optim.Adam([p for e in experts for p in e.parameters()], foreach=False)
        x = torch.randn(16, 32, device="cuda")
        choice = torch.randn(16, 4, device="cuda").topk(2)[1]
        result = torch.zeros(16, 64, device="cuda")
        for index, expert in enumerate(experts):
            rows, _ = torch.where(choice == index)
            result = result.index_add(0, rows, expert(x[rows]))
        result.sum().backward()
        optimizer.step()
        report(counts=counts.tolist(), each=chosen.tolist(), first=first, hit=hit,
               uncertain=[c.bytes for c in device.caveats if "evenly spread" in c.what],
               same=int((words == words.flip(0)).sum()),
               late=[len(torch.where(words >= 50364)[0]), len(torch.where(words < 50364)[0])])
    """)
    # then each expert has as many tokens as any other, a token has two different ones, and words are no experts, nor
    # timestamps, which stand at the end of a vocabulary
    assert answers["counts"] == answers["hit"] == [3, 3, 3, 3]
    assert all(one != other for one, other in answers["each"])
    assert sorted(answers["first"]) == [1, 1, 2, 2]
    assert answers["same"] == 0
    assert answers["late"] == [0, 6]
    # and an expert that got all sixteen would take as much again for their places, their numbers and what it makes
    assert answers["uncertain"] == [8 * (2 * 8 + 32 * 4 + 64 * 4)]


def test_the_host_draws_what_it_would_have_drawn_without_a_device() -> None:
    # given what a program draws on the host after it has filled large weights there, without a device
    torch = pytest.importorskip("torch")
    with torch.random.fork_rng():
        torch.manual_seed(3)
        torch.empty(700_003, dtype=torch.bfloat16).normal_()
        torch.empty(1000, 1000).uniform_()
        wanted = torch.randint(0, 1000, (5,)).tolist()
    # when the same is done beside draws on the simulated device
    found = simulate("""
        torch.manual_seed(3)
        weights = torch.empty(700_003, dtype=torch.bfloat16).normal_(), torch.empty(1000, 1000).uniform_()
        torch.randint(0, 9, (50,), device="cuda"), torch.randperm(30, device="cuda")
        torch.zeros(4, device="cuda").normal_()
        report(drawn=torch.randint(0, 1000, (5,)).tolist())
    """)
    # then the host draws the same
    assert found == {"drawn": wanted}


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
