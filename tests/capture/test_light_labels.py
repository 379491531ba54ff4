"""Light labels: they disturb nothing, what was looked at is right, and the rules decide the rest."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import memprof  # noqa: E402 - after the check that torch is there
from memprof.analysis.account import open_account  # noqa: E402
from memprof.capture.marks import module_mark, saved_mark, sight_mark  # noqa: E402
from memprof.capture.notes import timeline_of  # noqa: E402
from memprof.trace import load  # noqa: E402

pytestmark = pytest.mark.torch
ROOT = Path(__file__).parents[2]
simulated = [
    pytest.mark.skipif(not str(torch.__version__).startswith("2.13."), reason="the simulation knows torch 2.13"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="there is a real CUDA device"),
]
PROGRAM = """
import sys
from memprof.simulate import install
device = install("h200")
import torch
from memprof import record
from memprof.simulate.recording import RecordedSimulation

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(500, 256)
        self.layers = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 256))
        self.head = torch.nn.Linear(256, 500)
    def forward(self, tokens):
        return self.head(self.layers(self.words(tokens)))

for mode in ("first", "none", "light", "full"):  # the first one leaves the libraries' workspaces
    torch.manual_seed(0)
    with record(f"{mode}.pickle", device=RecordedSimulation(device), labels="none" if mode == "first" else mode):
        model = Model().to("cuda")
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(3):
            tokens = torch.randint(0, 500, (64,), device="cuda")
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = torch.nn.functional.cross_entropy(model(tokens), tokens)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    del model, optimizer, tokens, loss
    torch.cuda.empty_cache()
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("light")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder


def account(path):
    trace = load(str(path))
    return open_account(trace, trace.devices[0])


class TestSimulated:
    pytestmark = simulated

    def test_the_history_is_as_without(self, files):
        plain, entries = (
            pickle.loads((files / f"{mode}.pickle").read_bytes())["device_traces"][0] for mode in ("none", "light")
        )
        # Autocast drops its casts in the order of a hash of pointers, which no two models share.
        assert Counter((entry["action"], entry["size"]) for entry in entries) == Counter(
            (entry["action"], entry["size"]) for entry in plain
        )
        assert [each["size"] for each in entries if each["action"] == "alloc"] == [
            each["size"] for each in plain if each["action"] == "alloc"
        ]
        # and our numbers are gone from it
        assert {entry["user_metadata"] for entry in entries} == {""}

    def test_what_was_looked_at_and_when_is_what_full_labels_say(self, files):
        light, full = account(files / "light.pickle"), account(files / "full.pickle")
        assert (light.classification.by, full.classification.by) == ("light", "labels")
        ours, theirs = light.classification, full.classification
        assert len(ours) == len(theirs)
        for row in range(len(theirs)):
            assert ours.step[row] == theirs.step[row]
            assert ours.saved[row] == theirs.saved[row]
            kinds = {memprof_category(ours, row), memprof_category(theirs, row)}
            if kinds & {"weights", "optimizer_state"}:
                assert len(kinds) == 1
                assert ours.text(ours.finer, row) == theirs.text(theirs.finer, row)
                assert ours.text(ours.parameter, row) == theirs.text(theirs.parameter, row)
        gradients = [
            {row for row in range(len(each)) if each.text(each.finer, row) == "parameter"} for each in (ours, theirs)
        ]
        assert gradients[0] == gradients[1]

    def test_the_rules_say_why(self, files):
        found = account(files / "light.pickle")
        classified = found.classification
        reasons = {classified.text(classified.reason, row) for row in range(len(classified))}
        assert None in reasons
        assert any(reason is not None and "autocast" in reason for reason in reasons)
        inside = (found.replay.allocations.born >= 0).nonzero()[0]
        assert "unknown" not in {memprof_category(classified, row) for row in inside}


def memprof_category(classified, row):
    from memprof.categories.category import Category

    names = {category.code: category.value for category in Category}
    return names[int(classified.category[row])]


def note(number, kind, mark, *tensors, thread=1, backward=False):
    kinds = {"look": 0, "begin": 1, "end": 2, "unpacked": 3}
    return number, kinds[kind], thread, backward, mark, tuple(tensors)


