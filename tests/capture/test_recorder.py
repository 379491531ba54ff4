"""The recorder around runs that are easy to follow, and around runs that fail."""

from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch")

import memprof  # noqa: E402 - after the check that torch is there
from memprof.capture import capture  # noqa: E402 - after the check that torch is there
from memprof.errors import CaptureError, OutputError, UsageError  # noqa: E402

pytestmark = pytest.mark.torch

ROWS, WIDTH, HIDDEN = 8, 16, 64


class Perceptron(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(WIDTH, HIDDEN)
        self.second = torch.nn.Linear(HIDDEN, WIDTH)

    def forward(self, x):
        return self.second(torch.nn.functional.gelu(self.first(x)))


class PerceptronRun:
    """A recipe whose every tensor can be counted on paper; `trouble` is raised in the middle of a forward."""

    recipe = "perceptron"
    micro_steps = 1

    def __init__(self, trouble=None):
        self.trouble = trouble

    def settings(self):
        return {"rows": ROWS}

    def check(self, device):
        pass

    def run(self, device, observer):
        with observer.phase("init", -1):
            model = Perceptron().to(device)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
            if self.trouble is not None:
                model.second.register_forward_pre_hook(self._fail)
            observer.watch(model, optimizer)
        with observer.phase("between", 0):
            x = torch.randn(ROWS, WIDTH, device=device)
            observer.see("inputs", "x", (x,))
        with observer.step(0):
            with observer.phase("forward", 0):
                y = model(x)
                loss = y.square().sum()
                observer.see("activations", "loss", (loss,))
            with observer.phase("backward", 0):
                loss.backward()
            with observer.phase("optimizer", 0):
                optimizer.step()
                optimizer.zero_grad()
        observer.end_step(0)
        return model, optimizer, x, y, loss

    def _fail(self, *_):
        raise self.trouble


def hooks():
    modules = torch.nn.modules.module
    return (
        len(modules._global_forward_hooks),
        len(modules._global_forward_pre_hooks),
        torch._C._autograd._top_saved_tensors_default_hooks(False),
        torch.autograd._profiler_enabled(),
    )


def test_the_perceptron_on_paper(tmp_path, read):
    # when
    result = capture(PerceptronRun(), output=tmp_path / "run.pickle", device="cpu")

    # then
    run = read(tmp_path / "run.pickle")
    parameters = 4 * (2 * WIDTH * HIDDEN + HIDDEN + WIDTH)
    backward, optimizer = run.mark("step 0 backward"), run.mark("step 0 optimizer")
    assert run.bytes(backward, "weights", "adapter") == parameters
    assert run.bytes(backward, "inputs", "x") == 4 * ROWS * WIDTH
    # gelu saves its input, the second layer gelu's result, the square its own input
    assert run.bytes(backward, "activations", "saved") == 4 * ROWS * (HIDDEN + HIDDEN + WIDTH)
    assert run.bytes(backward, "activations", "loss") == 4
    assert run.bytes(backward, "activations", "held") == 0
    assert run.bytes(optimizer, "gradients", "parameter") == parameters
    assert run.bytes(run.end, "optimizer_state", "momentum_buffer") == parameters
    assert run.bytes(run.end, "gradients") == 0
    assert run.bytes(run.peak, "unknown") == 0
    assert (result.status, result.source, result.device) == ("ok", "profiled", "cpu")
    assert result.unmatched == 0
    assert result.labelled == len(run.labels)


def test_modules_ops_and_shapes(tmp_path, read):
    capture(PerceptronRun(), output=tmp_path / "run.pickle", device="cpu")
    saved = [
        (label["module"], label["op"], label["dtype"], label["shape"])
        for label in read(tmp_path / "run.pickle").labels.values()
        if label["category"] == "activations" and label["finer"] == "saved"
    ]
    assert saved == [
        ("first", "aten::addmm", "float32", f"{ROWS},{HIDDEN}"),
        ("", "aten::gelu", "float32", f"{ROWS},{HIDDEN}"),
        ("second", "aten::addmm", "float32", f"{ROWS},{WIDTH}"),
    ]


def test_labels_change_nothing(tmp_path, read):
    # given a first run, so that what torch makes once is made
    capture(PerceptronRun(), output=tmp_path / "warm.pickle", device="cpu")

    # when
    capture(PerceptronRun(), output=tmp_path / "with.pickle", device="cpu")
    capture(PerceptronRun(), output=tmp_path / "without.pickle", device="cpu", labels=False)

    # then
    with_labels, without = read(tmp_path / "with.pickle"), read(tmp_path / "without.pickle")
    assert [(e["action"], e["size"]) for e in with_labels.entries] == [
        (e["action"], e["size"]) for e in without.entries
    ]
    assert "labels" not in without.memprof
    assert without.memprof["made_by"]["labels"] is False
    assert all("category" not in entry for entry in without.entries)


def test_the_file_says_how_it_was_made_and_not_where(tmp_path, read, monkeypatch):
    capture(PerceptronRun(), output=tmp_path / "run.pickle", device="cpu")
    run = read(tmp_path / "run.pickle")
    assert run.memprof["source"] == "profiled"
    assert run.memprof["made_by"]["memprof"] == memprof.__version__
    assert run.memprof["made_by"]["recipe"] == "perceptron"
    assert run.memprof["made_by"]["config"] == {"rows": ROWS}
    assert run.memprof["environment"]["torch"] == torch.__version__
    text = json.dumps(run.snapshot)
    import getpass
    import platform
    from pathlib import Path

    for private in (str(tmp_path), str(Path.home()) + "/", platform.node(), f"/{getpass.getuser()}/"):
        assert private not in text


def test_the_end_is_one_segment_for_every_live_block(tmp_path, read):
    capture(PerceptronRun(), output=tmp_path / "run.pickle", device="cpu")
    run = read(tmp_path / "run.pickle")
    live = {run.entries[row]["addr"]: run.entries[row]["size"] for row in run.live_before(run.end)}
    assert {segment["address"]: segment["total_size"] for segment in run.snapshot["segments"]} == live


@pytest.mark.parametrize("trouble", [ValueError("in the middle"), KeyboardInterrupt()])
def test_a_failing_run_leaves_no_hook_and_no_file(tmp_path, read, trouble):
    # given
    before = hooks()

    # when
    with pytest.raises(type(trouble)):
        capture(PerceptronRun(trouble), output=tmp_path / "run.pickle", device="cpu")

    # then
    assert hooks() == before
    assert list(tmp_path.iterdir()) == []

    # and the next run in the process is clean
    capture(PerceptronRun(), output=tmp_path / "next.pickle", device="cpu")
    assert hooks() == before
    assert read(tmp_path / "next.pickle").mark("step 0 backward") > 0


def test_running_out_of_memory_is_a_result(tmp_path, read):
    # given
    error = torch.OutOfMemoryError("out of memory: tried to allocate 1 GiB")

    # when
    result = capture(PerceptronRun(error), output=tmp_path / "run.pickle", device="cpu")

    # then the file holds the run up to then
    assert (result.status, result.reason) == ("oom", "out of memory: tried to allocate 1 GiB")
    run = read(tmp_path / "run.pickle")
    assert run.memprof["made_by"]["status"] == "oom"
    assert run.bytes(run.end, "weights", "adapter") == 4 * (2 * WIDTH * HIDDEN + HIDDEN + WIDTH)


def test_the_cpu_running_out_is_one_too(tmp_path):
    class Greedy(PerceptronRun):
        def run(self, device, observer):
            with observer.phase("init", -1):
                return torch.empty(1 << 60, dtype=torch.uint8, device=device)

    result = capture(Greedy(), output=tmp_path / "run.pickle", device="cpu")
    assert result.status == "oom"
    assert "can't allocate memory" in result.reason


def test_progress_is_told(tmp_path):
    told = []
    capture(PerceptronRun(), output=tmp_path / "run.pickle", device="cpu", progress=lambda *values: told.append(values))
    assert told[0] == ("building the model", 0, 1)
    assert ("training", 1, 1) in told
    assert told[-1] == ("labelling and writing", 1, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "tpu"}, "--device tpu: unknown"),
        ({"stacks": "some"}, "--stacks some: unknown"),
        ({"max_entries": 0}, "--max-entries 0: must be at least 1"),
    ],
)
def test_wrong_options_are_one_line(tmp_path, options, message):
    with pytest.raises(UsageError, match=message) as caught:
        capture(PerceptronRun(), output=tmp_path / "run.pickle", **options)
    assert "\n" not in str(caught.value)


def test_the_place_of_the_file_is_checked_before_the_run(tmp_path):
    with pytest.raises(OutputError, match="directory that exists"):
        capture(PerceptronRun(ValueError()), output=tmp_path / "none" / "run.pickle", device="cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_cuda_that_is_not_there(tmp_path):
    with pytest.raises(CaptureError, match="--device cuda: torch finds no CUDA device"):
        capture(PerceptronRun(), output=tmp_path / "run.pickle", device="cuda")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_perceptron_on_cuda(tmp_path, read):
    result = capture(PerceptronRun(), output=tmp_path / "run.pickle", device="cuda")
    run = read(tmp_path / "run.pickle")
    parameters = 4 * (2 * WIDTH * HIDDEN + HIDDEN + WIDTH)
    assert result.unmatched == 0
    assert run.bytes(run.mark("step 0 backward"), "weights", "adapter") == parameters
    assert run.bytes(run.mark("step 0 optimizer"), "gradients", "parameter") == parameters
    assert run.bytes(run.peak, "unknown") == 0
