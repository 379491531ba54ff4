"""Phases found in timelines that are written by hand."""

from __future__ import annotations

import pytest
from scripted import Script

from memprof.capture.marks import NO_GRAD, TRAINING, module_mark, phase_mark, saved_mark, step_mark
from memprof.capture.phases import NODE
from memprof.categories.category import Category


@pytest.fixture
def script():
    return Script()


def forward(script, mode=TRAINING):
    script.begin(module_mark("", mode))
    script.begin(module_mark("fc", mode))
    script.op("aten::addmm")
    script.end(2)


def backward(script):
    script.op(NODE + "MeanBackward0")
    script.op(NODE + "AddmmBackward0")


def step(script):
    script.op("Optimizer.step#SGD.step", operator=False)


def test_a_training_loop(script):
    # given two steps of a plain loop
    script.op("aten::randn")
    for number in range(2):
        script.op(step_mark(number))
        forward(script)
        script.op("aten::mean")
        backward(script)
        step(script)
        script.op("aten::randn")

    # then
    cycle = ["between", "forward", "backward", "between", "optimizer", "between"]
    assert script.phases() == [("init", -1), *((name, 0) for name in cycle), *((name, 1) for name in cycle[:-1])]


def test_the_loss_belongs_to_the_forward_and_the_next_batch_to_none(script):
    # given
    forward(script)
    script.begin("aten::mean")
    script.alloc(1, 4)
    script.end()
    backward(script)
    script.begin("aten::randn")
    script.alloc(2, 64)
    script.end()
    forward(script)
    backward(script)

    # then
    loss, batch = script.labels()
    assert (loss.category, loss.phase) == (Category.ACTIVATIONS, "forward")
    assert batch.phase == "between"


def test_evaluation_is_a_forward_without_autograd(script):
    forward(script)
    backward(script)
    forward(script, NO_GRAD)
    script.op("aten::argmax")
    forward(script, NO_GRAD)
    assert [name for name, _ in script.phases()] == ["init", "forward", "backward", "between", "eval"]


@pytest.mark.parametrize("trained", [True, False])
def test_evaluation_mode_with_autograd_is_what_follows_it(script, trained):
    # given a model in evaluation mode, for which nobody switched autograd off
    forward(script, "")
    if trained:
        backward(script)
    assert [name for name, _ in script.phases()][1:2] == ["forward" if trained else "eval"]


def test_a_teacher_without_autograd_in_a_training_step(script):
    forward(script, NO_GRAD)
    forward(script)
    backward(script)
    assert [name for name, _ in script.phases()] == ["init", "eval", "between", "forward", "backward"]


def test_checkpointing_runs_modules_inside_backward(script):
    forward(script)
    script.begin(NODE + "CheckpointFunctionBackward")
    forward(script)
    script.op(NODE + "AddmmBackward0")
    script.end()
    assert [name for name, _ in script.phases()] == ["init", "forward", "backward"]


def test_an_optimizer_that_runs_forward_and_backward_itself(script):
    # given what LBFGS and Lightning do
    script.begin("Optimizer.step#LBFGS.step", operator=False)
    forward(script)
    backward(script)
    script.op("aten::add")
    script.end()
    assert [name for name, _ in script.phases()] == [
        "init", "optimizer", "forward", "backward", "optimizer",
    ]  # fmt: skip


def test_a_loop_without_modules(script):
    # given what autograd saves, outside any module
    script.op("aten::randn")
    script.op(saved_mark())
    script.op("aten::tanh")
    backward(script)
    assert [name for name, _ in script.phases()] == ["init", "forward", "backward"]


def test_marked_phases_are_taken_as_they_are(script):
    script.begin(phase_mark("eval", 3))
    forward(script)
    backward(script)
    script.end()
    assert script.phases() == [("eval", 3)]


def test_the_batch_is_what_was_made_between_and_given_to_a_forward(script):
    # given two tensors, of which an op of the forward is given one
    script.begin("aten::randn")
    script.alloc(1, 32)
    script.end()
    script.begin("aten::randn")
    script.alloc(2, 32)
    script.end()
    script.begin(module_mark("", TRAINING))
    script.op("aten::mul", (1, "float32", (8,)))
    script.end()
    backward(script)

    # then
    batch, other = script.labels()
    assert batch.category is Category.INPUTS
    assert (other.category, other.finer) == (Category.TEMPORARIES, "init")
