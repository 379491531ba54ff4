# ruff: noqa: INP001  # a script, not a package
"""Training and inference of many kinds, each small enough for seconds: what the simulation is checked on.

    python scripts/wider_runs.py CASE OUTPUT.json.gz

Runs on the ``cuda`` device that is there and writes the allocator's figures, and all that it was asked for.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812  # the name that everybody gives it
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

sys.path.insert(0, str(Path(__file__).parent))
from recorded_events import events_of, write_events

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CASES", "run"]

CASES: dict[str, Callable[[], None]] = {}


def case(function: Callable[[], None]) -> Callable[[], None]:
    """Register a case under its function's name."""
    CASES[function.__name__] = function
    return function


def run(name: str) -> None:
    """Run one case with a fixed seed."""
    torch.manual_seed(0)
    CASES[name]()


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loss_of: Callable[[], torch.Tensor],
    *,
    steps: int = 3,
    accumulate: int = 1,
    autocast: torch.dtype | None = None,
    scaler: bool = False,
    clip: float | None = None,
) -> None:
    """Run some steps of an ordinary loop."""
    scale = torch.amp.GradScaler("cuda", enabled=scaler)
    model.train()
    for step in range(steps * accumulate):
        with torch.autocast("cuda", autocast, enabled=autocast is not None):
            loss = loss_of()
        scale.scale(loss / accumulate).backward()
        if (step + 1) % accumulate == 0:
            if clip is not None:
                scale.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            scale.step(optimizer)
            scale.update()
            optimizer.zero_grad()


class Bottleneck(nn.Module):
    """Residual block of a ResNet-50."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.one, self.norm_one = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
        self.two, self.norm_two = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.three, self.norm_three = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
        self.short = nn.Identity()
        if stride != 1 or inputs != 4 * width:
            self.short = nn.Sequential(nn.Conv2d(inputs, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add what three convolutions make of it."""
        y = F.relu(self.norm_one(self.one(x)), inplace=True)
        y = F.relu(self.norm_two(self.two(y)), inplace=True)
        return F.relu(self.norm_three(self.three(y)) + self.short(x), inplace=True)


def resnet() -> nn.Module:
    """Build a ResNet-50."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
    layers.append(nn.MaxPool2d(3, 2, 1))
    inputs = 64
    for blocks, width, stride in ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2)):
        for index in range(blocks):
            layers.append(Bottleneck(inputs, width, stride if index == 0 else 1))
            inputs = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


def image_loss(model: nn.Module, layout: torch.memory_format = torch.contiguous_format) -> Callable[[], torch.Tensor]:
    """Return the loss of a batch of 16 images."""

    def loss() -> torch.Tensor:
        images = torch.randn(16, 3, 224, 224, device="cuda").contiguous(memory_format=layout)
        return F.cross_entropy(model(images), torch.randint(0, 1000, (16,), device="cuda"))

    return loss


@case
def resnet50_fp32_sgd() -> None:
    """Train a ResNet-50 in float32 with SGD and momentum."""
    model = resnet().cuda()
    train(model, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9), image_loss(model))


@case
def resnet50_amp_channels_last() -> None:
    """Train a ResNet-50 in float16 autocast, channels last."""
    model = resnet().cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    train(model, optimizer, image_loss(model, torch.channels_last), autocast=torch.float16, scaler=True)


def llama(**options: Any) -> nn.Module:
    """Build a small Llama in bfloat16."""
    import transformers

    settings = {
        "vocab_size": 32000,
        "hidden_size": 1024,
        "intermediate_size": 2816,
        "num_hidden_layers": 4,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
    }
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**settings, **options})).to(torch.bfloat16).cuda()


def token_loss(model: nn.Module, batch: int = 4, length: int = 512, vocabulary: int = 1000) -> Callable:
    """Return the language model's loss of a random batch."""

    def loss() -> torch.Tensor:
        tokens = torch.randint(0, vocabulary, (batch, length), device="cuda")
        return model(input_ids=tokens, labels=tokens).loss

    return loss


@case
def llama_full_sgd() -> None:
    """Train all of a Llama with plain SGD."""
    model = llama()
    train(model, torch.optim.SGD(model.parameters(), 0.1), token_loss(model))


@case
def llama_full_adamw_clip() -> None:
    """Train all of a Llama with AdamW and gradient clipping."""
    model = llama()
    train(model, torch.optim.AdamW(model.parameters()), token_loss(model), clip=1.0)


@case
def llama_full_fused_long() -> None:
    """Train all of a Llama with fused AdamW on one long sequence."""
    model = llama()
    train(model, torch.optim.AdamW(model.parameters(), fused=True), token_loss(model, 1, 4096))


@case
def llama_adafactor() -> None:
    """Train all of a Llama with Adafactor."""
    model = llama()
    train(model, torch.optim.Adafactor(model.parameters()), token_loss(model))


@case
def llama_grouped_accumulate() -> None:
    """Train with grouped-query attention and four accumulated batches."""
    model = llama(num_key_value_heads=4)
    train(model, torch.optim.AdamW(model.parameters()), token_loss(model), accumulate=4, steps=2)


