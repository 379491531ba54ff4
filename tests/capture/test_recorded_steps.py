"""`steps=`: only some steps of a run are recorded, and what came before stands in the file as memory that was there."""

from __future__ import annotations

import pickle

import pytest

torch = pytest.importorskip("torch")

import memprof  # noqa: E402 - after the check that torch is there
from memprof.capture.recorded_steps import RecordedSteps  # noqa: E402

pytestmark = pytest.mark.torch
WIDTH, ROWS = 64, 16
WEIGHTS = 4 * (WIDTH * WIDTH + WIDTH)


def train(path, steps, *, told, count=6, labels=True):
    """Train with a recording of some steps; of all optimizers that other tests left, only this one is looked at."""
    model = torch.nn.Linear(WIDTH, WIDTH)
    optimizer = torch.optim.AdamW(model.parameters())
    with memprof.record(path, optimizer=optimizer, device="cpu", steps=steps, labels=labels) as recording:
        for _ in range(count):
            model(torch.randn(ROWS, WIDTH)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            if told:
                recording.step()
    return recording


@pytest.mark.parametrize("told", [True, False])
def test_only_the_steps_that_were_asked_for(tmp_path, read, told):
    # when
    train(tmp_path / "run.pickle", "2-3", told=told)

    # then
    run = read(tmp_path / "run.pickle")
    marks = [mark["name"] for mark in run.memprof["marks"]]
    assert [name for name in marks if name.endswith("backward")] == ["step 2 backward", "step 3 backward"]
    assert "init" not in marks
    assert run.memprof["made_by"]["recorded_steps"] == "2-3"
    assert [row["step"] for row in run.memprof["stats"]][:3] == [-1, 2, 3]


def test_what_came_before_is_in_the_account(tmp_path):
    # when
    train(tmp_path / "run.pickle", "2-2", told=True)

    # then weights and moments were there before the first event
    trace = memprof.load(tmp_path / "run.pickle")
    base = memprof.break_down(trace).devices[0].base
    found = {category.value: size for category, size in base.categories.items()}
    assert found["weights"] == WEIGHTS
    assert found["optimizer_state"] == 2 * WEIGHTS + 2 * 4  # and two step counters
    assert found["unknown"] == 0


def test_a_batch_from_before_the_recording_does_not_stand_for_ever(tmp_path):
    # given batches that are made before the module is called, which is where a step begins, and dropped after it
    def peak(name, steps):
        model = torch.nn.Linear(WIDTH, 1)
        optimizer = torch.optim.SGD(model.parameters())
        with memprof.record(tmp_path / name, optimizer=optimizer, device="cpu", steps=steps):
            for _ in range(6):
                batch = torch.randn(10_000, WIDTH)
                model(batch).mean().backward()
                optimizer.step()
                optimizer.zero_grad()
                del batch
        return memprof.break_down(memprof.load(tmp_path / name)).devices[0].peak.allocated

    # when, then
    assert peak("late.pickle", "2-4") == peak("whole.pickle", None)


def test_a_run_without_those_steps_says_so(tmp_path):
    with pytest.raises(memprof.MemprofError, match="--steps 8-9: the run ended in step 6; nothing was recorded"):
        train(tmp_path / "run.pickle", "8-9", told=True)
    assert not list(tmp_path.iterdir())
    # and the next recording in this process works
    train(tmp_path / "run.pickle", 1, told=True)


def test_an_error_before_those_steps_goes_on(tmp_path, capsys):
    with (
        pytest.raises(ValueError, match="of the run"),
        memprof.record(tmp_path / "a.pickle", device="cpu", steps="3-4"),
    ):
        raise ValueError("of the run")
    with pytest.raises(KeyboardInterrupt), memprof.record(tmp_path / "a.pickle", device="cpu", steps="3-4"):
        raise KeyboardInterrupt
    assert "memprof: --steps 3-4: the run ended in step -1; nothing was recorded" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_steps_are_counted_without_labels_too(tmp_path):
    train(tmp_path / "run.pickle", "1-2", told=False, labels=False)
    snapshot = pickle.loads((tmp_path / "run.pickle").read_bytes())
    assert [row["step"] for row in snapshot["memprof"]["stats"]][:3] == [-1, 1, 2]
    assert "labels" not in snapshot["memprof"]


@pytest.mark.parametrize(
    ("text", "found"), [(None, (None, None)), (2, (None, 1)), ("2", (None, 1)), ("10-12", (10, 12)), ("0-0", (0, 0))]
)
def test_reading(text, found):
    steps = RecordedSteps.read(text)
    assert (steps.first, steps.last) == found
    assert str(steps) == ("all" if text is None else str(text))


@pytest.mark.parametrize("text", ["0", "3-2", "-1", "a", "1-", "1-2-3", ""])
def test_what_is_no_range_is_one_line(text):
    with pytest.raises(memprof.MemprofError, match=f"--steps {text}:"):
        RecordedSteps.read(text)
