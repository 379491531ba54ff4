"""Practice: optimizers, loops, trainers and generation that no frozen round had."""

from __future__ import annotations

import tempfile
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  # the name that everybody gives it
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.data import DataLoader
from wider_runs import llama, token_loss, train

from truth_cases.practice_language import padded
from truth_cases.registry import registry
from truth_cases.third_language import family

__all__ = ["CASES", "small"]

CASES, case = registry()

SHAPE = {"hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 3, "num_attention_heads": 8}
BF16 = torch.bfloat16


def small(**options: Any) -> nn.Module:
    """Build a small Llama in float32 on the device."""
    return family("Llama", vocab_size=16000, **{**SHAPE, **options}).cuda()


@case
def bnb_ademamix_8bit() -> None:
    """Train with 8-bit AdEMAMix."""
    import bitsandbytes as bnb

    model = small().to(BF16)
    train(model, bnb.optim.AdEMAMix8bit(model.parameters(), 1e-4), token_loss(model, 3, 400))


@case
def bnb_lars_lamb_rmsprop() -> None:
    """Train three models with bitsandbytes' LAMB, 8-bit RMSprop and 8-bit SGD."""
    import bitsandbytes as bnb

    for make in (bnb.optim.LAMB, bnb.optim.RMSprop8bit, lambda p, lr: bnb.optim.SGD8bit(p, lr, momentum=0.9)):
        model = small()
        train(model, make(model.parameters(), 1e-4), token_loss(model, 2, 300), autocast=BF16, steps=2)


@case
def adamw_in_backward() -> None:
    """Step each parameter's own optimizer in the backward pass."""
    model = small().to(BF16)
    optimizers = {p: torch.optim.AdamW([p], 1e-4, foreach=False) for p in model.parameters()}

    def step(parameter: torch.Tensor) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(step)
    loss_of = token_loss(model, 4, 500)
    for _ in range(3):
        loss_of().backward()


@case
def saved_on_cpu() -> None:
    """Keep what the backward pass needs on the host."""
    model = small()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    loss_of = token_loss(model, 3, 350)
    for _ in range(2):
        with torch.autograd.graph.save_on_cpu(pin_memory=True):
            loss = loss_of()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


@case
def gradient_penalty_fp32() -> None:
    """Train with a penalty on the gradient of the embeddings: backward twice."""
    model = small(attn_implementation="eager")
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    for _ in range(3):
        tokens = torch.randint(0, 1000, (2, 128), device="cuda")
        embedded = model.get_input_embeddings()(tokens)
        loss = model(inputs_embeds=embedded, labels=tokens).loss
        (gradient,) = torch.autograd.grad(loss, embedded, create_graph=True)
        (loss + gradient.square().sum(-1).mean()).backward()
        optimizer.step()
        optimizer.zero_grad()


@case
def per_sample_gradients() -> None:
    """Take gradients of every sample by vmap over grad."""
    from torch.func import functional_call, grad, vmap

    model = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.LayerNorm(1024), nn.Linear(1024, 32)).cuda()
    weights = {name: p.detach() for name, p in model.named_parameters()}

    def loss(values: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(functional_call(model, values, (x[None],)), y[None])

    for _ in range(3):
        x, y = torch.randn(48, 256, device="cuda"), torch.randint(0, 32, (48,), device="cuda")
        each = vmap(grad(loss), in_dims=(None, 0, 0))(weights, x, y)
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in each.values()]).norm(dim=0)
        scale = (1 / norms).clamp(max=1)
        for name, g in each.items():
            weights[name] = weights[name] - 0.1 * torch.einsum("b,b...->...", scale, g) / 48


@case
def averaged_then_updated() -> None:
    """Train with stochastic weight averaging and its schedule, SGD fused."""
    from torch.optim.swa_utils import SWALR, AveragedModel

    model = small().to(BF16)
    average = AveragedModel(model)
    optimizer = torch.optim.SGD(model.parameters(), 1e-2, momentum=0.9, fused=True)
    schedule = SWALR(optimizer, swa_lr=1e-3)
    loss_of = token_loss(model, 3, 300)
    for _ in range(4):
        loss_of().backward()
        optimizer.step()
        average.update_parameters(model)
        schedule.step()
        optimizer.zero_grad()
    with torch.no_grad():
        average(input_ids=torch.randint(0, 1000, (3, 300), device="cuda"))


