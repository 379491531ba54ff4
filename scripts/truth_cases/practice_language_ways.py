"""Practice, second set: further ways to adapt, to train, to run trainers and to generate."""

from __future__ import annotations

import tempfile
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  # the name that everybody gives it
from torch import nn
from wider_runs import llama, token_loss, train

from truth_cases.practice_language import padded
from truth_cases.practice_language_adapters import adapt
from truth_cases.practice_language_loops import small
from truth_cases.registry import registry
from truth_cases.third_language import family

__all__ = ["CASES"]

CASES, case = registry()

SHAPE = {"hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 3, "num_attention_heads": 8}
BF16 = torch.bfloat16


def _train(model: nn.Module, batch: int = 3, length: int = 300, **options: Any) -> None:
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    train(model, torch.optim.AdamW(trained, 1e-4), token_loss(model, batch, length), **options)


@case
def miss_qwen2() -> None:
    """Train MiSS on a Qwen2 in bfloat16."""
    model = family("Qwen2", vocab_size=12000, num_key_value_heads=4, **SHAPE).to(BF16).cuda()
    _train(adapt(model, "Miss", target_modules=["q_proj", "v_proj", "up_proj"], r=16))


@case
def hra_llama_fp32() -> None:
    """Train HRA (reflections) on a Llama in float32."""
    _train(adapt(small(), "HRA", target_modules=["q_proj", "v_proj"], r=8), 2, 260)


@case
def vblora_llama() -> None:
    """Train VB-LoRA (a bank of vectors) on a Llama in float32."""
    model = adapt(small(), "VBLoRA", target_modules=["q_proj", "v_proj"], r=4, num_vectors=60, vector_length=128)
    _train(model, 2, 270)


@case
def randlora_llama() -> None:
    """Train RandLoRA on a Llama in bfloat16."""
    _train(adapt(small().to(BF16), "RandLora", target_modules=["q_proj", "v_proj"], r=16))


@case
def c3a_qwen2() -> None:
    """Train C3A (circular convolutions) on a Llama in float32."""
    _train(adapt(small(), "C3A", target_modules=["q_proj", "v_proj"], block_size=64), 2, 300)


@case
def pissa_llama_bf16() -> None:
    """Train LoRA that begins with the principal part of the weights."""
    model = adapt(small(), "Lora", target_modules=["q_proj", "v_proj"], r=8, init_lora_weights="pissa_niter_4")
    _train(model, autocast=BF16)


@case
def lora_embeddings_saved() -> None:
    """Train LoRA with the embeddings adapted and the head trained in full, dropout, then merge."""
    model = adapt(
        small().to(BF16), "Lora", target_modules=["q_proj", "embed_tokens"], modules_to_save=["lm_head"], r=8,
        lora_dropout=0.1,
    )  # fmt: skip
    _train(model, 3, 410)
    model.merge_and_unload()


@case
def lora_two_adapters_plus() -> None:
    """Train two adapters in turn with the rates of LoRA+, then join them."""
    import peft
    from peft.optimizers import create_loraplus_optimizer

    model = adapt(small().to(BF16), "Lora", target_modules=["q_proj", "o_proj"], r=8)
    model.add_adapter("second", peft.LoraConfig(target_modules=["q_proj", "o_proj"], r=4))
    for name in ("default", "second"):
        model.set_adapter(name)
        optimizer = create_loraplus_optimizer(
            model=model, optimizer_cls=torch.optim.AdamW, lr=1e-4, loraplus_lr_ratio=16
        )
        train(model, optimizer, token_loss(model, 3, 280), steps=2)
    model.add_weighted_adapter(["default", "second"], [0.5, 0.5], "joined", combination_type="cat")


@case
def trainable_tokens_gpt2() -> None:
    """Train some tokens of a GPT-2."""
    model = family("GPT2", vocab_size=12000, n_embd=512, n_layer=3, n_head=8).cuda()
    _train(adapt(model, "TrainableTokens", token_indices=list(range(40)), target_modules=["wte"]), autocast=BF16)


@case
def adaption_prompt_llama() -> None:
    """Train adaption prompts on a Llama in bfloat16."""
    model = adapt(small().to(BF16), "AdaptionPrompt", task_type="CAUSAL_LM", adapter_len=10, adapter_layers=2)
    _train(model, 2, 300)


@case
def multitask_prompt_gpt2() -> None:
    """Tune a prompt of two parts on a Qwen2, padded, in float32."""
    model = family("Qwen2", vocab_size=12000, num_key_value_heads=4, **SHAPE).cuda()
    model = adapt(
        model,
        "CPT",
        task_type="CAUSAL_LM",
        cpt_token_ids=list(range(12)),
        cpt_mask=[1] * 12,
        cpt_tokens_type_mask=[1] * 12,
    )

    def loss() -> torch.Tensor:
        tokens = torch.randint(0, 1000, (3, 200), device="cuda")
        kinds = torch.full_like(tokens, 4)
        result: torch.Tensor = model(
            input_ids=tokens, attention_mask=torch.ones_like(tokens), labels=tokens, input_type_mask=kinds
        ).loss
        return result

    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    train(model, torch.optim.AdamW(trained, 1e-3), loss)


@case
def dora_int8_gemma() -> None:
    """Train DoRA over 8-bit layers of a Gemma in bfloat16 autocast."""
    import bitsandbytes as bnb

    model = family("Gemma", vocab_size=12000, num_key_value_heads=2, head_dim=64, **SHAPE)
    for name, module in list(model.named_modules()):
        if isinstance(module, nn.Linear) and "head" not in name:
            fresh = bnb.nn.Linear8bitLt(module.in_features, module.out_features, bias=False, has_fp16_weights=False)
            fresh.weight = bnb.nn.Int8Params(module.weight.data, requires_grad=False, has_fp16_weights=False)
            setattr(model.get_submodule(name.rpartition(".")[0]), name.rpartition(".")[2], fresh)
    model = adapt(model.cuda(), "Lora", target_modules=["q_proj", "down_proj"], r=8, use_dora=True)
    _train(model, autocast=BF16)


def _arguments(folder: str, **options: Any) -> Any:
    import transformers

    fixed = {"report_to": [], "save_strategy": "no", "disable_tqdm": True, "logging_strategy": "no"}
    kind = (
        transformers.Seq2SeqTrainingArguments if "predict_with_generate" in options else transformers.TrainingArguments
    )
    return kind(folder, **{**fixed, **options})


@case
def trainer_saves_and_resumes() -> None:
    """Run Trainer that saves, then resume from what it saved, in float16."""
    import transformers

    rows = [{"input_ids": row, "labels": row} for row in torch.randint(0, 8000, (60, 250))]
    with tempfile.TemporaryDirectory() as folder:
        options = {
            "per_device_train_batch_size": 3, "fp16": True, "save_strategy": "steps", "save_steps": 9,
            "optim": "adamw_torch",
        }  # fmt: skip
        model = small().cpu()
        transformers.Trainer(model, _arguments(folder, max_steps=9, **options), train_dataset=rows).train()
        again = transformers.Trainer(model, _arguments(folder, max_steps=14, **options), train_dataset=rows)
        again.train(resume_from_checkpoint=True)


@case
def trainer_generates_t5() -> None:
    """Run the trainer of encoder-decoders that generates in its evaluation, bfloat16, Lion in 8 bits."""
    import transformers

    config = transformers.T5Config(
        vocab_size=12000, d_model=384, d_kv=64, d_ff=1024, num_layers=2, num_heads=6, decoder_start_token_id=0
    )
    model = transformers.T5ForConditionalGeneration(config)
    rows = [{"input_ids": torch.randint(3, 8000, (90,)), "labels": torch.randint(3, 8000, (40,))} for _ in range(40)]
    with tempfile.TemporaryDirectory() as folder:
        arguments = _arguments(
            folder, max_steps=4, per_device_train_batch_size=5, per_device_eval_batch_size=8, bf16=True,
            optim="lion_8bit", predict_with_generate=True, generation_max_length=20, generation_num_beams=2,
            eval_strategy="steps", eval_steps=2,
        )  # fmt: skip
        transformers.Seq2SeqTrainer(model, arguments, train_dataset=rows, eval_dataset=rows[:16]).train()


@case
def trainer_empties_cache_ademamix() -> None:
    """Run Trainer that empties the cache as it goes, with AdEMAMix in 8 bits and a batch metric."""
    import transformers

    class Counter:
        def __call__(self, found: Any, *, compute_result: bool) -> dict[str, float]:
            del compute_result
            return {"right": float((found.predictions.argmax(-1) == found.label_ids).float().mean())}

    model = family("Qwen3", vocab_size=12000, num_key_value_heads=4, head_dim=64, **SHAPE)
    rows = [{"input_ids": row, "labels": row} for row in torch.randint(0, 8000, (60, 180))]
    with tempfile.TemporaryDirectory() as folder:
        arguments = _arguments(
            folder, max_steps=6, per_device_train_batch_size=4, bf16=True, optim="ademamix_8bit",
            torch_empty_cache_steps=2, eval_strategy="steps", eval_steps=3, eval_on_start=True,
            batch_eval_metrics=True, per_device_eval_batch_size=5, lr_scheduler_type="cosine", warmup_steps=2,
        )  # fmt: skip
        transformers.Trainer(
            model, arguments, train_dataset=rows, eval_dataset=rows[:20], compute_metrics=Counter()
        ).train()


@case
def lightning_manual_two_optimizers() -> None:
    """Run Lightning's Trainer with optimization by hand, two optimizers, float16."""
    import lightning
    from torch.utils.data import DataLoader

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False
            self.network = family("GPT2", vocab_size=12000, n_embd=384, n_layer=3, n_head=6)

        def training_step(self, batch: Any, _index: int) -> None:
            for optimizer in self.optimizers():
                optimizer.zero_grad()
                self.manual_backward(self.network(input_ids=batch, labels=batch).loss)
                self.clip_gradients(optimizer, gradient_clip_val=1.0, gradient_clip_algorithm="norm")
                optimizer.step()

        def configure_optimizers(self) -> Any:
            tables = [p for n, p in self.named_parameters() if "wte" in n or "wpe" in n]
            others = [p for n, p in self.named_parameters() if not ("wte" in n or "wpe" in n)]
            return torch.optim.SGD(tables, 0.1, momentum=0.9), torch.optim.AdamW(others, 1e-4)

    trainer = lightning.Trainer(
        accelerator="cuda", devices=1, precision="bf16-mixed", max_steps=6, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Module(), DataLoader(torch.randint(0, 8000, (12, 300)), 4))


@case
def fabric_half_true_accumulates() -> None:
    """Run Fabric with weights in float16, gradients accumulated."""
    from lightning.fabric import Fabric

    fabric = Fabric(accelerator="cuda", devices=1, precision="16-true")
    fabric.launch()
    with fabric.init_module():
        model = family("GPTNeoX", vocab_size=12000, **SHAPE)
    model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9))
    for step in range(6):
        tokens = torch.randint(0, 1000, (3, 310), device=fabric.device)
        with fabric.no_backward_sync(model, enabled=step % 2 == 0):
            fabric.backward(model(input_ids=tokens, labels=tokens).loss / 2)
        if step % 2:
            optimizer.step()
            optimizer.zero_grad()


