"""Every tensor that a small GPT saves, holds and recomputes, counted from its shapes alone."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from gpt import BATCH, GPT, HEADS, LAYERS, LENGTH, VOCABULARY, WIDTH, train  # noqa: E402 - after the check

import memprof  # noqa: E402 - after the check that torch is there

pytestmark = pytest.mark.torch

FLOAT, INT = 4, 8
TOKENS = BATCH * LENGTH
HIDDEN = FLOAT * TOKENS * WIDTH
"""Bytes of one tensor of the residual stream."""
NORM = HIDDEN + 2 * FLOAT * TOKENS
"""A norm's result, which the layer after it saves, and mean and reciprocal deviation of each token."""
ATTENTION = 3 * HIDDEN + FLOAT * BATCH * HEADS * LENGTH * LENGTH + HIDDEN
"""Queries, keys and values, each made contiguous for its product; probabilities; and what is mixed, for proj."""
MLP = 4 * HIDDEN + 4 * HIDDEN
"""What gelu is given, and what it returns."""
BLOCK = NORM + ATTENTION + HIDDEN + HIDDEN + NORM + MLP
"""Also dropout's mask, in floats on the CPU, and the sum that the second norm saves."""
LOGITS = FLOAT * TOKENS * VOCABULARY
GENERATOR_STATE = 5056
"""Bytes of the CPU generator's state, which checkpointing keeps for each block."""


def weights():
    block = 2 * 2 * WIDTH + WIDTH * 3 * WIDTH + WIDTH * WIDTH + 2 * WIDTH * 4 * WIDTH
    return FLOAT * (VOCABULARY * WIDTH + LAYERS * block + 2 * WIDTH + WIDTH * VOCABULARY)


@pytest.fixture(scope="module")
def runs(tmp_path_factory, read):
    """Record two steps, without and with checkpointing; a first run has made what torch makes once."""
    folder = tmp_path_factory.mktemp("gpt")
    found = {}
    for checkpointed in (False, True):
        model = GPT(checkpointed=checkpointed)
        train(model, torch.optim.AdamW(model.parameters()))
        with memprof.record(folder / f"{checkpointed}.pickle", device="cpu"):
            model = GPT(checkpointed=checkpointed)
            train(model, torch.optim.AdamW(model.parameters()), 2)
        found[checkpointed] = read(folder / f"{checkpointed}.pickle")
    return found


@pytest.mark.parametrize("step", [0, 1])
def test_what_autograd_saves(runs, step):
    run = runs[False]
    at = run.mark(f"step {step} backward")
    # embeddings for the first norm, the last block's sum for the last norm, whose result the head saves
    stream = HIDDEN + (LAYERS - 1) * HIDDEN + HIDDEN
    logarithms = LOGITS + FLOAT
    assert run.bytes(at, "activations", "saved") == stream + LAYERS * BLOCK + NORM + logarithms
    assert run.bytes(at, "activations", "logits") == LOGITS
    assert run.bytes(at, "activations", "held") == 2 * FLOAT  # the loss, and the gradient that backward begins with
    assert run.bytes(at, "inputs") == INT * 2 * TOKENS


def test_each_module_saves_its_own(runs):
    run = runs[False]
    found = {}
    for row in run.live_before(run.mark("step 0 backward")):
        label = run.labels[row]
        if label["category"] == "activations":
            name = label["module"], label["op"]
            found[name] = found.get(name, 0) + run.entries[row]["size"]
    for layer in range(LAYERS):
        block = f"blocks.{layer}"
        assert found[(f"{block}.norm_1", "aten::native_layer_norm")] == NORM
        assert found[(block, "aten::_softmax")] == FLOAT * BATCH * HEADS * LENGTH * LENGTH
        assert found[(block, "aten::clone")] == 4 * HIDDEN
        assert found[(f"{block}.dropout", "aten::dropout")] == HIDDEN
        assert found[(f"{block}.fc", "aten::mm")] == found[(block, "aten::gelu")] == 4 * HIDDEN
        assert found[(block, "aten::add")] == 2 * HIDDEN
    assert found[("head", "aten::mm")] == LOGITS


@pytest.mark.parametrize("checkpointed", [True, False])
def test_weights_gradients_and_optimizer_state(runs, checkpointed):
    run = runs[checkpointed]
    assert run.bytes(run.mark("step 0 backward"), "weights") == weights()
    assert run.bytes(run.mark("step 0 backward"), "gradients") == 0
    assert run.bytes(run.mark("step 0 optimizer"), "gradients", "parameter") == weights()
    assert run.bytes(run.mark("step 1 forward"), "optimizer_state", "exp_avg") == weights()
    assert run.bytes(run.mark("step 1 forward"), "optimizer_state", "exp_avg_sq") == weights()
    assert run.bytes(run.mark("step 1 forward"), "gradients") == 0


@pytest.mark.parametrize("step", [0, 1])
def test_checkpointing_leaves_a_block_its_input(runs, step):
    run = runs[True]
    at = run.mark(f"step {step} backward")
    stream = HIDDEN + LAYERS * HIDDEN
    assert run.bytes(at, "activations", "saved") == stream + NORM + LOGITS + FLOAT
    assert run.bytes(at, "activations", "held") == LAYERS * GENERATOR_STATE + 2 * FLOAT
    assert run.bytes(at, "activations", "recomputed") == 0


def test_what_is_recomputed_is_what_else_would_be_saved(runs):
    # given that checkpointing stops when it has the last tensor that backward needs, gelu's result; the queries, keys
    # and values before they were made contiguous live until then
    run = runs[True]
    recomputed = {}
    for row, label in run.labels.items():
        if label["finer"] == "recomputed":
            block = label["module"].split(".")[1], label["step"]
            recomputed[block] = recomputed.get(block, 0) + run.entries[row]["size"]
    expected = {(str(layer), step): BLOCK + 3 * HIDDEN for layer in range(LAYERS) for step in (0, 1)}
    assert recomputed == expected


def test_nothing_is_unknown_and_the_peak_is_the_sum(runs):
    for run in runs.values():
        assert {label["category"] for label in run.labels.values()}.isdisjoint({"unknown"})
        at = run.peak
        total = sum(run.entries[row]["size"] for row in run.live_before(at))
        assert sum(run.bytes(at, category) for category in {x["category"] for x in run.labels.values()}) == total
