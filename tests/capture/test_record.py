"""`memprof.record` around training loops that tell it nothing; every figure follows from shapes."""

from __future__ import annotations

import gc
from importlib import import_module

import pytest

torch = pytest.importorskip("torch")

import memprof  # noqa: E402 - after the check that torch is there
from memprof.capture.step_profilers import ProfiledSteps  # noqa: E402
from memprof.errors import CaptureError, InputError, UsageError  # noqa: E402
from memprof.report.capture import capture_report  # noqa: E402

pytestmark = pytest.mark.torch

ROWS, WIDTH, HIDDEN, CLASSES = 32, 64, 256, 10
PARAMETERS = 4 * (WIDTH * HIDDEN + HIDDEN + HIDDEN * CLASSES + CLASSES)


class Perceptron(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(WIDTH, HIDDEN)
        self.second = torch.nn.Linear(HIDDEN, CLASSES)

    def forward(self, x):
        return self.second(torch.nn.functional.gelu(self.first(x)))


def batch():
    return torch.randn(ROWS, WIDTH), torch.randint(0, CLASSES, (ROWS,))


def train(model, optimizer, steps=2, *, accumulate=1, recording=None, trouble=None):
    for number in range(steps):
        x, y = batch()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        if trouble is not None and number == steps - 1:
            raise trouble
        loss.backward()
        if (number + 1) % accumulate == 0:
            optimizer.step()
            optimizer.zero_grad()
        if recording is not None:
            recording.step()


def build():
    model = Perceptron()
    return model, torch.optim.AdamW(model.parameters())


def hooks():
    modules = torch.nn.modules.module
    optimizers = import_module("torch.optim.optimizer")
    return (
        len(modules._global_forward_hooks),
        len(modules._global_forward_pre_hooks),
        len(optimizers._global_optimizer_pre_hooks),
        len(optimizers._global_optimizer_post_hooks),
        torch._C._autograd._top_saved_tensors_default_hooks(True),
        torch.autograd._profiler_enabled(),
        gc.isenabled(),
    )


@pytest.fixture
def recorded(tmp_path, read):
    """Record what a function does on the CPU, and check what holds for every recording."""

    def record(function, **options):
        before = hooks()
        with memprof.record(tmp_path / "run.pickle", device="cpu", **options) as recording:
            function(recording)
        assert hooks() == before
        run = read(tmp_path / "run.pickle")
        assert recording.result.unmatched == 0
        known = {row for row, label in run.labels.items() if label["category"] != "unknown"}
        assert known == {row for row, entry in enumerate(run.entries) if entry["action"] == "alloc"}
        return run

    return record


def assert_one_step_on_paper(run, step=0):
    backward, optimizer = run.mark(f"step {step} backward"), run.mark(f"step {step} optimizer")
    assert run.bytes(backward, "inputs") == 4 * ROWS * WIDTH + 8 * ROWS
    # gelu saves its input, the second layer gelu's result, the loss the logarithms of the probabilities and a number
    assert run.bytes(backward, "activations", "saved") == 4 * ROWS * (HIDDEN + HIDDEN + CLASSES) + 4
    # the loss itself, and the gradient that backward starts with
    assert run.bytes(backward, "activations", "held") == 4 + 4
    assert run.bytes(optimizer, "gradients", "parameter") == PARAMETERS
    assert run.bytes(optimizer, "gradients", "activation") == 0


def test_a_loop_that_tells_nothing(recorded):
    # given a model and an optimizer that are built inside
    run = recorded(lambda _: train(*build()))

    # then
    assert run.bytes(run.mark("step 0 backward"), "weights") == PARAMETERS
    assert_one_step_on_paper(run)
    assert_one_step_on_paper(run, 1)
    assert run.bytes(run.mark("step 1 backward"), "optimizer_state", "exp_avg") == PARAMETERS
    assert run.memprof["made_by"]["status"] == "ok"
    names = [mark["name"] for mark in run.memprof["marks"]]
    cycle = ["between", "forward", "backward", "between", "optimizer", "between"]
    assert names == ["init", *(f"step {step} {name}" for step in (0, 1) for name in cycle)]
    assert [row["step"] for row in run.memprof["stats"]] == [-1, 0, 1]


@pytest.mark.parametrize("told", [True, False])
def test_what_was_built_before_is_in_the_account(recorded, told):
    # given a model and an optimizer with state
    model, optimizer = build()
    train(model, optimizer)

    # when
    options = {"model": model, "optimizer": optimizer} if told else {}
    run = recorded(lambda _: train(model, optimizer), **options)

    # then they are blocks from before the first entry, each labelled
    strings, base = run.memprof["strings"], run.memprof["base_labels"]
    blocks = {block["address"]: block["size"] for segment in run.snapshot["segments"] for block in segment["blocks"]}
    sizes = {}
    for category, finer, address in zip(base["category"], base["finer"], base["address"], strict=True):
        name = strings[category], strings[finer]
        sizes[name] = sizes.get(name, 0) + blocks[address]
    assert sizes[("weights", "adapter")] == PARAMETERS
    assert sizes[("optimizer_state", "exp_avg")] == PARAMETERS
    assert sizes[("optimizer_state", "exp_avg_sq")] == PARAMETERS
    # and the reader's account has them from the start
    trace = memprof.load(run.path)
    state = memprof.break_down(trace, at="event:0").devices[0].shown
    assert state.allocated >= 3 * PARAMETERS
    assert_one_step_on_paper(run)


def test_steps_that_the_loop_ends(recorded):
    model, optimizer = build()
    run = recorded(lambda recording: train(model, optimizer, 3, recording=recording))
    assert [row["step"] for row in run.memprof["stats"]] == [-1, 0, 1, 2, 3]
    # the next batch belongs to the step that it is for
    label = next(label for label in run.labels.values() if label["category"] == "inputs" and label["step"] == 1)
    assert label["phase"] == "between"


def test_each_micro_batch_of_an_accumulated_gradient_is_a_step(recorded):
    run = recorded(lambda _: train(*build(), 4, accumulate=2))
    names = [mark["name"] for mark in run.memprof["marks"] if mark["name"].endswith("optimizer")]
    assert names == ["step 1 optimizer", "step 3 optimizer"]
    assert run.bytes(run.mark("step 1 forward"), "gradients", "parameter") == PARAMETERS


def test_steps_that_the_loop_ends_are_the_steps_from_the_first_on(recorded):
    # given a loop that counts every second micro-batch
    model, optimizer = build()

    def loop(recording):
        for _ in range(2):
            train(model, optimizer, 2, accumulate=2)
            recording.step()

    # then
    run = recorded(loop)
    forwards = [mark["name"] for mark in run.memprof["marks"] if mark["name"].endswith("forward")]
    assert forwards == ["step 0 forward", "step 0 forward", "step 1 forward", "step 1 forward"]
    assert [row["step"] for row in run.memprof["stats"]] == [-1, 0, 1, 2]


def test_recording_stops_after_the_steps_that_were_asked_for(tmp_path, read):
    # given
    before = hooks()
    model, optimizer = build()

    # when
    with memprof.record(tmp_path / "run.pickle", device="cpu", steps=2) as recording:
        train(model, optimizer, 2)
        assert recording.result is None
        train(model, optimizer, 1)
        # then the file is there while the loop goes on unrecorded
        assert recording.result is not None
        assert hooks() == before
        train(model, optimizer, 2)
    steps = {label["step"] for label in read(tmp_path / "run.pickle").labels.values()}
    assert steps == {-1, 0, 1}


def test_somebody_elses_hooks_for_what_is_saved_stay(tmp_path):
    # given a model called inside such hooks when the recording is to stop
    model, optimizer = build()
    with memprof.record(tmp_path / "run.pickle", device="cpu", steps=1) as recording:
        train(model, optimizer, 1)
        with torch.autograd.graph.save_on_cpu():
            loss = model(batch()[0]).sum()
            assert torch._C._autograd._top_saved_tensors_default_hooks(True) is not None
        assert recording.result is None
        loss.backward()
        # then it stops at the next call outside
        train(model, optimizer, 1)
        assert recording.result is not None


def test_evaluation_has_a_phase_of_its_own(recorded):
    def run_both(_):
        model, optimizer = build()
        train(model, optimizer, 1)
        with torch.no_grad():
            model(batch()[0]).argmax(-1)

    run = recorded(run_both)
    evaluated = [label for label in run.labels.values() if label["phase"] == "eval"]
    assert [(label["category"], label["module"]) for label in evaluated] == [
        ("temporaries", "first"), ("temporaries", ""), ("temporaries", "second"),
    ]  # fmt: skip


def test_managed_memory_is_a_figure_of_its_own(recorded):
    # given an optimizer whose state is paged, as bitsandbytes marks it
    class Paged(torch.optim.SGD):
        def step(self, closure=None):
            super().step(closure)
            for state in self.state.values():
                state["momentum_buffer"].is_paged = True

    def run_it(_):
        model = Perceptron()
        train(model, Paged(model.parameters(), lr=0.1, momentum=0.9))

    # then it is known as long as the optimizer is there
    run = recorded(run_it)
    assert [row["managed_bytes"] for row in run.memprof["stats"]] == [None, PARAMETERS, None]
    assert memprof.break_down(memprof.load(run.path)).devices[0].shown.managed == PARAMETERS


@pytest.mark.parametrize("trouble", [ValueError("in the middle"), KeyboardInterrupt(), SystemExit(3)])
def test_a_run_that_ends_in_the_middle(tmp_path, read, trouble):
    # given
    before = hooks()

    # when
    with pytest.raises(type(trouble)), memprof.record(tmp_path / "run.pickle", device="cpu"):
        train(*build(), trouble=trouble)

    # then nothing is left behind, and what the user meant to keep is kept
    assert hooks() == before
    files = [path.name for path in tmp_path.iterdir()]
    assert files == ([] if isinstance(trouble, ValueError) else ["run.pickle"])
    if isinstance(trouble, KeyboardInterrupt):
        assert read(tmp_path / "run.pickle").memprof["made_by"]["status"] == "interrupted"

    # and the next recording in the process is clean
    with memprof.record(tmp_path / "next.pickle", device="cpu"):
        train(*build())
    assert_one_step_on_paper(read(tmp_path / "next.pickle"))


def test_running_out_of_memory(tmp_path, read, capsys):
    # given a forward whose activations are alive when memory runs out
    def greedy():
        model = Perceptron()
        x, _ = batch()
        y = model(x)
        torch.empty(1 << 60, dtype=torch.uint8)
        return y

    # when
    with (
        pytest.raises(RuntimeError, match="can't allocate memory"),
        memprof.record(tmp_path / "run.pickle", device="cpu") as recording,
    ):
        greedy()

    # then the file is complete up to then
    run = read(tmp_path / "run.pickle")
    assert (recording.result.status, run.memprof["made_by"]["status"]) == ("oom", "oom")
    assert run.memprof["marks"][-1] == {"device": 0, "entry": len(run.entries), "name": "out of memory"}
    assert run.bytes(run.end, "weights") == PARAMETERS
    assert run.bytes(run.end, "activations", "saved") == 4 * ROWS * (HIDDEN + HIDDEN)
    assert run.bytes(run.end, "activations", "held") == 4 * ROWS * CLASSES
    # and what held the memory is told
    told = capsys.readouterr().err
    assert "out of memory" in told
    assert "activations" in told


def test_one_recording_at_a_time(tmp_path):
    with (
        memprof.record(tmp_path / "run.pickle", device="cpu"),
        pytest.raises(CaptureError, match="a recording runs already"),
    ):
        memprof.record(tmp_path / "other.pickle", device="cpu").start()


def test_without_labels(tmp_path, read):
    with memprof.record(tmp_path / "run.pickle", device="cpu", labels=False):
        train(*build())
    run = read(tmp_path / "run.pickle")
    assert "labels" not in run.memprof
    assert sum(entry["action"] == "alloc" for entry in run.entries) > 0


def test_labels_change_nothing(tmp_path, read):
    # given a first run, so that what torch makes once is made
    train(*build())
    for labels in (True, False):
        torch.manual_seed(0)
        with memprof.record(tmp_path / f"{labels}.pickle", device="cpu", labels=labels):
            train(*build())
    with_labels, without = read(tmp_path / "True.pickle"), read(tmp_path / "False.pickle")
    assert [(e["action"], e["size"]) for e in with_labels.entries] == [
        (e["action"], e["size"]) for e in without.entries
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "--steps 0"),
        ({"steps": "x"}, "--steps x"),
        ({"labels": "some"}, "--labels some"),
        ({"stacks": "some"}, "--stacks some"),
        ({"device": "tpu"}, "--device tpu"),
    ],
)
def test_wrong_options_are_one_line(tmp_path, options, message):
    with pytest.raises(UsageError, match=message) as caught:
        memprof.record(tmp_path / "run.pickle", **options)
    assert "\n" not in str(caught.value)


def test_what_was_asked_for_and_is_not_given_is_said(tmp_path):
    # given a run of one step, of which a later one was to be profiled, and labels that the CPU does not have
    with memprof.record(
        tmp_path / "run.pickle", device="cpu", labels="light", profile=ProfiledSteps(first=9, last=9)
    ) as recording:
        train(*build())
    notes = recording.result.notes
    assert [note.split(":")[0] for note in notes] == ["full labels were written", "nothing was profiled"]
    assert "before step 9 began" in notes[1]
    report = capture_report(recording.result).plain
    assert all(f"\n{note}\n" in report for note in notes)


def test_a_recording_of_one_rank_has_it_in_its_name(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with memprof.record(tmp_path / "run.pickle", device="cpu"):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["run.rank1.pickle"]


def test_what_a_reader_would_refuse_is_told_before_the_run(tmp_path):
    with pytest.raises(InputError, match=r"made_by\.config\.mbs"):
        memprof.record(tmp_path / "run.pickle", device="cpu", made_by={"config": {"mbs": "16"}})
