"""What a capture says is compared with figures that follow from the model's shapes alone."""

from __future__ import annotations

from math import ceil

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("litgpt")
pytest.importorskip("bitsandbytes")

pytestmark = pytest.mark.torch

SEQ = 32
CONFIGURATIONS = [
    (quant, precision) for quant in ("none", "bnb.nf4", "bnb.nf4-dq") for precision in ("32-true", "bf16-mixed")
]
LORA = {"lora_r": 8, "lora_alpha": 16, "lora_dropout": 0.05, "lora_query": True, "lora_value": True}


@pytest.fixture(scope="module")
def shapes():
    """The small model's parameters by name, built apart from any capture; no memory, only shapes."""
    from litgpt.lora import GPT, Config

    with torch.device("meta"):
        model = GPT(Config.from_name("pythia-14m", **LORA))
    return {name: parameter.shape for name, parameter in model.named_parameters()}


def is_adapter(name):
    return "lora_" in name


def is_quantized(name):
    return name.endswith("linear.weight")


def numel(shape):
    return torch.Size(shape).numel()


@pytest.mark.parametrize(("quant", "precision"), CONFIGURATIONS)
def test_weights(recorded, shapes, quant, precision):
    # given
    run = recorded(quant=quant, precision=precision)
    quantized = [numel(shape) for name, shape in shapes.items() if is_quantized(name) and quant != "none"]
    base = [
        numel(shape)
        for name, shape in shapes.items()
        if not is_adapter(name) and not (is_quantized(name) and quant != "none")
    ]
    adapter = [numel(shape) for name, shape in shapes.items() if is_adapter(name)]

    # when the first step begins
    at = run.mark("step 0 forward")

    # then
    assert run.bytes(at, "weights", "base") == 4 * sum(base)
    assert run.bytes(at, "weights", "adapter") == 4 * sum(adapter)
    assert run.bytes(at, "weights", "quantized") == sum(ceil(count / 2) for count in quantized)


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_quantization_state(recorded, shapes, precision):
    # given blocks of 64 values with a float32 each, and a table of 16 float32 for every layer
    run = recorded(quant="bnb.nf4", precision=precision)
    blocks = [ceil(numel(shape) / 64) for name, shape in shapes.items() if is_quantized(name)]

    # then
    assert run.bytes(run.mark("step 0 forward"), "weights", "quant_state") == sum(4 * n + 4 * 16 for n in blocks)


def test_quantization_state_of_double_quantization(recorded, shapes):
    # given a byte for every block of 64, a float32 for every 256 of those, and per layer a table of 16 and one of 256
    # float32 and an offset
    run = recorded(quant="bnb.nf4-dq", precision="32-true")
    blocks = [ceil(numel(shape) / 64) for name, shape in shapes.items() if is_quantized(name)]

    # then
    expected = sum(n + 4 * ceil(n / 256) + 4 * (16 + 256 + 1) for n in blocks)
    assert run.bytes(run.mark("step 0 forward"), "weights", "quant_state") == expected


@pytest.mark.parametrize(("quant", "precision"), CONFIGURATIONS)
def test_gradients_and_optimizer_state(recorded, shapes, quant, precision):
    # given
    run = recorded(quant=quant, precision=precision)
    adapter = [numel(shape) for name, shape in shapes.items() if is_adapter(name)]

    # then every trained parameter has its gradient just before optimizer.step, and no state yet
    before_step = run.mark("step 1 optimizer")
    assert run.bytes(before_step, "gradients", "parameter") == 4 * sum(adapter)
    assert run.bytes(before_step, "gradients", "activation") == 0
    assert run.bytes(before_step, "optimizer_state") == 0

    # and at the end two moments and a float32 step count, and no gradient
    assert run.bytes(run.end, "optimizer_state", "exp_avg") == 4 * sum(adapter)
    assert run.bytes(run.end, "optimizer_state", "exp_avg_sq") == 4 * sum(adapter)
    assert run.bytes(run.end, "optimizer_state", "step") == 4 * len(adapter)
    assert run.bytes(run.end, "gradients") == 0


@pytest.mark.parametrize(("quant", "precision"), CONFIGURATIONS)
def test_inputs_are_int64_tokens_and_targets(recorded, quant, precision):
    run = recorded(quant=quant, precision=precision)
    at = run.mark("step 0 backward")
    assert run.bytes(at, "inputs", "tokens") == 8 * SEQ
    assert run.bytes(at, "inputs", "targets") == 8 * SEQ


