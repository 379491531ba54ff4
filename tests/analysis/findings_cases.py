"""Runs on the CPU, and what each of them has to the byte; nothing else may be found in it."""

from __future__ import annotations

import findings_runs as runs
import peft
import torch
from findings_runs import MBS, TOKENS, WIDTH, Loop, plain, quantized

from memprof.recipes.frozen_weights import halve_frozen

HALF, FULL = 2, 4
BLOCKS = 3
WIDE = 2048
HIDDEN = MBS * TOKENS * 4 * WIDTH
"""Elements between a block's two linear layers."""
STREAM = MBS * TOKENS * WIDTH
LOGITS = MBS * TOKENS * WIDE
MATRICES = BLOCKS * 2 * 4 * WIDTH * WIDTH
"""Elements of the blocks' linear weights."""
BF16 = torch.bfloat16
CHECKPOINTING = {"gradient_checkpointing": True}


def prepared(make):
    """The model after peft's prepare_model_for_kbit_training, with its adapter trained again."""

    def prepare():
        model = make()
        model.is_loaded_in_8bit = False  # what peft asks a transformers model
        model = peft.prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
        model.adapter.requires_grad_(requires_grad=True)
        return model

    return prepare


def freeze_blocks(model, step):
    if step == 2:
        for parameter in model.blocks.parameters():
            parameter.requires_grad_(requires_grad=False)
            parameter.grad = None


def adam_states(*shapes):
    """Bytes of Adam's two moments and its step count, for parameters of so many elements."""
    return sum(2 * FULL * elements + FULL for elements in shapes)


def resumed_adam(trained):
    """Adam with the state of a run before, as `load_state_dict` brings it."""
    state = {
        number: {"step": torch.tensor(1.0), "exp_avg": torch.zeros_like(each), "exp_avg_sq": torch.zeros_like(each)}
        for number, each in enumerate(trained)
    }
    optimizer = torch.optim.Adam(trained)
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
    return optimizer


def half_frozen():
    """A model whose frozen linear weights are in half precision."""
    model = plain(freeze=True)()
    halve_frozen(model, BF16)
    return model


def half_quantized():
    """A model whose blocks have one 4-bit linear layer, and one that was left out."""
    from bitsandbytes.nn import Linear4bit

    return runs.Model(
        up=lambda: Linear4bit(WIDTH, 4 * WIDTH, compute_dtype=BF16, quant_type="nf4"),
        down=lambda: torch.nn.Linear(4 * WIDTH, WIDTH, dtype=BF16),
        dtype=BF16,
    ).freeze()


BLOCK_PARAMETERS = BLOCKS * [WIDTH, WIDTH, 4 * WIDTH * WIDTH, 4 * WIDTH, 4 * WIDTH * WIDTH, WIDTH]
OTHER_PARAMETERS = [runs.VOCABULARY * WIDTH, WIDTH * WIDTH, WIDTH]

