from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("litgpt")
pytest.importorskip("bitsandbytes")

from memprof.capture.observer import Observer  # noqa: E402 - after the check that torch is there
from memprof.recipes.checkpointed_loss import checkpointed_loss  # noqa: E402
from memprof.recipes.fixes import FIXES  # noqa: E402
from memprof.recipes.lit_gpt_2023 import LitGpt2023  # noqa: E402

pytestmark = pytest.mark.torch

CPU = torch.device("cpu")


class Logits(Observer):
    """Writes down shapes and dtypes of the logits that a recipe shows."""

    def __init__(self):
        super().__init__(lambda step: None)
        self.seen = []

    def see(self, category, finer, tensors, name=""):
        if finer == "logits":
            self.seen += [(tuple(tensor.shape), tensor.dtype) for tensor in tensors]


def run(**options):
    logits = Logits()
    settings = {"model": "pythia-14m", "precision": "bf16-mixed", "seq": 48, "steps": 1, **options}
    model, *_, loss = LitGpt2023(**settings).run(CPU, logits)
    return model, logits.seen, loss.item()


def test_quantized_logits_are_float32_and_with_the_fix_they_are_not():
    _, before, loss = run(quant="bnb.nf4", lm_head_chunk_size=0)
    _, after, fixed = run(quant="bnb.nf4", lm_head_chunk_size=0, fix="autocast-output")
    assert [dtype for _, dtype in before] == [torch.float32]
    assert [dtype for _, dtype in after] == [torch.bfloat16]
    assert fixed == pytest.approx(loss, rel=0.01)


def test_bf16_true_has_no_float32_parameter():
    model, *_ = run(fix="bf16-true")
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}


def test_small_chunks():
    _, seen, _ = run(fix="lm-head-chunk-32")
    assert [shape[1] for shape, _ in seen] == [32, 16]


def test_checkpointed_loss_shows_no_logits_and_is_the_same_loss():
    _, before, loss = run()
    model, seen, fixed = run(fix="checkpointed-loss")
    assert before
    assert seen == []
    assert fixed == pytest.approx(loss, rel=0.001)
    assert type(model.lm_head).__name__ == "LoRALinear"


def test_checkpointed_loss_gives_the_gradients_of_the_whole_loss():
    from litgpt.lora import GPT, Config
    from litgpt.utils import chunked_cross_entropy

    torch.manual_seed(0)
    model = GPT(Config.from_name("pythia-14m", n_layer=1, lora_r=2, lora_query=True))
    tokens = torch.randint(0, 1000, (2, 20))
    targets = tokens.clone()
    targets[0, 10:] = -100
    gradients = []
    for loss in (
        checkpointed_loss(model, tokens, targets, chunk=8),
        chunked_cross_entropy(model(tokens)[:, :-1], targets[:, 1:], chunk_size=0),
    ):
        model.zero_grad()
        loss.backward()
        gradients.append((loss.detach(), model.lm_head.linear.weight.grad, model.transformer.wte.weight.grad))
    for ours, whole in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, whole)


def test_a_file_says_the_run_that_was_asked_for_and_the_fix():
    for name in FIXES:
        settings = LitGpt2023(model="pythia-14m", seq=48, fix=name).settings()
        assert settings["fix"] == name
        assert settings["precision"] == "16-mixed"
    assert "fix" not in LitGpt2023().settings()


def test_fabric_output_makes_logits_float32():
    _, seen, _ = run(fabric_output=True)
    assert {dtype for _, dtype in seen} == {torch.float32}
