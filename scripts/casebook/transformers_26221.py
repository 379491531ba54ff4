"""transformers#26221, LlamaFactory#9126: gradient checkpointing is on and changes nothing: the model is in eval()."""

# ruff: noqa: INP001 - a script
import sys

from models import adapt, build, say, train

kind = sys.argv[1]  # none, on, eval
model = build("small").cuda()
model = adapt(model, ["q_proj", "v_proj"])
if kind != "none":
    model.gradient_checkpointing_enable({"use_reentrant": False})
    model.enable_input_require_grads()
model.train(kind != "eval")
train(model, 2, 8, 512)
say()
