"""Today's litgpt and Hugging Face, on the CPU."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("litgpt")

from memprof.capture.observer import Observer  # noqa: E402 - after the check that torch is there
from memprof.errors import UsageError  # noqa: E402
from memprof.recipes.huggingface import HuggingFace  # noqa: E402
from memprof.recipes.lit_gpt_2023 import LitGpt2023  # noqa: E402
from memprof.recipes.litgpt import LitGpt, _stable_embedding  # noqa: E402

pytestmark = pytest.mark.torch

CPU = torch.device("cpu")
SMALL = {"model": "pythia-14m", "seq": 24, "precision": "32-true"}


class Diary(Observer):
    """Writes down phases and logits."""

    def __init__(self):
        super().__init__(lambda step: None)
        self.phases = []
        self.logits = []

    def phase(self, name, step):
        self.phases.append((name, step))
        return super().phase(name, step)

    def see(self, category, finer, tensors, name=""):
        if finer == "logits":
            self.logits += [(tuple(tensor.shape), tensor.dtype) for tensor in tensors]


def run(recipe, **options):
    diary = Diary()
    alive = recipe(**{**SMALL, **options}).run(CPU, diary)
    return alive[0], diary, alive[-1].item()


@pytest.mark.parametrize("recipe", [LitGpt, HuggingFace])
def test_phases_are_those_of_the_other_recipe(recipe):
    _, expected, _ = run(LitGpt2023)
    _, diary, _ = run(recipe)
    assert diary.phases == expected.phases


def test_litgpt_is_the_same_model_with_the_same_loss():
    _, _, expected = run(LitGpt2023, steps=1)
    model, diary, loss = run(LitGpt, steps=1)
    assert loss == pytest.approx(expected, rel=1e-5)
    assert {name for name, p in model.named_parameters() if p.requires_grad}
    assert all("lora_" in name for name, p in model.named_parameters() if p.requires_grad)
    assert [shape for shape, _ in diary.logits] == [(1, 24, 50304)]


def test_fabric_makes_logits_float32_in_bf16_true():
    _, diary, _ = run(LitGpt, precision="bf16-true", steps=1)
    assert [dtype for _, dtype in diary.logits] == [torch.float32]
    _, diary, _ = run(LitGpt2023, precision="bf16-true", steps=1)
    assert [dtype for _, dtype in diary.logits] == [torch.bfloat16]


def test_the_stable_embedding_is_not_frozen():
    pytest.importorskip("bitsandbytes")
    model, *_ = run(LitGpt, steps=1)
    _stable_embedding(model)
    trained = [name for name, p in model.named_parameters() if p.requires_grad and "lora_" not in name]
    assert sorted(name.rpartition("wte.")[2] for name in trained) == ["norm.bias", "norm.weight", "weight"]


@pytest.mark.parametrize("quant", ["none", "bnb.nf4"])
def test_huggingface_trains_its_adapters_only(quant):
    pytest.importorskip("bitsandbytes")
    model, diary, _ = run(HuggingFace, quant=quant, steps=1)
    trained = {
        name.rpartition(".lora_")[0].rpartition(".")[2] for name, p in model.named_parameters() if p.requires_grad
    }
    assert trained == {"query_key_value"}
    assert [shape for shape, _ in diary.logits] == [(1, 24, 50304)]
    kinds = {type(module).__name__ for module in model.modules()}
    assert ("Linear4bit" in kinds) is (quant != "none")


@pytest.mark.parametrize(("prepare", "dtype"), [(False, torch.bfloat16), (True, torch.float32)])
def test_preparing_makes_norms_float32(prepare, dtype):
    model, *_ = run(HuggingFace, precision="bf16-true", quant="bnb.nf4", prepare_kbit=prepare, steps=1)
    norms = {p.dtype for name, p in model.named_parameters() if "layernorm" in name}
    assert norms == {dtype}


def test_checkpointing_is_on_where_it_is_asked_for():
    model, *_ = run(HuggingFace, gradient_checkpointing=True, steps=1)
    assert model.base_model.model.is_gradient_checkpointing
    model, *_ = run(HuggingFace, steps=1)
    assert not model.base_model.model.is_gradient_checkpointing


def test_a_checkpoint_directory_is_loaded(tmp_path):
    from memprof.recipes.huggingface_models import save_random_checkpoint

    # given a checkpoint whose final norm has weights that no random model has
    settings = HuggingFace(**SMALL)
    save_random_checkpoint(settings, str(tmp_path), torch.float32)
    from safetensors.torch import load_file, save_file

    state = load_file(tmp_path / "model.safetensors")
    state["gpt_neox.final_layer_norm.weight"].fill_(0.25)
    save_file(state, tmp_path / "model.safetensors", metadata={"format": "pt"})
    # when
    model, *_ = run(HuggingFace, checkpoint_dir=str(tmp_path), steps=1)
    # then
    assert (model.base_model.model.gpt_neox.final_layer_norm.weight == 0.25).all()


@pytest.mark.parametrize(
    ("recipe", "options", "words"),
    [
        (LitGpt, {"quant": "bnb.nf4", "precision": "16-mixed"}, ["--precision 16-mixed", "bf16-true"]),
        (LitGpt, {"quant": "bnb.int8-training", "precision": "bf16-true"}, ["16-true only"]),
        (LitGpt, {"optimizer": "sgd"}, ["--optimizer sgd", "paged-adamw"]),
        (LitGpt, {"seq": 4096}, ["block size of 512"]),
        (LitGpt, {"mbs": 0}, ["--mbs 0", "at least 1"]),
        (HuggingFace, {"model": "gemma-2b"}, ["--model gemma-2b", "Llama models only"]),
        (HuggingFace, {"quant": "bnb.nf5"}, ["did you mean bnb.nf4?"]),
        (HuggingFace, {"lora_query": False, "lora_value": False}, ["nothing would be trained"]),
    ],
)
def test_a_wrong_value_is_one_line_that_says_what_to_do(recipe, options, words):
    with pytest.raises(UsageError) as caught:
        recipe(**{**SMALL, **options})
    assert "\n" not in str(caught.value)
    assert all(word in str(caught.value) for word in words)


def test_quantized_litgpt_needs_cuda():
    with pytest.raises(UsageError, match="run on CUDA only"):
        LitGpt(**{**SMALL, "precision": "bf16-true", "quant": "bnb.nf4"}).check(CPU)


@pytest.mark.parametrize("recipe", [LitGpt, HuggingFace])
def test_every_weight_is_labelled_as_one(recipe, tmp_path):
    # given a capture
    from memprof.analysis.account import open_account
    from memprof.capture import capture
    from memprof.categories.category import Category
    from memprof.trace import load

    config = recipe(**{**SMALL, "steps": 1})
    capture(config, output=tmp_path / "run.pickle", device="cpu")
    trace = load(tmp_path / "run.pickle")
    account = open_account(trace, trace.devices[0])
    # when
    rows = account.replay.allocations.live_at(account.replay.peak_event)
    held = rows[account.classification.category[rows] == Category.WEIGHTS.code]
    found = int(account.replay.allocations.requested[held].sum())
    # then its weights are those of a model built anew, but for small tensors that safetensors leaves in the file
    model, *_ = run(recipe, steps=1)
    expected = sum(p.numel() * p.element_size() for p in model.parameters())
    assert found == pytest.approx(expected, rel=0.001)