@case
def chunked_loss_checkpointed() -> None:
    """Take the loss in chunks, each checkpointed, so that no more than one chunk of scores lives."""
    from torch.utils.checkpoint import checkpoint

    model = small().to(BF16)

    def part(hidden: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(model.lm_head(hidden).float(), labels, reduction="sum")

    def loss() -> torch.Tensor:
        tokens = torch.randint(0, 1000, (4, 513), device="cuda")
        hidden = model.model(input_ids=tokens[:, :-1]).last_hidden_state.flatten(0, 1)
        labels = tokens[:, 1:].flatten()
        total = sum(
            checkpoint(part, h, y, use_reentrant=False) for h, y in zip(hidden.chunk(8), labels.chunk(8), strict=True)
        )
        result: torch.Tensor = total / labels.numel()
        return result

    train(model, torch.optim.AdamW(model.parameters(), 1e-4), loss)


class Attention(nn.Module):
    """Attention of chosen shapes between two projections."""

    def __init__(self, heads: int, groups: int, size: int) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, size
        self.inner = nn.Linear(512, (heads + 2 * groups) * size)
        self.outer = nn.Linear(heads * size, 512)

    def forward(self, x: torch.Tensor, **options: Any) -> torch.Tensor:
        """Mix a sequence."""
        parts = [self.heads * self.size, self.groups * self.size, self.groups * self.size]
        q, k, v = (t.unflatten(-1, (-1, self.size)).transpose(1, 2) for t in self.inner(x).split(parts, -1))
        mixed = F.scaled_dot_product_attention(q, k, v, enable_gqa=self.heads != self.groups, **options)
        result: torch.Tensor = self.outer(mixed.transpose(1, 2).flatten(2))
        return x + result


def _mixed(backend: SDPBackend, dtype: torch.dtype, shapes: list[tuple[int, int, int]], **options: Any) -> None:
    length = options.pop("length", 517)
    kind = options.pop("mask", None)
    layers = nn.ModuleList([Attention(*shape) for shape in shapes]).cuda().to(dtype)
    optimizer = torch.optim.AdamW(layers.parameters(), 1e-4)
    for _ in range(3):
        x = torch.randn(3, length, 512, device="cuda", dtype=dtype)
        mask = None
        if kind == "boolean":
            mask = torch.rand(3, 1, length, length, device="cuda") > 0.1
        elif kind == "bias":
            mask = torch.randn(1, 1, length, length, device="cuda", dtype=dtype)
        with sdpa_kernel(backend):
            for layer in layers:
                x = layer(x, attn_mask=mask, **options)
        x.float().square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


@case
def attention_flash_shapes() -> None:
    """Flash attention with heads of 64 to 256, grouped and not, and a size that is no multiple of eight."""
    shapes = [(8, 8, 64), (8, 2, 96), (6, 6, 128), (4, 1, 192), (4, 4, 256), (6, 6, 44)]
    _mixed(SDPBackend.FLASH_ATTENTION, BF16, shapes, is_causal=True)


@case
def attention_efficient_shapes() -> None:
    """Memory-efficient attention in float32 with a bias, heads of 64 to 256."""
    shapes = [(8, 8, 64), (4, 4, 128), (3, 3, 256), (8, 8, 40)]
    _mixed(SDPBackend.EFFICIENT_ATTENTION, torch.float32, shapes, mask="bias")


@case
def attention_efficient_half_mask() -> None:
    """Memory-efficient attention in float16 with a boolean mask and dropout."""
    _mixed(
        SDPBackend.EFFICIENT_ATTENTION, torch.float16, [(8, 8, 64), (4, 4, 160), (8, 8, 96)], mask="boolean",
        dropout_p=0.1,
    )  # fmt: skip


@case
def attention_cudnn_mask() -> None:
    """Attention by cuDNN with a mask, grouped, odd lengths."""
    _mixed(SDPBackend.CUDNN_ATTENTION, BF16, [(8, 8, 64), (8, 2, 128), (8, 4, 64)], mask="boolean", length=777)


@case
def attention_math_shapes() -> None:
    """Composite attention in bfloat16 with a boolean mask, grouped, and in float32."""
    _mixed(SDPBackend.MATH, BF16, [(8, 8, 64), (8, 2, 96)], mask="boolean")
    _mixed(SDPBackend.MATH, torch.float32, [(8, 8, 64), (8, 2, 48)], is_causal=True, dropout_p=0.2)


def _arguments(folder: str, **options: Any) -> Any:
    import transformers

    fixed = {"report_to": [], "save_strategy": "no", "disable_tqdm": True, "logging_strategy": "no"}
    return transformers.TrainingArguments(folder, **{**fixed, **options})


@case
def trainer_neftune_bnb8() -> None:
    """Run Trainer with noisy embeddings, 8-bit AdamW, bfloat16 evaluation, grouped by length, smoothed labels."""
    import transformers

    model = family("Qwen2", vocab_size=16000, num_key_value_heads=4, **SHAPE)
    rows = [{"input_ids": torch.randint(1, 8000, (n,))} for n in torch.randint(60, 300, (48,)).tolist()]

    def collate(batch: list[Any]) -> dict[str, torch.Tensor]:
        ids = nn.utils.rnn.pad_sequence([row["input_ids"] for row in batch], batch_first=True)
        return {"input_ids": ids, "attention_mask": (ids > 0).long(), "labels": ids.masked_fill(ids == 0, -100)}

    with tempfile.TemporaryDirectory() as folder:
        arguments = _arguments(
            folder,
            max_steps=4,
            per_device_train_batch_size=4,
            per_device_eval_batch_size=6,
            bf16=True,
            bf16_full_eval=True,
            optim="adamw_bnb_8bit",
            neftune_noise_alpha=5.0,
            label_smoothing_factor=0.1,
            eval_strategy="steps",
            eval_steps=2,
            prediction_loss_only=True,
        )
        transformers.Trainer(
            model, arguments, train_dataset=rows, eval_dataset=rows[:18], data_collator=collate
        ).train()


@case
def trainer_fp16_checkpointing_accumulates() -> None:
    """Run Trainer in float16, checkpointing, two batches a step, logits gathered in the evaluation."""
    import transformers

    model = family("GPT2", vocab_size=16000, n_embd=512, n_layer=4, n_head=8)
    rows = [{"input_ids": row, "labels": row} for row in torch.randint(0, 8000, (96, 200))]
    with tempfile.TemporaryDirectory() as folder:
        arguments = _arguments(
            folder,
            max_steps=12,
            per_device_train_batch_size=4,
            gradient_accumulation_steps=2,
            gradient_checkpointing=True,
            gradient_checkpointing_kwargs={"use_reentrant": False},
            fp16=True,
            optim="adamw_torch_fused",
            eval_strategy="steps",
            eval_steps=6,
            eval_accumulation_steps=2,
            max_grad_norm=0.5,
        )
        transformers.Trainer(model, arguments, train_dataset=rows, eval_dataset=rows[:16]).train()


@case
def lightning_bf16_true_averages() -> None:
    """Run Lightning's Trainer with weights in bfloat16 and stochastic weight averaging."""
    import lightning
    from lightning.pytorch.callbacks import StochasticWeightAveraging

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.network = family("Phi", vocab_size=16000, **SHAPE)

        def training_step(self, batch: Any, _index: int) -> torch.Tensor:
            loss: torch.Tensor = self.network(input_ids=batch, labels=batch).loss
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), 1e-4)

    trainer = lightning.Trainer(
        accelerator="cuda",
        devices=1,
        precision="bf16-true",
        max_epochs=3,
        gradient_clip_val=1.0,
        gradient_clip_algorithm="value",
        accumulate_grad_batches=2,
        callbacks=[StochasticWeightAveraging(swa_lrs=1e-3, swa_epoch_start=1)],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Module(), DataLoader(torch.randint(0, 8000, (12, 256)), 3))