def entry(action, address, size, number=None):
    metadata = "" if number is None else f"memprof.note {number}"
    return {"action": action, "addr": address, "size": size, "time_us": 0, "user_metadata": metadata}


def test_notes_stand_before_the_entries_that_have_their_numbers():
    # given an allocation, a module in which there is one, a look at it, and one after
    tensor = (20, torch.float32, (4,))
    notes = [
        note(0, "begin", module_mark("layer")),
        note(1, "look", saved_mark(), tensor),
        note(2, "end", 0),
    ]
    entries = [entry("alloc", 10, 16), entry("alloc", 20, 16, 0), entry("alloc", 30, 16, 2)]

    # when
    timeline = timeline_of(notes, entries)

    # then
    module, look = timeline.ops
    first, inside, after = timeline.memory
    assert first.at < module.start < inside.at < look.start < module.end < after.at
    assert (first.op, inside.op, after.op, look.parent) == (-1, 0, -1, 0)
    assert look.tensors[0].address == 20
    assert {each["user_metadata"] for each in entries} == {""}


def test_notes_of_a_backward_are_one_node_until_something_else_happens():
    # given two backwards on a thread of their own, with a module between them
    notes = [
        note(0, "unpacked", "", thread=2, backward=True),
        note(1, "unpacked", "", thread=2, backward=True),
        note(2, "begin", module_mark("")),
        note(3, "end", 2),
        note(4, "unpacked", "", thread=2, backward=True),
    ]
    entries = [entry("alloc", address, 8, number) for number, address in enumerate((10, 20, 30, 40, 50))]

    # when
    timeline = timeline_of(notes, entries)

    # then
    nodes = [op for op in timeline.ops if op.name.startswith("autograd::engine")]
    assert len(nodes) == 2
    assert nodes[0].start < timeline.memory[0].at < nodes[0].end < timeline.memory[2].at < nodes[1].start


def test_a_backward_on_a_thread_of_its_own_lasts_until_another_thread_allocates():
    # given a backward that was noted when it began, and an optimizer after it
    notes = [
        note(0, "look", saved_mark(), (10, torch.float32, (2,))),
        note(1, "unpacked", "", thread=2, backward=True),
        note(2, "begin", "Optimizer.step#step"),
        note(3, "end", 2),
    ]
    # its thread's first allocation still carries an older number
    entries = [
        entry("alloc", 10, 8, 0), entry("alloc", 20, 8, 1), entry("alloc", 30, 8, 1), entry("alloc", 40, 8, 0),
        entry("alloc", 50, 8, 2),
    ]  # fmt: skip

    # when
    timeline = timeline_of(notes, entries)

    # then
    node = next(op for op in timeline.ops if op.name.startswith("autograd::engine"))
    step = next(op for op in timeline.ops if op.name.startswith("Optimizer"))
    births = [event.at for event in timeline.memory]
    assert births[0] < node.start < births[1] < births[2] < node.end < births[3] < step.start < births[4] < step.end


def test_somebodys_own_metadata_stays():
    entries = [entry("alloc", 10, 16), {**entry("alloc", 20, 16), "user_metadata": "mine"}]
    timeline_of([note(0, "look", sight_mark("weights", "base", "w"), (10, torch.float32, (4,)))], entries)
    assert [each["user_metadata"] for each in entries] == ["", "mine"]


def test_on_the_cpu_light_labels_are_full_ones(tmp_path):
    with memprof.record(tmp_path / "run.pickle", device="cpu", labels="light"):
        torch.nn.Linear(8, 8)(torch.ones(2, 8)).sum().backward()
    made_by = pickle.loads((tmp_path / "run.pickle").read_bytes())["memprof"]["made_by"]
    assert made_by["labels"] is True


def test_another_kind_of_labels_is_one_line(tmp_path):
    with pytest.raises(memprof.MemprofError, match="--labels some: unknown; it can be none, light or full"):
        memprof.record(tmp_path / "run.pickle", device="cpu", labels="some")