@case
def llama_checkpointing() -> None:
    """Train all of a Llama with gradient checkpointing."""
    model = llama()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    train(model, torch.optim.AdamW(model.parameters()), token_loss(model))


@case
def llama_eager() -> None:
    """Train with attention written out."""
    model = llama(attn_implementation="eager")
    train(model, torch.optim.AdamW(model.parameters()), token_loss(model))


def _with(backend: SDPBackend) -> None:
    model = llama()
    with sdpa_kernel(backend):
        train(model, torch.optim.AdamW(model.parameters()), token_loss(model))


@case
def llama_flash() -> None:
    """Train with flash attention."""
    _with(SDPBackend.FLASH_ATTENTION)


@case
def llama_efficient() -> None:
    """Train with memory-efficient attention."""
    _with(SDPBackend.EFFICIENT_ATTENTION)


@case
def llama_math() -> None:
    """Train with the composite attention."""
    _with(SDPBackend.MATH)


@case
def llama_evaluate() -> None:
    """Collect the logits of four batches without gradients."""
    model = llama().eval()
    kept: list[torch.Tensor] = []
    with torch.no_grad():
        while len(kept) < 4:
            kept.append(model(input_ids=torch.randint(0, 1000, (4, 512), device="cuda")).logits.float())


@case
def llama_generate() -> None:
    """Generate 48 tokens greedily with a KV cache."""
    model = llama(num_key_value_heads=4).eval()
    tokens = torch.randint(3, 1000, (4, 128), device="cuda")
    mask = torch.ones_like(tokens)
    model.generate(tokens, attention_mask=mask, max_new_tokens=48, min_new_tokens=48, do_sample=False, pad_token_id=0)


@case
def gemma_wide_heads() -> None:
    """Train heads of 256 in bfloat16."""
    model = llama(num_attention_heads=4, num_key_value_heads=4, head_dim=256)
    train(model, torch.optim.AdamW(model.parameters()), token_loss(model))


@case
def mixtral_experts() -> None:
    """Train a mixture of experts."""
    import transformers

    config = transformers.MixtralConfig(
        vocab_size=32000,
        hidden_size=512,
        intermediate_size=1024,
        num_hidden_layers=2,
        num_attention_heads=8,
        num_key_value_heads=8,
        num_local_experts=4,
    )
    model = transformers.MixtralForCausalLM(config).to(torch.bfloat16).cuda()
    train(model, torch.optim.AdamW(model.parameters()), token_loss(model))


@case
def gpt2_amp_scaler() -> None:
    """Train GPT-2 with dropout, tied embeddings, float16 autocast and a scaler."""
    import transformers

    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=4)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    train(model, optimizer, token_loss(model), autocast=torch.float16, scaler=True, clip=1.0)


@case
def gpt2_expandable() -> None:
    """Train GPT-2 in float32; the caller sets expandable segments."""
    import transformers

    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=4)).cuda()
    train(model, torch.optim.AdamW(model.parameters()), token_loss(model))


@case
def bert_fp32_mask() -> None:
    """Train BERT for classification in float32, with padding and dropout."""
    import transformers

    model = transformers.BertForSequenceClassification(transformers.BertConfig(num_hidden_layers=4)).cuda()

    def loss() -> torch.Tensor:
        tokens = torch.randint(0, 30000, (8, 256), device="cuda")
        mask = torch.ones_like(tokens)
        mask[:, 200:] = 0
        labels = torch.randint(0, 2, (8,), device="cuda")
        return model(input_ids=tokens, attention_mask=mask, labels=labels).loss

    train(model, torch.optim.AdamW(model.parameters()), loss)


@case
def t5_adafactor() -> None:
    """Train an encoder-decoder in float32 with Adafactor."""
    import transformers

    config = transformers.T5Config(num_layers=4, decoder_start_token_id=0)
    model = transformers.T5ForConditionalGeneration(config).cuda()

    def loss() -> torch.Tensor:
        tokens = torch.randint(0, 30000, (4, 256), device="cuda")
        return model(input_ids=tokens, labels=tokens[:, :128].contiguous()).loss

    train(model, torch.optim.Adafactor(model.parameters()), loss)


@case
def whisper_bf16() -> None:
    """Train a small Whisper in bfloat16 autocast."""
    import transformers

    config = transformers.WhisperConfig(
        encoder_layers=2,
        decoder_layers=2,
        d_model=384,
        encoder_attention_heads=6,
        decoder_attention_heads=6,
        encoder_ffn_dim=1536,
        decoder_ffn_dim=1536,
    )
    model = transformers.WhisperForConditionalGeneration(config).cuda()

    def loss() -> torch.Tensor:
        sound = torch.randn(4, 80, 3000, device="cuda")
        labels = torch.randint(0, 50000, (4, 64), device="cuda")
        return model(input_features=sound, labels=labels).loss

    train(model, torch.optim.AdamW(model.parameters()), loss, autocast=torch.bfloat16)


