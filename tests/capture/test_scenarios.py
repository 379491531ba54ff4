"""Other people's ways to train and to infer, under `memprof.record`: nothing is unknown, and what is known is right."""

from __future__ import annotations

import itertools

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402 - after the check that torch is there

import memprof  # noqa: E402

pytestmark = pytest.mark.torch

FLOAT, LONG = 4, 8


@pytest.fixture
def record(tmp_path, read):
    """Record a function on the CPU, and check that every byte of it is known at every moment."""

    def recorded(function):
        with memprof.record(tmp_path / "run.pickle", device="cpu") as recording:
            alive = function()
        del alive
        run = read(tmp_path / "run.pickle")
        assert recording.result.unmatched == 0
        assert sorted(run.labels) == [row for row, entry in enumerate(run.entries) if entry["action"] == "alloc"]
        assert {label["category"] for label in run.labels.values()}.isdisjoint({"unknown"})
        return run

    return recorded


def size_of(tensors):
    return sum(tensor.nbytes for tensor in tensors)


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, bias=False)

    def forward(self, x):
        return x + self.second(torch.relu(self.norm(self.first(x))))


def test_a_residual_network(record):
    # given images of 8 channels
    rows, channels, edge, blocks, classes = 4, 8, 16, 2, 10
    model = nn.Sequential(
        nn.Conv2d(3, channels, 3, padding=1, bias=False),
        *(Residual(channels) for _ in range(blocks)),
        nn.Flatten(),
        nn.Linear(channels * edge * edge, classes),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def train():
        for _ in range(2):
            images, targets = torch.randn(rows, 3, edge, edge), torch.randint(0, classes, (rows,))
            nn.functional.cross_entropy(model(images), targets).backward()
            optimizer.step()
            optimizer.zero_grad()
        return images, targets

    # when
    run = record(train)

    # then
    image = FLOAT * rows * channels * edge * edge
    at = run.mark("step 1 backward")
    assert run.bytes(at, "inputs") == FLOAT * rows * 3 * edge * edge + LONG * rows
    # a block saves its input, what its norm is given, mean and reciprocal deviation, and what relu returns; what the
    # last one returns, the linear layer
    statistics = 2 * FLOAT * channels
    saved = blocks * (3 * image + statistics) + image + FLOAT * rows * classes + FLOAT
    assert run.bytes(at, "activations", "saved") == saved
    assert run.bytes(run.mark("step 1 optimizer"), "gradients", "parameter") == size_of(model.parameters())
    assert run.bytes(run.end, "optimizer_state", "momentum_buffer") == size_of(model.parameters())


def test_generation_with_a_cache(record):
    # given a model that generates four tokens
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=100, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval()
    tokens = torch.randint(0, 100, (1, 5))

    # when
    run = record(
        lambda: model.generate(
            tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=4, do_sample=False, pad_token_id=0
        )
    )

    # then all of it is evaluation
    assert [mark["name"] for mark in run.memprof["marks"]] == ["init", "eval", "between"]
    # and the weights are there, though they were made before
    strings, base = run.memprof["strings"], run.memprof["base_labels"]
    blocks = {block["address"]: block["size"] for segment in run.snapshot["segments"] for block in segment["blocks"]}
    weights = [
        blocks[address] for address, finer in zip(base["address"], base["finer"], strict=True)
        if finer >= 0 and strings[finer] == "adapter"
    ]  # fmt: skip
    assert sum(weights) == size_of(model.parameters())


def test_a_compiled_model_stays_one_graph(record):
    # given
    torch._dynamo.reset()
    counters = pytest.importorskip("torch._dynamo.utils").counters
    counters.clear()
    rows, width, hidden = 32, 64, 256
    model = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))
    compiled = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.AdamW(compiled.parameters())

    def train():
        for _ in range(2):
            compiled(torch.randn(rows, width)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()

    # when
    try:
        run = record(train)
    finally:
        torch._dynamo.reset()

    # then
    assert counters["stats"]["unique_graphs"] == 1
    assert not counters["graph_break"]
    at = run.mark("step 1 backward")
    # the square saves what it is given
    assert run.bytes(at, "activations", "saved") == FLOAT * rows * (hidden + hidden + width)
    assert run.bytes(run.mark("step 1 optimizer"), "gradients", "parameter") == size_of(model.parameters())
    names = {label["parameter"] for label in run.labels.values() if label["finer"] == "exp_avg"}
    assert names == {"0.weight", "0.bias", "2.weight", "2.bias"}
    # the modules are gone, so the graph has the activations, and what flows in its backward
    assert {label["module"] for label in run.labels.values() if label["finer"] == "saved"} >= {"[graph 0/0]"}
    backward = [label for label in run.labels.values() if label["phase"] == "backward" and label["module"]]
    assert {label["module"] for label in backward} >= {"[graph 0/0]"}


def test_an_optimizer_that_is_given_a_closure(record):
    # given what runs forward and backward inside the optimizer's step
    torch.manual_seed(0)
    model = nn.Linear(8, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)
    x, y = torch.randn(4, 8), torch.randn(4, 1)

    def closure():
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        return loss

    # then
    run = record(lambda: optimizer.step(closure))
    names = [mark["name"].split()[-1] for mark in run.memprof["marks"]]
    cycle = ["optimizer", "forward", "backward"]
    # where a step begins inside the optimizer, it is in two pieces
    found = [name for name, _ in itertools.groupby(names) if name != "init"]
    assert found == [*cycle, *cycle, "optimizer", "between"]


def test_a_loop_without_modules(record):
    def train():
        weight = torch.randn(64, 10, requires_grad=True)
        optimizer = torch.optim.Adam([weight])
        for _ in range(2):
            (torch.randn(32, 64) @ weight).tanh().square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        return weight

    run = record(train)
    at = run.mark("step 1 backward")
    assert run.bytes(at, "weights") == FLOAT * 64 * 10
    assert run.bytes(at, "inputs") == FLOAT * 32 * 64
    # tanh saves its result, which the square is given
    assert run.bytes(at, "activations", "saved") == FLOAT * 32 * 10
    assert run.bytes(at, "optimizer_state", "exp_avg") == FLOAT * 64 * 10