@case
def group_relative_policy() -> None:
    """Train on groups of sampled answers against a frozen copy, ratios clipped, entropy kept."""
    model, frozen = small().to(BF16), small().to(BF16).eval()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-6)

    def scores(net: nn.Module, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = net(input_ids=tokens, logits_to_keep=33).logits[:, :-1]
        chosen = logits.gather(-1, tokens[:, -32:, None]).squeeze(-1)
        spread = torch.logsumexp(logits, -1)
        chances = torch.softmax(logits, -1)
        return chosen - spread, spread - (chances * logits).sum(-1)

    for _ in range(2):
        prompt = torch.randint(3, 1000, (2, 70), device="cuda").repeat_interleave(4, 0)
        with torch.no_grad():
            tokens = model.generate(prompt, max_new_tokens=32, min_new_tokens=32, do_sample=True, top_p=0.95)
            old, base = scores(model, tokens)[0], scores(frozen, tokens)[0]
        reward = torch.randn(2, 4, device="cuda")
        gain = ((reward - reward.mean(1, keepdim=True)) / (reward.std(1, keepdim=True) + 1e-4)).view(-1, 1)
        new, entropy = scores(model, tokens)
        ratio = torch.exp(new - old)
        apart = torch.exp(base - new) - (base - new) - 1
        loss = -torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain) + 0.04 * apart - 0.01 * entropy
        loss.mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