@case
def vit_bf16() -> None:
    """Train a vision transformer in bfloat16 autocast."""
    import transformers

    model = transformers.ViTForImageClassification(transformers.ViTConfig(num_hidden_layers=4, num_labels=1000)).cuda()

    def loss() -> torch.Tensor:
        images = torch.randn(16, 3, 224, 224, device="cuda")
        return model(pixel_values=images, labels=torch.randint(0, 1000, (16,), device="cuda")).loss

    train(model, torch.optim.AdamW(model.parameters()), loss, autocast=torch.bfloat16)


@case
def embedding_table() -> None:
    """Train a large embedding table with Adagrad."""
    model = nn.Sequential(nn.EmbeddingBag(200_000, 128), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 2)).cuda()
    table = nn.Embedding(100_000, 64).cuda()
    optimizer = torch.optim.Adagrad([*model[1:].parameters(), *table.parameters()])

    def loss() -> torch.Tensor:
        found = table(torch.randint(0, 100_000, (512, 20), device="cuda")).mean(1)
        logits = model[3](F.relu(model[1](torch.cat([found, found], 1))))
        return F.cross_entropy(logits, torch.randint(0, 2, (512,), device="cuda"))

    train(model, optimizer, loss)


@case
def encoder_fp32_loop() -> None:
    """Train torch's own transformer encoder, with an optimizer that loops over tensors."""
    layer = nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True)
    model = nn.Sequential(nn.TransformerEncoder(layer, 4), nn.Linear(512, 10)).cuda()

    def loss() -> torch.Tensor:
        return F.mse_loss(model(torch.randn(8, 256, 512, device="cuda")), torch.zeros(8, 256, 10, device="cuda"))

    train(model, torch.optim.AdamW(model.parameters(), foreach=False), loss)


@case
def trainer_bf16() -> None:
    """Train with transformers' Trainer: loader, accumulation, bfloat16, checkpointing."""
    import transformers

    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=2))
    rows = [{"input_ids": torch.randint(0, 1000, (256,)), "labels": torch.randint(0, 1000, (256,))} for _ in range(32)]
    with tempfile.TemporaryDirectory() as folder:
        options = transformers.TrainingArguments(
            folder,
            per_device_train_batch_size=4,
            gradient_accumulation_steps=2,
            max_steps=3,
            bf16=True,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
        )
        transformers.Trainer(model, options, train_dataset=rows).train()


@case
def fabric_bf16() -> None:
    """Train with Lightning Fabric."""
    from lightning.fabric import Fabric

    fabric = Fabric(accelerator="cuda", devices=1, precision="bf16-mixed")
    fabric.launch()
    model = nn.Sequential(*(nn.Sequential(nn.Linear(1024, 1024), nn.GELU()) for _ in range(6)))
    model, optimizer = fabric.setup(model, torch.optim.AdamW(model.parameters()))
    for _ in range(3):
        loss = model(torch.randn(256, 1024, device=fabric.device)).float().pow(2).mean()
        fabric.backward(loss)
        optimizer.step()
        optimizer.zero_grad()


def largest_batch(make: Callable[[], tuple[nn.Module, Callable[[int], torch.Tensor]]]) -> int:
    """Return the first batch size that does not fit into a twentieth of the card."""
    torch.cuda.set_per_process_memory_fraction(0.05)
    model, loss_of = make()
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in range(8, 4096, 8):
        try:
            for _ in range(2):
                loss_of(batch).backward()
                optimizer.step()
                optimizer.zero_grad()
        except torch.OutOfMemoryError:  # noqa: PERF203  # the point of the loop
            return batch
    return 0


@case
def oom_llama() -> None:
    """Find the batch size at which a capped card is full."""
    model = llama()
    found = largest_batch(lambda: (model, lambda n: token_loss(model, n, 256)()))
    sys.stderr.write(f"FAILED AT {found}\n")
    torch.cuda.failed_at = found  # type: ignore[attr-defined]


@case
def oom_mlp() -> None:
    """Find the batch size at which a capped card is full, for a plain network."""
    model = nn.Sequential(*(nn.Sequential(nn.Linear(4096, 4096), nn.GELU()) for _ in range(8))).cuda()
    found = largest_batch(lambda: (model, lambda n: model(torch.randn(64 * n, 4096, device="cuda")).square().mean()))
    torch.cuda.failed_at = found  # type: ignore[attr-defined]


def main() -> None:
    """Run one case and write what the allocator was asked for."""
    torch.cuda.memory._record_memory_history(context=None, max_entries=1_000_000)
    run(sys.argv[1])
    figures = {
        "case": sys.argv[1],
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(0),
        "allocated": torch.cuda.max_memory_allocated(),
        "reserved": torch.cuda.max_memory_reserved(),
        "failed_at": getattr(torch.cuda, "failed_at", None),
        **events_of(torch.cuda.memory._snapshot()["device_traces"][0]),
    }
    write_events(Path(sys.argv[2]), figures)


if __name__ == "__main__":
    main()
