"""Finetuning with transformers, peft and bitsandbytes as their documents show it: nothing in it knows of memprof."""

# ruff: noqa: T201  # scripts print

import argparse

import torch
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    BitsAndBytesConfig,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainingArguments,
)

parser = argparse.ArgumentParser()
parser.add_argument("--model", required=True)
parser.add_argument("--batch", type=int, default=4)
args = parser.parse_args()

tokenizer = AutoTokenizer.from_pretrained(args.model)
model = AutoModelForCausalLM.from_pretrained(
    args.model,
    quantization_config=BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.float16,
    ),
    device_map={"": 0},
)
model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=True)
model = get_peft_model(
    model, LoraConfig(r=8, lora_alpha=16, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
)
model.print_trainable_parameters()

text = "below is an instruction that describes a task write a response " * 20
dataset = [tokenizer(text, truncation=True, max_length=128) for _ in range(32)]
trainer = Trainer(
    model=model,
    train_dataset=dataset,
    data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
    args=TrainingArguments(
        output_dir="out",
        per_device_train_batch_size=args.batch,
        gradient_accumulation_steps=2,
        fp16=True,
        optim="paged_adamw_8bit",
        max_steps=3,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        dataloader_num_workers=2,
    ),
)
trainer.train()
print("peak", torch.cuda.max_memory_allocated())