@case
def odds_ratio_padded() -> None:
    """Train on preferences by odds, no second model, padded, float32 with bfloat16 autocast."""
    model = small()

    def average(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        kept = labels != -100
        wanted = labels.masked_fill(~kept, 0)
        each = torch.gather(logits.log_softmax(-1), 2, wanted.unsqueeze(2)).squeeze(2)
        return (each * kept).sum(-1) / kept.sum(-1)

    def loss() -> torch.Tensor:
        tokens = torch.randint(1, 8000, (4, 210), device="cuda")
        mask = torch.ones_like(tokens)
        mask[1::2, 170:] = 0
        labels = tokens.masked_fill(mask == 0, -100)
        found = model(input_ids=tokens, attention_mask=mask)
        logits = found.logits[:, :-1]
        chances = average(logits.float(), labels[:, 1:])
        good, bad = chances.chunk(2)
        odds = (good - bad) - (torch.log1p(-torch.exp(good)) - torch.log1p(-torch.exp(bad)))
        plain = F.cross_entropy(logits[:2].reshape(-1, logits.size(-1)), labels[:2, 1:].reshape(-1))
        return plain - 0.1 * F.logsigmoid(odds).mean()

    train(model, torch.optim.AdamW(model.parameters(), 1e-6), loss, autocast=BF16)


@case
def gradient_cached_contrastive() -> None:
    """Train sentence vectors with large batches in pieces: vectors first, then gradients piece by piece."""
    import transformers

    model = transformers.BertModel(transformers.BertConfig(vocab_size=12000, **SHAPE)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-5)

    def encode(tokens: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cuda", BF16):
            hidden = model(input_ids=tokens).last_hidden_state
        return F.normalize(hidden[:, 0].float(), dim=-1)

    for _ in range(2):
        pieces = [torch.randint(5, 8000, (16, 64), device="cuda") for _ in range(8)]
        with torch.no_grad():
            vectors = torch.cat([encode(piece) for piece in pieces])
        vectors.requires_grad_()
        scores = vectors[:64] @ vectors[64:].t() / 0.05
        F.cross_entropy(scores, torch.arange(64, device="cuda")).backward()
        for piece, gradient in zip(pieces, vectors.grad.split(16), strict=True):
            torch.sum(encode(piece) * gradient).backward()
        optimizer.step()
        optimizer.zero_grad()


@case
def two_passes_agree() -> None:
    """Train a BERT whose two passes with dropout are to agree, embeddings mixed."""
    import transformers

    config = transformers.BertConfig(vocab_size=12000, num_labels=4, **SHAPE)
    model = transformers.BertForSequenceClassification(config).cuda()

    def loss() -> torch.Tensor:
        tokens = torch.randint(5, 8000, (12, 128), device="cuda")
        labels = torch.randint(0, 4, (12,), device="cuda")
        table = model.get_input_embeddings()
        share = torch.distributions.Beta(0.4, 0.4).sample().item()
        mixed = share * table(tokens) + (1 - share) * table(tokens.flip(0))
        one, two = (model(inputs_embeds=mixed).logits for _ in range(2))
        apart = F.kl_div(one.log_softmax(-1), two.softmax(-1), reduction="sum") + F.kl_div(
            two.log_softmax(-1), one.softmax(-1), reduction="sum"
        )
        return F.cross_entropy(one, labels) + F.cross_entropy(two, labels.flip(0)) + apart

    train(model, torch.optim.AdamW(model.parameters(), 1e-5), loss, autocast=torch.float16, scaler=True, steps=12)


@case
def inner_loop_by_hand() -> None:
    """Train weights that adapt well: two inner steps whose gradients are kept."""
    model = nn.Sequential(nn.Linear(128, 512), nn.Tanh(), nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 16)).cuda()
    names = [name for name, _ in model.named_parameters()]

    def loss() -> torch.Tensor:
        total = torch.zeros((), device="cuda")
        for _ in range(4):
            weights = dict(model.named_parameters())
            x, y = torch.randn(256, 128, device="cuda"), torch.randint(0, 16, (256,), device="cuda")
            for _ in range(2):
                inner = F.cross_entropy(torch.func.functional_call(model, weights, (x,)), y)
                gradients = torch.autograd.grad(inner, list(weights.values()), create_graph=True)
                weights = {n: w - 0.1 * g for n, w, g in zip(names, weights.values(), gradients, strict=True)}
            total = total + F.cross_entropy(torch.func.functional_call(model, weights, (x,)), y)
        return total / 4

    train(model, torch.optim.Adam(model.parameters(), 1e-3), loss)


@case
def forward_mode_and_hessians() -> None:
    """Take products with Jacobians and Hessians, forward and backward."""
    model = nn.Sequential(nn.Linear(256, 1024), nn.Softplus(), nn.Linear(1024, 64)).cuda()
    weights = {n: p.detach() for n, p in model.named_parameters()}

    def loss(values: Any) -> torch.Tensor:
        x = torch.randn(128, 256, device="cuda")
        return torch.func.functional_call(model, values, (x,)).square().mean()

    tangents = {n: torch.randn_like(w) for n, w in weights.items()}
    for _ in range(2):
        torch.func.jvp(loss, (weights,), (tangents,))
        torch.func.jvp(torch.func.grad(loss), (weights,), (tangents,))


@case
def groups_frozen_half() -> None:
    """Train the upper half of a model with a rate for each layer, the step of the optimizer on the host."""
    model = family("Phi", vocab_size=12000, **{**SHAPE, "num_hidden_layers": 6}).to(BF16).cuda()
    groups = []
    for index, layer in enumerate(model.model.layers):
        if index < 3:
            layer.requires_grad_(requires_grad=False)
        else:
            decayed = [p for p in layer.parameters() if p.ndim > 1]
            others = [p for p in layer.parameters() if p.ndim < 2]
            groups += [{"params": decayed, "lr": 1e-4 * 0.9**index, "weight_decay": 0.1},
                       {"params": others, "lr": 1e-4 * 0.9**index, "weight_decay": 0.0}]  # fmt: skip
    model.model.embed_tokens.requires_grad_(requires_grad=False)
    train(model, torch.optim.AdamW(groups), token_loss(model, 4, 300), clip=1.0)


@case
def noisy_accumulation_logged() -> None:
    """Train with noise added to the gradients, norms read for the log, gradients kept in float32 beside bfloat16."""
    model = small().to(BF16)
    masters = [p.detach().float().requires_grad_() for p in model.parameters()]
    optimizer = torch.optim.AdamW(masters, 1e-4, fused=True)
    loss_of = token_loss(model, 2, 330)
    for _ in range(3):
        for _ in range(2):
            loss_of().backward()
            for master, p in zip(masters, model.parameters(), strict=True):
                piece = p.grad.float() / 2
                master.grad = piece if master.grad is None else master.grad.add_(piece)
                p.grad = None
        for master in masters:
            master.grad.add_(torch.randn_like(master.grad), alpha=1e-3)
            master.grad.norm().item()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            for master, p in zip(masters, model.parameters(), strict=True):
                p.copy_(master)


@case
def generate_bart_groups() -> None:
    """Generate with a BART by five beams, repeated words forbidden, scores returned."""
    import transformers

    config = transformers.BartConfig(
        vocab_size=12000, d_model=512, encoder_layers=2, decoder_layers=2, encoder_attention_heads=8,
        decoder_attention_heads=8, encoder_ffn_dim=1280, decoder_ffn_dim=1280, forced_eos_token_id=None,
    )  # fmt: skip
    model = transformers.BartForConditionalGeneration(config).to(BF16).cuda().eval()
    tokens = torch.randint(5, 8000, (4, 140), device="cuda")
    model.generate(
        tokens, num_beams=5, num_return_sequences=3, length_penalty=1.5, no_repeat_ngram_size=2, max_new_tokens=20,
        min_new_tokens=20, return_dict_in_generate=True, output_scores=True,
    )  # fmt: skip


@case
def generate_nf4_sampled() -> None:
    """Sample from a 4-bit Llama, one row and many, with a cache on the host between."""
    import bitsandbytes as bnb

    model = family("Llama", vocab_size=12000, num_key_value_heads=2, **SHAPE).to(torch.float16)
    for name, module in list(model.named_modules()):
        if isinstance(module, nn.Linear) and "head" not in name:
            fresh = bnb.nn.Linear4bit(
                module.in_features, module.out_features, bias=False, compute_dtype=torch.float16, quant_type="nf4"
            )
            fresh.weight = bnb.nn.Params4bit(module.weight.data, requires_grad=False, quant_type="nf4")
            setattr(model.get_submodule(name.rpartition(".")[0]), name.rpartition(".")[2], fresh)
    model = model.cuda().eval()
    for rows in (1, 6):
        tokens = torch.randint(3, 1000, (rows, 64), device="cuda")
        model.generate(tokens, max_new_tokens=16, min_new_tokens=16, do_sample=True, temperature=0.7, top_k=50)


@case
def generate_chunked_guided() -> None:
    """Prefill in chunks and generate with guidance away from a second prompt, eager attention."""
    model = llama(attn_implementation="eager", num_hidden_layers=3).eval()
    tokens = torch.randint(3, 1000, (2, 130), device="cuda")
    model.generate(tokens, max_new_tokens=12, min_new_tokens=12, do_sample=False, prefill_chunk_size=48)
    model.generate(tokens, max_new_tokens=12, min_new_tokens=12, do_sample=False, guidance_scale=1.5)


@case
def cached_scoring_inference() -> None:
    """Score many endings of one prompt with a cache that is copied for each, in inference mode."""
    import copy

    model = llama(num_key_value_heads=4).eval()
    with torch.inference_mode():
        prompt = torch.randint(3, 1000, (1, 400), device="cuda")
        first = model(input_ids=prompt, use_cache=True)
        for count in (4, 9, 13):
            cache = copy.deepcopy(first.past_key_values)
            cache.batch_repeat_interleave(count)
            endings = torch.randint(3, 1000, (count, 37), device="cuda")
            logits = model(input_ids=endings, past_key_values=cache).logits
            logits[:, :-1].float().log_softmax(-1).gather(-1, endings[:, 1:, None]).sum().item()


@case
def padded_sliding_fp16_true() -> None:
    """Evaluate padded texts with a sliding window in float16, batch sizes that change."""
    model = family("Mistral", vocab_size=12000, num_key_value_heads=4, sliding_window=100, **SHAPE).half().cuda().eval()
    for batch, length in ((8, 150), (3, 420), (5, 77)):
        with torch.no_grad():
            padded(model, batch, length)().item()