CASES = {
    "float32, everything trained": (Loop(model=plain()), {}),
    "bf16, everything trained": (Loop(model=plain(dtype=BF16)), {}),
    "autocast, everything trained": (Loop(model=plain(), autocast=BF16), {}),
    "autocast, frozen weights": (
        Loop(model=plain(freeze=True), autocast=BF16),
        {"frozen-weight-casts": HALF * MATRICES},
    ),
    "nf4 under autocast": (
        Loop(model=quantized(), autocast=BF16),
        {"quantized-output-float32": (FULL - HALF) * BLOCKS * HIDDEN},
    ),
    "nf4 under autocast, cast first": (Loop(model=quantized(runs.casting_linear), autocast=BF16), {}),
    "autocast, frozen weights in half": (Loop(model=half_frozen, autocast=BF16), {}),
    "nf4 in bf16": (Loop(model=quantized(dtype=BF16)), {}),
    "nf4 in float32": (Loop(model=quantized(compute=torch.float32)), {}),
    "nf4, prepared by peft": (
        Loop(model=prepared(quantized(dtype=BF16, wide=WIDE))),
        {
            "logits-dominate": 4 * FULL * LOGITS,
            # The embedding, the output layer with its bias, and the norms' weights and biases.
            "weights-float32": (FULL - HALF) * (2 * WIDE * WIDTH + WIDE + BLOCKS * 2 * WIDTH),
            "quantized-output-float32": (FULL - HALF) * BLOCKS * HIDDEN,
        },
    ),
    "bf16 without quantization, prepared by peft": (
        Loop(model=prepared(plain(dtype=BF16))),
        {"weights-float32": (FULL - HALF) * (sum(BLOCK_PARAMETERS) + runs.VOCABULARY * WIDTH)},
    ),
    "product with a dequantized weight": (
        Loop(model=quantized(runs.dequantizing_linear, dtype=BF16)),
        {"dequantized-weights-kept": HALF * MATRICES},
    ),
    "nf4 layers that keep their input": (
        Loop(model=quantized(runs.input_keeping_linear), autocast=BF16),
        {
            "quantized-inputs-kept": HALF * BLOCKS * (STREAM + HIDDEN),
            "quantized-output-float32": (FULL - HALF) * BLOCKS * HIDDEN,
        },
    ),
    "nf4 layers that keep their input as it comes": (
        Loop(model=quantized(runs.input_keeping_linear, compute=torch.float32)),
        {"quantized-inputs-kept": FULL * BLOCKS * (STREAM + HIDDEN)},
    ),
    "dropout": (Loop(model=plain(dropout=0.1)), {"dropout-masks": FULL * BLOCKS * HIDDEN}),
    "dropout, eval()": (Loop(model=plain(dropout=0.1), mode="eval"), {}),
    "large vocabulary": (Loop(model=plain(wide=WIDE)), {"logits-dominate": 4 * FULL * LOGITS}),
    "large vocabulary, logits.float()": (
        Loop(model=plain(wide=WIDE, dtype=BF16, upcast=True)),
        {"logits-dominate": 4 * FULL * LOGITS, "logits-copied": FULL * LOGITS},
    ),
    "Adam": (
        Loop(model=plain(), optimizer=torch.optim.Adam, steps=3),
        {"first-step-differs": adam_states(*BLOCK_PARAMETERS, *OTHER_PARAMETERS)},
    ),
    "Adam, blocks frozen later": (
        Loop(model=plain(), optimizer=torch.optim.Adam, steps=4, between=freeze_blocks),
        {
            "first-step-differs": adam_states(*BLOCK_PARAMETERS, *OTHER_PARAMETERS),
            "frozen-optimizer-state": adam_states(*BLOCK_PARAMETERS),
        },
    ),
    "outputs collected": (Loop(model=plain(), keep="outputs", steps=4), {"grows-every-step": 3 * FULL * STREAM}),
    "outputs of two steps kept": (Loop(model=plain(), keep="two", steps=5), {"held-after-backward": 2 * FULL * STREAM}),
    "previous output alive": (
        Loop(model=plain(), keep="previous", steps=4),
        {"held-after-backward": FULL * STREAM + FULL},
    ),
    "checkpointing": (Loop(model=plain(checkpoint="by hooks"), config=CHECKPOINTING), {}),
    "reentrant checkpointing": (Loop(model=plain(checkpoint="reentrant"), config=CHECKPOINTING), {}),
    "checkpointing, eval()": (
        Loop(model=plain(checkpoint="by hooks"), mode="eval", config=CHECKPOINTING),
        {
            # The adapter's input; in each block the inputs of both linear layers and of gelu, and a norm's two numbers
            # a row. The residual stream itself is the model's own, and checkpointing keeps it.
            "checkpointing-not-working": FULL * (STREAM + BLOCKS * (2 * HIDDEN + STREAM + 2 * MBS * TOKENS)),
        },
    ),
    "evaluation collects": (
        Loop(model=plain(), evaluate=100),
        # A hundred outputs, what the last block is at, and the last batch.
        {"evaluation-larger": FULL * (100 * STREAM + 2 * HIDDEN) + 8 * MBS * TOKENS},
    ),
    "Adam, resumed": (
        Loop(model=plain(), optimizer=resumed_adam, steps=3),
        {"optimizer-state-before-forward": adam_states(*BLOCK_PARAMETERS, *OTHER_PARAMETERS)},
    ),
    "nf4 in every other linear layer": (
        Loop(model=half_quantized),
        # 2 bytes a weight instead of half a byte and 4 bytes for each 64 of them.
        {"linears-not-quantized": BLOCKS * 4 * WIDTH * WIDTH * 2 - BLOCKS * 4 * WIDTH * WIDTH * 9 // 16},
    ),
    "small evaluation": (Loop(model=plain(), evaluate=1), {}),
}
