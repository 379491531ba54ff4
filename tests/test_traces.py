"""The committed captures: exact against the allocator's own figures, and against arithmetic on the model's shapes."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from memprof.allocator.heap import final_differences
from memprof.analysis.account import open_account
from memprof.analysis.state import state_at
from memprof.categories.category import Category
from memprof.trace import load
from memprof.trace.model import Source
from memprof.trace.opcodes import check_memory_viz

TRACES = Path(__file__).parents[1] / "traces"
FILES = sorted(TRACES.rglob("*.pickle"))
H200 = sorted(TRACES.glob("h200-pythia-70m-*.pickle"))

# Pythia-70m as litgpt configures it (EleutherAI's config.json): vocabulary 50254 padded to 50304.
VOCABULARY, WIDTH, LAYERS, INNER = 50304, 512, 6, 2048
RANK = 8
ROTARY = 16  # a quarter of a head of 64
LENGTH = 1037
FLOAT, HALF = 4, 2
LINEAR_SHAPES = [(3 * WIDTH, WIDTH), (WIDTH, WIDTH), (INNER, WIDTH), (WIDTH, INNER)]
LINEAR_WEIGHTS = VOCABULARY * WIDTH + LAYERS * sum(rows * columns for rows, columns in LINEAR_SHAPES)
LINEAR_BIASES = LAYERS * sum(rows for rows, _ in LINEAR_SHAPES)
NORMS = (2 * LAYERS + 1) * 2 * WIDTH
EMBEDDING = VOCABULARY * WIDTH
ADAPTERS = LAYERS * (2 * RANK * WIDTH + 2 * WIDTH * RANK)  # A for query and value together, B for each
LINEARS = 1 + 4 * LAYERS
QUANT_BLOCK = 64  # weights that share one absmax (bitsandbytes' default)
CODEBOOK = 16  # float32 values of the nf4 table, one table a layer


@pytest.fixture(scope="module", params=FILES, ids=lambda path: path.stem)
def any_trace(request):
    return request.param


@pytest.fixture(scope="module", params=H200, ids=lambda path: path.stem.removeprefix("h200-pythia-70m-16-mixed-"))
def account(request):
    trace = load(request.param)
    return open_account(trace, trace.devices[0])


def config(account):
    return account.trace.made_by["config"]


def quantized(account):
    return config(account)["quant"] == "bnb.nf4"


def requested(account, event, category, finer=None):
    """Sum requested bytes of what is live after `event`."""
    known, allocations = account.classification, account.replay.allocations
    rows = [row for row in allocations.live_at(event).tolist() if known.category[row] == category.code]
    if finer is not None:
        rows = [row for row in rows if known.text(known.finer, row) == finer]
    return int(allocations.requested[rows].sum())


def before_optimizer(account):
    """Return the last event before ``optimizer.step`` of the last step."""
    return [mark.entry for mark in account.device.marks if mark.name.endswith("optimizer")][-1] - 1


def test_there_are_traces():
    assert len(H200) == 4
    assert any("cpu" in path.name for path in FILES)


def test_memory_viz_opens_it(any_trace):
    data = any_trace.read_bytes()

    assert check_memory_viz(data) == []
    assert data[:2] == b"\x80\x04"
    assert len(data) < 2_000_000
    entries = [entry for trace in pickle.loads(data)["device_traces"] for entry in trace if entry["action"] == "alloc"]
    assert entries
    assert all(isinstance(entry["category"], str) for entry in entries)


def test_nothing_of_the_machine_leaks(any_trace):
    data = any_trace.read_bytes()

    assert not [word for word in (b"/home/", b"/root/", b"/usr/", b"/tmp/", b"site-packages/site") if word in data]


def test_replay_is_what_the_allocator_said(any_trace):
    trace = load(any_trace)
    for device in trace.devices:
        account = open_account(trace, device)
        if trace.source is Source.RECORDED:
            assert int(account.replay.allocated.max()) == max(stat.max_allocated_bytes for stat in device.stats)
            assert int(account.replay.reserved.max()) == max(stat.max_reserved_bytes for stat in device.stats)
        assert final_differences(device, account.replay, trace.source) == ()


def test_every_byte_has_a_category_at_every_mark(any_trace):
    trace = load(any_trace)
    for device in trace.devices:
        account = open_account(trace, device)
        for event in {account.replay.peak_event, len(device.events) - 1, *(mark.entry - 1 for mark in device.marks)}:
            state = state_at(account, event)
            assert sum(state.categories.values()) == state.allocated
            assert state.categories[Category.UNKNOWN] == 0


def test_base_weights(account):
    peak = account.replay.peak_event
    if quantized(account):
        # bitsandbytes casts a bias to its input's dtype for good (Linear4bit.forward); under autocast only attention's
        # output projection gets a half-precision input, all others follow a float32 norm or activation function.
        halved = LAYERS * WIDTH * (FLOAT - HALF)
        assert (
            requested(account, peak, Category.WEIGHTS, "base") == (EMBEDDING + NORMS + LINEAR_BIASES) * FLOAT - halved
        )
        assert requested(account, peak, Category.WEIGHTS, "quantized") == LINEAR_WEIGHTS // 2
        state = LINEAR_WEIGHTS // QUANT_BLOCK * FLOAT + LINEARS * CODEBOOK * FLOAT
        assert requested(account, peak, Category.WEIGHTS, "quant_state") == state
    else:
        weights = (EMBEDDING + NORMS + LINEAR_BIASES + LINEAR_WEIGHTS) * FLOAT
        assert weights == 281_706_496
        assert requested(account, peak, Category.WEIGHTS, "base") == weights


def test_buffers_are_the_rotary_cache_and_the_adapters_indices(account):
    rotary = 2 * LENGTH * ROTARY * FLOAT
    indices = LAYERS * 2 * WIDTH * 8  # int64, a query's and a value's rows in the joint projection

    assert requested(account, account.replay.peak_event, Category.WEIGHTS, "buffer") == rotary + indices


def test_adapters_their_gradients_and_their_optimizer_state(account):
    peak, end = account.replay.peak_event, len(account.device.events) - 1

    assert requested(account, peak, Category.WEIGHTS, "adapter") == ADAPTERS * FLOAT
    assert requested(account, before_optimizer(account), Category.GRADIENTS, "parameter") == ADAPTERS * FLOAT
    assert requested(account, peak, Category.OPTIMIZER_STATE) == 0
    for name in ("exp_avg", "exp_avg_sq"):
        assert requested(account, end, Category.OPTIMIZER_STATE, name) == ADAPTERS * FLOAT
    assert requested(account, end, Category.OPTIMIZER_STATE) == 2 * ADAPTERS * FLOAT


def test_logits_are_float32_where_the_output_layer_is_quantized(account):
    width = FLOAT if quantized(account) else HALF
    logits = config(account)["mbs"] * LENGTH * VOCABULARY * width

    assert requested(account, account.replay.peak_event, Category.ACTIVATIONS, "logits") == logits


def test_inputs_are_tokens_and_targets(account):
    tokens = config(account)["mbs"] * LENGTH * 8  # int64

    assert requested(account, account.replay.peak_event, Category.INPUTS) == 2 * tokens


def test_workspaces_are_no_activations(account):
    known, allocations = account.classification, account.replay.allocations
    kept = np.flatnonzero(
        np.isin(allocations.requested, (33_554_432, 1_048_576)) & (allocations.freed == len(account.device.events))
    )
    made_at_work = [row for row in kept.tolist() if known.text(known.phase, row) in ("forward", "backward")]

    assert made_at_work
    assert {int(known.category[row]) for row in made_at_work} == {Category.WORKSPACE.code}
