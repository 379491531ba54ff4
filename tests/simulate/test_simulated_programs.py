"""Unmodified programs on simulated cards: how they end, and what they are told."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from memprof.errors import InputError
from memprof.simulate.cards import CARDS, card_named
from memprof.simulate.child import run_simulated

pytestmark = pytest.mark.torch


def program(folder: Path, code: str) -> str:
    path = folder / "train.py"
    path.write_text(textwrap.dedent(code), encoding="utf-8")
    return str(path)


TRAINING = """
    import sys, torch
    batch = int(sys.argv[1])
    model = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 10)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        loss = model(torch.randn(batch, 1024, device="cuda")).square().mean()
        loss.backward(); optimizer.step(); optimizer.zero_grad()
    print("peak", torch.cuda.max_memory_allocated())
"""


def test_a_program_that_fits(tmp_path: Path) -> None:
    run = run_simulated([program(tmp_path, TRAINING), "64"], card="t4", capture=True, timeout=120)
    assert (run.status, run.message) == ("ok", "")
    assert run.output == f"peak {run.figures['max_allocated_bytes']}\n"
    low, high = run.reserved_range
    assert low <= run.figures["max_reserved_bytes"] <= high
    assert run.device["card"] == "Tesla T4"
    assert [caveat["kind"] for caveat in run.device["caveats"]] == ["card"]


def test_a_program_that_does_not_fit(tmp_path: Path) -> None:
    run = run_simulated([program(tmp_path, TRAINING), "10000000"], card="t4", capture=True, timeout=120)
    assert run.status == "oom"
    assert run.message.startswith("CUDA out of memory. Tried to allocate 38.15 GiB. GPU 0 has a total capacity of 14.5")


@pytest.mark.parametrize(
    ("code", "status", "message"),
    [
        ("import sys; sys.exit(3)", "failed", ""),
        ("raise ValueError('mine')", "failed", "mine"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "crashed", "the process ended with signal 11"),
        ("import time; time.sleep(60)", "timeout", "not finished after 15 seconds"),
        (
            "import torch; torch.compile(torch.nn.Linear(4, 4).cuda())(0)",
            "refused",
            "torch.compile cannot be simulated",
        ),
    ],
)
def test_programs_that_end_otherwise(tmp_path: Path, code: str, status: str, message: str) -> None:
    run = run_simulated([program(tmp_path, code)], card="h200", capture=True, timeout=15)
    assert run.status == status
    assert run.message.startswith(message)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["none.py"], 1, "none.py: no such script; give a file, or -m and the name of a module"),
        (["."], 1, ".: a folder without __main__.py; give the script in it that trains"),
        (["-m", "memprof_none"], 1, "-m memprof_none: no such module here"),
        (["-m", ""], 2, "-m '': the name of the module is empty"),
        (["--status", "none/status.json", "train.py"], 1, "--status none/status.json: give the name of a file in a"),
    ],
)
def test_what_cannot_be_run_is_told_in_one_line_before_anything_runs(tmp_path, words, code, said) -> None:
    program(tmp_path, "print('it ran')")
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-m", "memprof.simulate", *words], cwd=tmp_path, env={**os.environ, "PYTHONPATH": root},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (code, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"memprof: {said}")


def test_a_script_that_is_not_there_has_failed(tmp_path: Path) -> None:
    run = run_simulated([str(tmp_path / "none.py")], card="h200", capture=True, timeout=60)
    assert run.status == "failed"
    assert "no such script" in run.message


def test_every_card_says_where_it_is_from() -> None:
    assert {"t4", "v100", "a10g", "l4", "rtx3090", "rtx4090", "a100", "a100-80", "l40s", "h100", "h200", "b200"} <= set(
        CARDS
    )
    for card in CARDS.values():
        assert card.total_source
        assert card.context_source
        assert bool(card.caveats()) is not card.measured
    assert [card.key for card in CARDS.values() if card.measured] == ["h200"]
    assert card_named("A100-80") is card_named("a100_80") is CARDS["a100-80"]
    with pytest.raises(InputError, match="choose one of"):
        card_named("a1000")


def test_expandable_segments_reserve_less(tmp_path: Path) -> None:
    path = program(
        tmp_path,
        """
        import torch
        kept = []
        for size in range(1, 40):
            x = torch.empty(size << 20, dtype=torch.uint8, device="cuda")
            kept.append(torch.empty(1 << 20, dtype=torch.uint8, device="cuda"))
            del x
        """,
    )
    plain = run_simulated([path], card="h200", alloc_conf="", capture=True)
    expandable = run_simulated([path], card="h200", alloc_conf="expandable_segments:True", capture=True)
    # blocks of the large pool keep up to 1 MiB that they did not ask for; those of expandable segments do not
    assert expandable.figures["max_allocated_bytes"] <= plain.figures["max_allocated_bytes"]
    assert expandable.figures["max_reserved_bytes"] < plain.figures["max_reserved_bytes"]


@pytest.mark.parametrize(
    ("name", "needs"),
    [("data_parallel", "torch"), ("accelerate_loop", "accelerate"), ("lightning_module", "lightning")],
)
def test_scripts_as_people_write_them(name: str, needs: str) -> None:
    if importlib.util.find_spec(needs) is None:
        pytest.skip(f"the script needs {needs}")
    script = Path(__file__).parents[1] / f"commands/scripts/{name}.py"
    run = run_simulated([str(script)], card="h200", capture=True, timeout=240)
    assert (run.status, run.message) == ("ok", "")
    assert f"peak {run.figures['max_allocated_bytes']}" in run.output.splitlines()
    assert not [caveat for caveat in run.device["caveats"] if caveat["kind"] == "refused"]
