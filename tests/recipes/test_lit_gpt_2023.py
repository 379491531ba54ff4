from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("litgpt")

from memprof.capture.observer import Observer  # noqa: E402 - after the check that torch is there
from memprof.errors import CaptureError, InputError, UsageError  # noqa: E402
from memprof.recipes.lit_gpt_2023 import LitGpt2023  # noqa: E402

pytestmark = pytest.mark.torch

CPU = torch.device("cpu")


class Diary(Observer):
    """Writes down what a recipe tells."""

    def __init__(self):
        self.steps = []
        super().__init__(self.steps.append)
        self.phases = []
        self.seen = []

    def phase(self, name, step):
        self.phases.append((name, step))
        return super().phase(name, step)

    def see(self, category, finer, tensors, name=""):
        self.seen += [(category, finer, tuple(tensor.shape), tensor.dtype) for tensor in tensors]


def small(**options):
    return LitGpt2023(**{"model": "pythia-14m", "seq": 16, "precision": "32-true", **options})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model": "pythia-70"}, ["--model pythia-70", "did you mean", "pythia-70m"]),
        ({"quant": "bnb.nf5"}, ["--quant bnb.nf5", "did you mean bnb.nf4?"]),
        ({"precision": "16"}, ["--precision 16", "16-mixed"]),
        ({"optimizer": "adam"}, ["--optimizer adam", "adamw"]),
        ({"mbs": 0}, ["--mbs 0", "at least 1"]),
        ({"cycles": 0}, ["--cycles 0", "at least 1"]),
        ({"seq": 1}, ["--seq 1", "at least 2"]),
        ({"seq": 4096}, ["--seq 4096", "block size of 512"]),
        ({"lm_head_chunk_size": -1}, ["--lm-head-chunk-size -1"]),
        ({"lora_dropout": 1.0}, ["--lora-dropout 1.0"]),
        ({"lora_r": 0}, ["nothing would be trained"]),
        ({"lora_query": False, "lora_value": False}, ["nothing would be trained"]),
        ({"data": "alpaca.json"}, ["--data alpaca.json", "--tokenizer-dir"]),
    ],
)
def test_a_wrong_value_is_one_line_that_says_what_to_do(options, words):
    with pytest.raises(UsageError) as caught:
        small(**options)
    message = str(caught.value)
    assert "\n" not in message
    assert all(word in message for word in words)


def test_bitsandbytes_optimizers_need_cuda():
    with pytest.raises(UsageError, match="--optimizer paged-adamw: bitsandbytes has it for CUDA only"):
        small(optimizer="paged-adamw").check(CPU)


def test_a_model_that_the_host_cannot_hold(monkeypatch):
    # given 1 MB of memory
    monkeypatch.setattr("memprof.recipes.lit_gpt_2023.available_memory", lambda: 1_000_000)
    with pytest.raises(CaptureError, match=r"weights need 0\.1 GB of host memory and 0\.0 GB are available"):
        small().check(CPU)
    monkeypatch.setattr("memprof.recipes.lit_gpt_2023.available_memory", lambda: None)
    small().check(CPU)


def test_settings_are_plain_and_without_directories(checkpoint):
    settings = small(checkpoint_dir=str(checkpoint)).settings()
    assert json.loads(json.dumps(settings)) == settings
    assert settings["checkpoint_dir"] == checkpoint.name


def test_phases_of_two_cycles_of_two_steps():
    # when
    diary = Diary()
    small(cycles=2).run(CPU, diary)

    # then the second and the fourth step end in the optimizer
    accumulating = ["between", "forward", "backward", "between"]
    stepping = ["between", "forward", "backward", "optimizer", "between"]
    expected = [("init", -1)]
    for step, names in enumerate([accumulating, stepping] * 2):
        expected += [(name, step) for name in names]
    assert diary.phases == expected
    assert diary.steps == [0, 1, 2, 3]


@pytest.mark.parametrize(("chunk", "lengths"), [(8, [8, 8]), (0, [16])])
def test_logits_come_in_chunks(chunk, lengths):
    diary = Diary()
    small(lm_head_chunk_size=chunk, steps=1).run(CPU, diary)
    assert [shape for category, finer, shape, _ in diary.seen if finer == "logits"] == [
        (1, length, 50304) for length in lengths
    ]


@pytest.mark.parametrize(
    ("precision", "weights", "logits"),
    [
        ("32-true", torch.float32, torch.float32),
        ("bf16-true", torch.bfloat16, torch.bfloat16),
        ("16-true", torch.float16, torch.float16),
        ("bf16-mixed", torch.float32, torch.bfloat16),
        ("16-mixed", torch.float32, torch.float16),
    ],
)
def test_precisions(precision, weights, logits):
    diary = Diary()
    model, _, scaler, *_ = small(precision=precision, steps=1).run(CPU, diary)
    assert {parameter.dtype for parameter in model.parameters()} == {weights}
    assert {dtype for _, finer, _, dtype in diary.seen if finer == "logits"} == {logits}
    assert (scaler is not None) == (precision == "16-mixed")
    assert torch.get_default_dtype() == torch.float32


@pytest.mark.parametrize("quant", ["bnb.nf4", "bnb.nf4-dq", "bnb.fp4", "bnb.fp4-dq", "bnb.int8-training"])
def test_quantized_layers_are_bitsandbytes_own(quant):
    bitsandbytes = pytest.importorskip("bitsandbytes")
    plain = torch.nn.Linear

    # when
    model, *_ = small(quant=quant, steps=1).run(CPU, Diary())

    # then
    layer = model.transformer.h[0].mlp.fc.linear
    if quant == "bnb.int8-training":
        assert isinstance(layer, bitsandbytes.nn.Linear8bitLt)
        assert layer.state.has_fp16_weights
    else:
        assert isinstance(layer, bitsandbytes.nn.Linear4bit)
        assert layer.weight.quant_type == quant[4:7]
        assert layer.weight.quant_state.nested == quant.endswith("-dq")
    assert torch.nn.Linear is plain