@case
def fabric_nf4_dq() -> None:
    """Run Lightning Fabric with its own 4-bit layers, training what is left."""
    from lightning.fabric import Fabric
    from lightning.fabric.plugins import BitsandbytesPrecision

    fabric = Fabric(accelerator="cuda", devices=1, plugins=BitsandbytesPrecision("nf4-dq", BF16))
    fabric.launch()
    with fabric.init_module():
        model = family("Llama", vocab_size=16000, **SHAPE)
    for name, parameter in model.named_parameters():
        parameter.requires_grad = "norm" in name or "embed" in name
    model = fabric.setup(model)
    optimizer = fabric.setup_optimizers(torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-4))
    for _ in range(3):
        tokens = torch.randint(0, 1000, (3, 320), device=fabric.device)
        fabric.backward(model(input_ids=tokens, labels=tokens).loss)
        optimizer.step()
        optimizer.zero_grad()


@case
def accelerate_fp16_accumulates() -> None:
    """Run a loop of accelerate in float16 with accumulation and clipping."""
    from accelerate import Accelerator

    accelerator = Accelerator(mixed_precision="fp16", gradient_accumulation_steps=2)
    model = family("Llama", vocab_size=16000, **SHAPE)
    rows = torch.randint(0, 8000, (72, 300))
    prepared = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), 1e-5), DataLoader(rows, 3))
    model, optimizer, loader = prepared
    for tokens in loader:
        with accelerator.accumulate(model):
            loss = model(input_ids=tokens, labels=tokens).loss
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()


