"""Findings on loops that `memprof.record` followed by itself: it finds steps and phases; nobody names the logits."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from findings_runs import MBS, TOKENS, VOCABULARY, WIDTH, plain, quantized  # noqa: E402 - needs torch

from memprof.analysis.account import open_account  # noqa: E402 - beside the others
from memprof.analysis.findings import find_all  # noqa: E402 - beside the others
from memprof.capture.record import record  # noqa: E402 - needs torch
from memprof.trace import load  # noqa: E402 - beside the others

pytestmark = pytest.mark.torch

FULL = 4
STREAM = MBS * TOKENS * WIDTH


def train(path, make, *, collect=False, steps=4):
    """A loop as in a script, with nothing of memprof in it but the context manager."""
    torch.manual_seed(0)
    kept = []
    with record(path, device="cpu") as recording:
        model = make()
        optimizer = torch.optim.SGD([parameter for parameter in model.parameters() if parameter.requires_grad], lr=0.01)
        for _ in range(steps):
            tokens = torch.randint(0, VOCABULARY, (MBS, TOKENS))
            output = model(tokens)
            loss = model.loss(output, tokens) if model.wide else output.float().pow(2).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if collect:
                kept.append(output.detach())
            del output, loss
            recording.step()
    trace = load(path)
    (device,) = trace.devices
    return {finding.id: finding for finding in find_all(open_account(trace, device))}


def test_loop_that_collects_its_outputs_grows_every_step(tmp_path):
    found = train(tmp_path / "run.pickle", plain(), collect=True)

    assert {kind: finding.size for kind, finding in found.items()} == {"grows-every-step": 3 * FULL * STREAM}
    assert "65.54 kB every step" in found["grows-every-step"].title


def test_loop_that_lets_go_has_no_finding(tmp_path):
    assert train(tmp_path / "run.pickle", plain()) == {}


def switched_on(*, training):
    """A model with transformers' switch set, that checkpoints as theirs do: in train() only."""

    def make():
        model = plain(checkpoint="by hooks")()
        model.gradient_checkpointing = True
        return model.train(training)

    return make


def test_checkpointing_that_a_model_has_on_and_does_not_do_in_eval_is_found(tmp_path):
    found = train(tmp_path / "run.pickle", switched_on(training=False))

    assert set(found) == {"checkpointing-not-working"}
    assert "asked for (gradient_checkpointing of its modules)" in found["checkpointing-not-working"].title
    # As in `findings_cases`: in each of three blocks the inputs of both linear layers and of gelu, and a norm's two
    # numbers a row; and the adapter's input.
    assert found["checkpointing-not-working"].size == FULL * (STREAM + 3 * (9 * STREAM + 2 * MBS * TOKENS))


@pytest.mark.parametrize("make", [switched_on(training=True), plain()], ids=["it works", "nobody asked"])
def test_checkpointing_that_works_or_was_not_asked_for_is_not(make, tmp_path):
    assert train(tmp_path / "run.pickle", make) == {}


class LowRank(torch.nn.Linear):
    """A linear layer with an adapter of rank 4, whose matrices are many times higher than wide."""

    def __init__(self, *arguments, **options) -> None:
        super().__init__(*arguments, **options)
        self.down = torch.nn.Linear(self.in_features, 4, bias=False, dtype=self.weight.dtype)
        self.up = torch.nn.Linear(4, self.out_features, bias=False, dtype=self.weight.dtype)

    def forward(self, x):
        return super().forward(x) + self.up(self.down(x.float().to(x.dtype)))


def test_adapters_are_not_taken_for_an_output_layer(tmp_path):
    def make():
        model = plain(dtype=torch.bfloat16, freeze=True)()
        for block in model.blocks:
            for index in (1, 4):
                old = block[index]
                block[index] = LowRank(old.in_features, old.out_features, dtype=torch.bfloat16)
        return model

    found = train(tmp_path / "run.pickle", make)

    assert {"logits-dominate", "logits-copied"} & set(found) == set()


@pytest.mark.parametrize(
    "make", [plain(wide=2048), lambda: quantized(wide=2048)().to("cpu")], ids=["plain", "beside packed weights"]
)
def test_width_of_logits_that_nobody_named_is_that_of_the_highest_weight(make, tmp_path):
    pytest.importorskip("bitsandbytes")

    found = train(tmp_path / "run.pickle", make)

    assert found["logits-dominate"].size == 4 * FULL * MBS * TOKENS * 2048
