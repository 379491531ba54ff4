"""peft#1514: TinyLlama, 2 samples, bf16: LoRA on every layer against all weights, over the length."""

# ruff: noqa: INP001 - a script
import sys

from models import ALL, adapt, build, say, train

kind, seq = sys.argv[1], int(sys.argv[2])  # lora, full
model = build("tiny-llama-1.1b").cuda()
if kind != "full":
    model = adapt(model, [*ALL, "lm_head"] if kind == "lora" else ["q_proj", "v_proj"], r=64 if kind == "lora" else 8)
train(model, 2, 2, seq)
say()