@case
def generate_static_cache() -> None:
    """Generate greedily with a cache of fixed size."""
    model = llama(num_key_value_heads=4).eval()
    tokens = torch.randint(3, 1000, (3, 77), device="cuda")
    model.generate(tokens, max_new_tokens=30, min_new_tokens=30, do_sample=False, cache_implementation="static",
                   disable_compile=True)  # fmt: skip


@case
def generate_penalties_left_padded() -> None:
    """Sample with penalties, typical and minimal probability, from prompts padded on the left."""
    model = family("Gemma2", vocab_size=16000, num_key_value_heads=4, head_dim=64, sliding_window=64, **SHAPE)
    model = model.to(BF16).cuda().eval()
    tokens = torch.randint(3, 1000, (4, 120), device="cuda")
    mask = torch.ones_like(tokens)
    mask[1:, :33] = 0
    model.generate(
        tokens, attention_mask=mask, max_new_tokens=25, min_new_tokens=25, do_sample=True, top_p=0.9, min_p=0.02,
        typical_p=0.95, repetition_penalty=1.2, no_repeat_ngram_size=3,
    )  # fmt: skip


@case
def generate_assisted() -> None:
    """Generate with a smaller model that proposes."""
    model, helper = llama().eval(), llama(num_hidden_layers=1, hidden_size=256, num_attention_heads=4,
                                          num_key_value_heads=4, intermediate_size=512).eval()  # fmt: skip
    tokens = torch.randint(3, 1000, (1, 90), device="cuda")
    model.generate(tokens, assistant_model=helper, max_new_tokens=20, min_new_tokens=20, do_sample=False)


@case
def perplexity_by_strides() -> None:
    """Measure perplexity of a long text in overlapping windows, float32, TF32 allowed."""
    torch.backends.cuda.matmul.allow_tf32 = True
    model = small().eval()
    text = torch.randint(0, 8000, (1, 3000), device="cuda")
    losses = []
    with torch.inference_mode():
        for begin in range(0, 2600, 384):
            window = text[:, begin : begin + 777]
            labels = window.clone()
            labels[:, :-384] = -100
            losses.append(model(input_ids=window, labels=labels).loss)
    torch.stack(losses).mean().exp().item()


@case
def reward_model_pairs() -> None:
    """Train a reward model on padded pairs with a head of one score."""
    import transformers

    config = transformers.LlamaConfig(vocab_size=16000, num_labels=1, pad_token_id=0, **SHAPE)
    model = transformers.LlamaForSequenceClassification(config).to(BF16).cuda()

    def score() -> torch.Tensor:
        tokens = torch.randint(1, 8000, (4, 260), device="cuda")
        tokens[::2, 200:] = 0
        result: torch.Tensor = model(input_ids=tokens, attention_mask=(tokens > 0).long()).logits
        return result

    train(model, torch.optim.AdamW(model.parameters(), 1e-5), lambda: -F.logsigmoid(score() - score()).mean())


@case
def policy_with_values_fp32() -> None:
    """Train a policy with a head of values, ratios clipped, on what it sampled itself."""
    model = small()
    head = nn.Linear(512, 1).cuda()
    optimizer = torch.optim.AdamW([*model.parameters(), *head.parameters()], 1e-5)
    for _ in range(2):
        model.eval()
        prompt = torch.randint(3, 1000, (4, 60), device="cuda")
        with torch.no_grad():
            tokens = model.generate(prompt, max_new_tokens=20, min_new_tokens=20, do_sample=True, top_k=0)
            logits = model(input_ids=tokens).logits[:, 59:-1]
            old = logits.log_softmax(-1).gather(-1, tokens[:, 60:, None]).squeeze(-1)
        model.train()
        for _ in range(2):
            found = model(input_ids=tokens, output_hidden_states=True)
            new = found.logits[:, 59:-1].log_softmax(-1).gather(-1, tokens[:, 60:, None]).squeeze(-1)
            values = head(found.hidden_states[-1][:, 59:-1]).squeeze(-1)
            gain = torch.randn_like(values)
            ratio = (new - old).exp()
            loss = -torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean() + 0.5 * F.mse_loss(values, gain)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=False)
            optimizer.step()
            optimizer.zero_grad()


@case
def offloading_hooks() -> None:
    """Keep what blocks save on the host by hooks, inside checkpointed blocks on padded texts."""
    model = small().to(BF16)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    pack, unpack = (lambda t: (t.device, t.cpu())), (lambda p: p[1].to(p[0]))
    optimizer = torch.optim.Adam(model.parameters(), 1e-4, maximize=True, weight_decay=0.01)
    loss_of = padded(model, 4, 410)
    for _ in range(3):
        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            loss = loss_of()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