def test_sgd_has_no_state():
    _, optimizer, *_ = small(optimizer="sgd").run(CPU, Diary())
    assert isinstance(optimizer, torch.optim.SGD)
    assert all(value is None for state in optimizer.state.values() for value in state.values())


def test_the_run_is_the_same_every_time():
    losses = {small().run(CPU, Diary())[-1].item() for _ in range(2)}
    assert len(losses) == 1


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A checkpoint directory of the small model, with weights that no random run has."""
    from litgpt import GPT, Config
    from litgpt.utils import save_config

    directory = tmp_path_factory.mktemp("checkpoints") / "tiny"
    directory.mkdir()
    config = Config.from_name("pythia-14m", n_layer=1)
    model = GPT(config)
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            parameter.fill_(0.001 * (number + 1))
    torch.save({"model": model.state_dict()}, directory / "lit_model.pth")
    save_config(config, directory)
    return directory


def test_a_checkpoint_brings_its_configuration_and_weights(checkpoint):
    # when
    model, *_ = small(checkpoint_dir=str(checkpoint), steps=1).run(CPU, Diary())

    # then
    saved = torch.load(checkpoint / "lit_model.pth")["model"]
    assert len(model.transformer.h) == 1
    assert torch.equal(model.lm_head.linear.weight, saved["lm_head.weight"])
    assert torch.equal(model.transformer.h[0].attn.qkv.linear.weight, saved["transformer.h.0.attn.qkv.weight"])


def test_a_checkpoint_of_another_model(checkpoint, tmp_path):
    # given a file whose tensors have other names, and no configuration beside it
    torch.save({"model": {"something.else": torch.zeros(1)}}, tmp_path / "lit_model.pth")
    with pytest.raises(InputError, match=r"lit_model\.pth is not of this model .* such as"):
        small(checkpoint_dir=str(tmp_path)).run(CPU, Diary())


def test_a_checkpoint_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match=r"--checkpoint-dir .*nowhere: has no lit_model\.pth"):
        small(checkpoint_dir=str(tmp_path / "nowhere"))


def test_a_broken_checkpoint(tmp_path):
    (tmp_path / "lit_model.pth").write_bytes(b"not a checkpoint")
    with pytest.raises(InputError, match=r"cannot load lit_model\.pth"):
        small(checkpoint_dir=str(tmp_path)).run(CPU, Diary())


@pytest.fixture(scope="module")
def tokenizer_dir(tmp_path_factory):
    """A tokenizer of whole words, trained on what the samples say."""
    tokenizers = pytest.importorskip("tokenizers")
    directory = tmp_path_factory.mktemp("tokenizer")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    trainer = tokenizers.trainers.WordLevelTrainer(special_tokens=["[UNK]", "<|endoftext|>"])
    tokenizer.train_from_iterator(["name three colours red green blue"], trainer)
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(
        json.dumps({"eos_token": "<|endoftext|>", "tokenizer_class": "PreTrainedTokenizerFast"})
    )
    return directory


def test_data_puts_the_longest_sample_first_and_pads(tokenizer_dir, tmp_path):
    # given a short and a long sample
    path = tmp_path / "alpaca.json"
    short = {"instruction": "name colours", "input": "", "output": "red"}
    long = {"instruction": "name three colours", "input": "", "output": "red green blue " * 4}
    path.write_text(json.dumps([short, long]))

    # when a batch holds both
    diary = Diary()
    result = small(data=str(path), tokenizer_dir=str(tokenizer_dir), mbs=2, seq=256, steps=1).run(CPU, diary)

    # then
    tokens, targets = result[3], result[4]
    assert tokens.shape == targets.shape
    assert tokens.shape[0] == 2
    assert (targets[0] != -100).all()
    assert (targets[1] == -100).sum() == (tokens.shape[1] - (targets[1] != -100).sum())
    assert (targets[1] == -100).sum() >= 10  # nine words fewer to answer and one to ask

    # and it is cut at --seq
    assert small(data=str(path), tokenizer_dir=str(tokenizer_dir), seq=20, steps=1).run(CPU, diary)[3].shape == (1, 20)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[]", "not in Alpaca's format"),
        ('[{"instruction": "a"}]', "not in Alpaca's format"),
        ('{"instruction": "a", "output": "b"}', "not in Alpaca's format"),
    ],
)
def test_data_that_is_not_alpaca(tokenizer_dir, tmp_path, text, message):
    path = tmp_path / "alpaca.json"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        small(data=str(path), tokenizer_dir=str(tokenizer_dir)).run(CPU, Diary())


def test_data_and_tokenizer_that_are_not_there(tokenizer_dir, tmp_path):
    with pytest.raises(InputError, match="No such file"):
        small(data=str(tmp_path / "no.json"), tokenizer_dir=str(tokenizer_dir)).run(CPU, Diary())
    path = tmp_path / "alpaca.json"
    path.write_text('[{"instruction": "a", "output": "b"}]')
    with pytest.raises(InputError, match="give --tokenizer-dir"):
        small(data=str(path), tokenizer_dir=str(tmp_path / "nowhere")).run(CPU, Diary())
