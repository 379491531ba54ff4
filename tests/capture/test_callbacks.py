"""Trainers of other packages, recorded by callbacks and by nothing but `memprof.record`."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import memprof  # noqa: E402 - after the check that torch is there

pytestmark = pytest.mark.torch

ROWS, LENGTH, VOCABULARY = 2, 16, 64


class Texts(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        tokens = torch.randint(0, VOCABULARY, (LENGTH,))
        return {"input_ids": tokens, "labels": tokens.clone(), "attention_mask": torch.ones_like(tokens)}


@pytest.fixture
def trainer(tmp_path):
    """A Trainer of a small Llama with 4-bit weights and LoRA: two optimizer steps of two micro-batches each."""
    transformers = pytest.importorskip("transformers")
    peft = pytest.importorskip("peft")
    pytest.importorskip("bitsandbytes")
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=64, intermediate_size=128, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=2,
    )  # fmt: skip
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path / "model")

    def make(*callbacks):
        quantized = transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4")
        model = transformers.LlamaForCausalLM.from_pretrained(
            tmp_path / "model", quantization_config=quantized, device_map="cpu"
        )
        lora = peft.LoraConfig(r=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
        arguments = transformers.TrainingArguments(
            output_dir=str(tmp_path / "out"), per_device_train_batch_size=ROWS, gradient_accumulation_steps=2,
            max_steps=2, report_to=[], use_cpu=True, save_strategy="no", disable_tqdm=True,
        )  # fmt: skip
        return transformers.Trainer(
            model=peft.get_peft_model(model, lora),
            args=arguments,
            train_dataset=Texts(),
            callbacks=list(callbacks),
        )

    return make


def adapter_bytes(model):
    return sum(parameter.nbytes for parameter in model.parameters() if parameter.requires_grad)


def test_a_hugging_face_trainer(trainer, tmp_path, read):
    # given
    from memprof.capture.callbacks import HuggingFaceCallback

    callback = HuggingFaceCallback(tmp_path / "run.pickle", device="cpu")
    training = trainer(callback)

    # when
    training.train()

    # then there is one step for each of the optimizer's
    assert callback.result.status == "ok"
    run = read(tmp_path / "run.pickle")
    marks = [mark["name"] for mark in run.memprof["marks"] if mark["name"].endswith(("forward", "optimizer"))]
    assert marks == [f"step {step} {name}" for step in (0, 1) for name in ("forward", "forward", "optimizer")]
    assert run.bytes(run.end, "optimizer_state", "exp_avg") == adapter_bytes(training.model)
    assert {label["category"] for label in run.labels.values()}.isdisjoint({"unknown"})


def test_a_hugging_face_trainer_that_knows_nothing_of_it(trainer, tmp_path, read):
    # given everything built inside, as by an unmodified script
    with memprof.record(tmp_path / "run.pickle", device="cpu"):
        training = trainer()
        training.train()

    # then
    run = read(tmp_path / "run.pickle")
    at = run.mark("step 0 backward")
    assert run.bytes(at, "weights", "adapter") == adapter_bytes(training.model)
    # query, key, value, projection and three of the MLP, half a byte a weight
    assert run.bytes(at, "weights", "quantized") == (64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 128) // 2
    # tokens and labels; the loss shifts the labels in a copy of its own
    assert run.bytes(at, "inputs") >= 8 * ROWS * LENGTH * 2
    assert run.bytes(run.mark("step 1 optimizer"), "gradients", "parameter") == adapter_bytes(training.model)
    assert {label["category"] for label in run.labels.values()}.isdisjoint({"unknown"})


def test_a_lightning_trainer(tmp_path, read):
    # given
    lightning = pytest.importorskip("lightning.pytorch")
    from memprof.capture.callbacks import LightningCallback

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
            self.trouble = False

        def training_step(self, batch, index):
            if self.trouble:
                raise ValueError("in the middle")
            return torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters())

    def fit(module, callback):
        data = torch.utils.data.TensorDataset(torch.randn(32, 64), torch.randint(0, 10, (32,)))
        trainer = lightning.Trainer(
            max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False, callbacks=[callback],
        )  # fmt: skip
        trainer.fit(module, torch.utils.data.DataLoader(data, batch_size=16))

    # when
    module, callback = Module(), LightningCallback(tmp_path / "run.pickle", device="cpu")
    fit(module, callback)

    # then a step is a batch, also where the optimizer runs forward and backward
    run = read(tmp_path / "run.pickle")
    parameters = sum(parameter.nbytes for parameter in module.parameters())
    at = run.mark("step 1 backward")
    assert run.bytes(at, "optimizer_state", "exp_avg") == parameters
    # relu saves its result, the loss the logarithms of the probabilities and a number
    assert run.bytes(at, "activations", "saved") == 4 * 16 * (256 + 10) + 4
    assert {label["category"] for label in run.labels.values()}.isdisjoint({"unknown"})

    # and after an error nothing is left switched on
    module.trouble = True
    failing = LightningCallback(tmp_path / "failed.pickle", device="cpu")
    with pytest.raises(ValueError, match="in the middle"):
        fit(module, failing)
    assert failing.result is None
    assert not (tmp_path / "failed.pickle").exists()
    with memprof.record(tmp_path / "next.pickle", device="cpu"):
        pass


def test_a_loop_of_fabrics(tmp_path, read):
    fabric_of = pytest.importorskip("lightning.fabric")
    from memprof.capture.callbacks import FabricCallback

    # given
    callback = FabricCallback(tmp_path / "run.pickle", device="cpu")
    fabric = fabric_of.Fabric(accelerator="cpu", devices=1, callbacks=[callback])
    model = torch.nn.Linear(16, 16)
    model, optimizer = fabric.setup(model, torch.optim.AdamW(model.parameters()))

    # when
    fabric.call("on_train_start")
    for _ in range(2):
        loss = model(torch.randn(4, 16)).square().mean()
        fabric.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        fabric.call("on_train_batch_end", loss=loss)
    fabric.call("on_train_end")

    # then
    assert callback.result.status == "ok"
    run = read(tmp_path / "run.pickle")
    marks = [mark["name"] for mark in run.memprof["marks"]]
    assert [name for name in marks if name.endswith("optimizer")] == ["step 0 optimizer", "step 1 optimizer"]
    assert run.bytes(run.mark("step 1 optimizer"), "gradients", "parameter") == 4 * (16 * 16 + 16)
    assert {label["category"] for label in run.labels.values()}.isdisjoint({"unknown"})
