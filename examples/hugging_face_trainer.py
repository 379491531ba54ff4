"""QLoRA with transformers' Trainer, peft and bitsandbytes. Nothing in it knows of memprof.

memprof run -o run.pickle examples/hugging_face_trainer.py
"""

import argparse
import tempfile

import torch
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from torch.utils.data import Dataset
from transformers import (
    AutoModelForCausalLM,
    BitsAndBytesConfig,
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainingArguments,
)

parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int, default=1024)
parser.add_argument("--layers", type=int, default=8)
parser.add_argument("--tokens", type=int, default=512)
parser.add_argument("--batch", type=int, default=4)
parser.add_argument("--steps", type=int, default=3)
args = parser.parse_args()
torch.manual_seed(0)
gpu = torch.cuda.is_available()

# A model with random weights stands in for one from a hub.
config = LlamaConfig(
    vocab_size=8000,
    hidden_size=args.width,
    intermediate_size=3 * args.width,
    num_hidden_layers=args.layers,
    num_attention_heads=args.width // 64,
)
folder = tempfile.TemporaryDirectory()
LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder.name)

model = AutoModelForCausalLM.from_pretrained(
    folder.name,
    quantization_config=BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    ),
    device_map={"": 0} if gpu else {"": "cpu"},
)
model = prepare_model_for_kbit_training(model, gradient_checkpointing_kwargs={"use_reentrant": False})
model = get_peft_model(
    model,
    LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"),
)


class Tokens(Dataset):
    def __len__(self):
        return args.batch * args.steps * 2

    def __getitem__(self, row):
        tokens = torch.randint(0, config.vocab_size, (args.tokens,), generator=torch.Generator().manual_seed(row))
        return {"input_ids": tokens, "labels": tokens}


with tempfile.TemporaryDirectory() as output:
    trainer = Trainer(
        model=model,
        train_dataset=Tokens(),
        args=TrainingArguments(
            output_dir=output,
            per_device_train_batch_size=args.batch,
            gradient_accumulation_steps=2,
            max_steps=args.steps,
            bf16=True,
            use_cpu=not gpu,
            optim="paged_adamw_8bit" if gpu else "adamw_torch",
            gradient_checkpointing=True,
            gradient_checkpointing_kwargs={"use_reentrant": False},
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        ),
    )
    print(f"loss {trainer.train().training_loss:.3f}")