@pytest.mark.parametrize(
    ("quant", "precision", "itemsize"),
    [("none", "32-true", 4), ("none", "bf16-mixed", 2), ("bnb.nf4", "32-true", 4), ("bnb.nf4", "bf16-mixed", 4)],
)
def test_quantized_output_layer_gives_float32_logits(recorded, quant, precision, itemsize):
    # given one chunk of logits for every token and entry of the padded vocabulary
    run = recorded(quant=quant, precision=precision)

    # then
    assert run.bytes(run.mark("step 0 backward"), "activations", "logits") == SEQ * 50304 * itemsize


@pytest.mark.parametrize(("quant", "precision"), CONFIGURATIONS)
def test_everything_is_known(recorded, quant, precision):
    run = recorded(quant=quant, precision=precision)
    allocs = [row for row, entry in enumerate(run.entries) if entry["action"] == "alloc"]

    # every allocation has a label, and its category stands in its entry
    assert sorted(run.labels) == allocs
    assert all(run.entries[row]["category"] == run.labels[row]["category"] for row in allocs)
    # and nothing of it is unknown, at any moment of the run
    assert sum(label["category"] == "unknown" for label in run.labels.values()) == 0
    # and the peak is the sum of its categories
    at = run.peak
    total = sum(run.entries[row]["size"] for row in run.live_before(at))
    assert sum(run.bytes(at, category) for category in {label["category"] for label in run.labels.values()}) == total


@pytest.mark.parametrize("quant", ["none", "bnb.nf4"])
def test_weight_casts_are_of_the_weights(recorded, shapes, quant):
    # given autocast, which casts the frozen weights of plain linear layers and never those of quantized ones
    run = recorded(quant=quant, precision="bf16-mixed")
    casts = {
        label["parameter"]: entry
        for entry, label in run.labels.items()
        if label["category"] == "weight_casts" and label["finer"] == "base" and label["step"] == 0
    }

    # then
    weights = {name for name in shapes if is_quantized(name)}
    assert weights & set(casts) == (weights if quant == "none" else set())
    for name, entry in casts.items():
        assert run.entries[entry]["size"] == 2 * numel(shapes[name])


def test_layers_that_were_replaced_while_building_are_gone(recorded):
    # given quantized layers, which litgpt builds twice and whose parameters know their module
    run = recorded(quant="bnb.nf4", precision="bf16-mixed")

    # then at the first step nothing of a weight's size stays of it
    at = run.mark("step 0 forward")
    left = [run.entries[row]["size"] for row in run.live_before(at) if run.labels[row]["category"] == "temporaries"]
    assert max(left, default=0) < 1024
    assert run.memprof["made_by"]["implied_frees"] == 0


def test_dequantized_copies_are_named(recorded, shapes):
    # given
    run = recorded(quant="bnb.nf4", precision="32-true")
    copies = [(label, entry) for entry, label in run.labels.items() if label["category"] == "dequantized"]
    layers = {name for name in shapes if is_quantized(name)}

    # then each layer's weight is rebuilt forward; backward too, but for what no gradient has to pass
    forward = {label["parameter"] for label, _ in copies if label["finer"] == "forward"}
    backward = {label["parameter"] for label, _ in copies if label["finer"] == "backward"}
    assert forward == layers
    assert backward <= layers
    assert "lm_head.linear.weight" in backward
    for label, entry in copies:
        assert run.entries[entry]["size"] == 4 * numel(shapes[label["parameter"]])
        assert label["module"] == label["parameter"].removesuffix(".weight")


def test_backward_knows_the_forward_module(recorded):
    run = recorded(quant="none", precision="32-true")
    flowing = [
        label["module"]
        for label in run.labels.values()
        if label["category"] == "gradients" and label["finer"] == "activation"
    ]
    assert {"lm_head.linear", "transformer.h.5.mlp.fc.linear", "transformer.ln_f"} <= set(flowing)


def test_pythia_70m_base_weights(tmp_path, read):
    # given the model of the report, at a length that takes a moment only
    from memprof.capture import capture
    from memprof.recipes.lit_gpt_2023 import LitGpt2023

    path = tmp_path / "run.pickle"

    # when
    capture(LitGpt2023(model="pythia-70m", precision="32-true", seq=4, steps=1), output=path, device="cpu")

    # then
    run = read(path)
    assert run.bytes(run.mark("step 0 forward"), "weights", "base") == 281_706_496
