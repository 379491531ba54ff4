"""Practice: graphs, tables, losses, linear algebra and loops in plain PyTorch."""

from __future__ import annotations

import itertools
import math

import torch
import torch.nn.functional as F  # noqa: N812  # the name that everybody gives it
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint
from wider_runs import largest_batch, train

from truth_cases.registry import registry

__all__ = ["CASES"]

CASES, case = registry()
BF16, F16 = torch.bfloat16, torch.float16


def rows(*size: int, **options: torch.dtype) -> torch.Tensor:
    """Return random numbers on the device."""
    return torch.randn(*size, device="cuda", **options)  # type: ignore[call-overload]  # dtypes alone


def choices(most: int, *size: int) -> torch.Tensor:
    """Return random whole numbers on the device."""
    return torch.randint(0, most, size, device="cuda")


def plain(*widths: int) -> nn.Module:
    """Build a plain network."""
    layers: list[nn.Module] = []
    for a, b in itertools.pairwise(widths[:-1]):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-2], widths[-1])).cuda()


@case
def graph_attention_fp32() -> None:
    """Attend along edges: a softmax over each node's neighbours by scatter, in float32."""
    nodes, edges, width, heads = 15_000, 200_000, 64, 4
    source, target = choices(nodes, edges), choices(nodes, edges)
    features, labels = rows(nodes, 100), choices(12, nodes)
    project, left, right = nn.Linear(100, width * heads), nn.Linear(width, 1), nn.Linear(width, 1)
    model = nn.ModuleList([project, left, right, nn.Linear(width * heads, 12)]).cuda()
    index = target[:, None].expand(-1, heads)

    def loss() -> torch.Tensor:
        x = project(F.dropout(features, 0.6)).view(nodes, heads, width)
        score = F.leaky_relu(left(x)[source] + right(x)[target], 0.2).squeeze(-1)
        most = score.new_full((nodes, heads), -torch.inf).scatter_reduce(0, index, score, "amax")
        weights = (score - most[target]).exp()
        total = torch.zeros_like(most).index_add(0, target, weights)
        weights = F.dropout(weights / total[target].clamp(min=1e-12), 0.6)
        found = torch.zeros_like(x).index_add(0, target, weights.unsqueeze(-1) * x[source])
        return F.cross_entropy(model[3](F.elu(found.flatten(1))), labels)

    train(model, torch.optim.Adam(model.parameters(), 5e-3, weight_decay=5e-4), loss)


@case
def graph_pooled_batches_fp32() -> None:
    """Classify batches of small graphs: mean messages by scatter_add, pooled by graph, batch norms."""
    first, second, head = plain(32, 128, 128), plain(256, 128, 128), plain(256, 128, 1)
    norm = nn.BatchNorm1d(128).cuda()
    model = nn.ModuleList([first, second, head, norm])

    def loss() -> torch.Tensor:
        nodes, edges = 6000, 14000
        x, batch = rows(nodes, 32), torch.arange(nodes, device="cuda") // 30
        source, target = choices(nodes, edges), choices(nodes, edges)
        count = torch.bincount(target, minlength=nodes).clamp(min=1).unsqueeze(1)
        x = F.relu(norm(first(x)))
        summed = torch.zeros_like(x).scatter_add(0, target[:, None].expand(-1, 128), x[source])
        x = F.relu(second(torch.cat([x, summed / count], 1)))
        mean = torch.zeros(200, 128, device="cuda").index_add(0, batch, x) / 30
        most = torch.segment_reduce(x, "max", lengths=torch.full((200,), 30, device="cuda"))
        return F.binary_cross_entropy_with_logits(head(torch.cat([mean, most], 1)).squeeze(1), torch.rand(200).cuda())

    train(model, torch.optim.AdamW(model.parameters(), 1e-3), loss, steps=4)


@case
def bags_of_words_fp32() -> None:
    """Classify texts by the mean of their words' embeddings (EmbeddingBag), with offsets."""
    table, head = nn.EmbeddingBag(150_000, 96, mode="mean").cuda(), plain(96, 128, 20)
    model = nn.ModuleList([table, head])

    def loss() -> torch.Tensor:
        words, offsets = choices(150_000, 30_000), torch.arange(0, 30_000, 60, device="cuda")
        return F.cross_entropy(head(table(words, offsets)), choices(20, 500))

    train(model, torch.optim.Adam(model.parameters(), 1e-3), loss)


@case
def recommends_summed_bags_fp32() -> None:
    """Train a click model: summed bags of categories, a bottom and a top network, pairwise products."""
    tables = nn.ModuleList(nn.EmbeddingBag(size, 32, mode="sum") for size in (40_000, 9_000, 700, 100_000))
    bottom, top = plain(13, 128, 32), plain(10 + 32, 256, 1)
    model = nn.ModuleList([tables, bottom, top]).cuda()

    def loss() -> torch.Tensor:
        dense = bottom(rows(2048, 13))
        found = [table(choices(table.num_embeddings, 2048, 5)) for table in tables]
        stacked = torch.stack([dense, *found], 1)
        products = torch.bmm(stacked, stacked.transpose(1, 2))
        left, right = torch.tril_indices(5, 5, -1, device="cuda")
        score = top(torch.cat([products[:, left, right], dense], 1)).squeeze(1)
        return F.binary_cross_entropy(score.sigmoid(), choices(2, 2048).float())

    train(model, torch.optim.Adagrad(model.parameters(), 0.01), loss)


@case
def table_transformer_fp32() -> None:
    """Train a transformer over columns: a token a column, quantiles as bins, fused SGD."""
    width, columns = 96, 24
    scale, shift = (nn.Parameter(torch.randn(columns, width, device="cuda")) for _ in range(2))
    layer = nn.TransformerEncoderLayer(width, 8, 192, dropout=0.1, activation="gelu", batch_first=True, norm_first=True)
    body, head = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).cuda(), plain(width, 48, 1)
    edges = torch.quantile(rows(20_000), torch.linspace(0, 1, 33, device="cuda"))[1:-1].contiguous()

    def loss() -> torch.Tensor:
        values = rows(1024, columns)
        binned = torch.bucketize(values, edges).float() / 32
        tokens = binned.unsqueeze(-1) * scale + shift
        return F.huber_loss(head(body(tokens).mean(1)).squeeze(1), rows(1024))

    model = nn.ModuleList([body, head])
    parameters = [*model.parameters(), scale, shift]
    train(model, torch.optim.SGD(parameters, 0.01, momentum=0.9, fused=True), loss)


@case
def encoder_fast_path_bf16() -> None:
    """Run torch's own encoder in evaluation mode with padded rows, as its fast path takes it, in bfloat16."""
    layer = nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True)
    model = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False).to(BF16).cuda().eval()
    with torch.inference_mode():
        for length in (128, 300, 200):
            source = rows(24, length, 512, dtype=BF16)
            padding = torch.zeros(24, length, dtype=torch.bool, device="cuda")
            padding[:, length - 20 :] = True
            model(source, src_key_padding_mask=padding).mean(1)
            model(source)


@case
def attention_by_hand_bf16() -> None:
    """Train attention written by hand: einsum, a causal bias, rotary angles as complex numbers, checkpointed."""
    width, heads, length = 512, 8, 400
    size = width // heads
    layers = nn.ModuleList(
        nn.ModuleDict({"qkv": nn.Linear(width, 3 * width), "out": nn.Linear(width, width)}) for _ in range(4)
    )
    model = nn.ModuleList([layers, nn.Linear(width, 300)]).cuda()
    steps = torch.arange(length, device="cuda").float()
    angles = torch.outer(steps, 10000 ** -(torch.arange(0, size, 2, device="cuda") / size))
    turns = torch.polar(torch.ones_like(angles), angles)
    hidden_ones = torch.full((length, length), -torch.inf, device="cuda").triu(1)

    def turned(x: torch.Tensor) -> torch.Tensor:
        pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
        return torch.view_as_real(pairs * turns[:, None]).flatten(-2).to(x.dtype)

    def block(x: torch.Tensor, layer: nn.ModuleDict) -> torch.Tensor:
        q, k, v = layer["qkv"](F.layer_norm(x, (width,))).unflatten(-1, (3, heads, size)).unbind(2)
        scores = torch.einsum("bqhd,bkhd->bhqk", turned(q), turned(k)) / math.sqrt(size) + hidden_ones
        found = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1).to(v.dtype), v).flatten(2)
        result: torch.Tensor = x + layer["out"](found)
        return result

    def loss() -> torch.Tensor:
        x = rows(6, length, width)
        for layer in layers:
            x = checkpoint(block, x, layer, use_reentrant=False)
        return F.cross_entropy(model[1](x).flatten(0, 1), choices(300, 6 * length))

    train(model, torch.optim.AdamW(model.parameters(), 1e-4), loss, autocast=BF16)


@case
def gaussian_process_fp32() -> None:
    """Fit a Gaussian process: squared distances, a Cholesky factor, a triangular solve, its determinant."""
    points, values = rows(2000, 8), rows(2000, 1)
    scale, noise = (torch.zeros(1, device="cuda", requires_grad=True) for _ in range(2))
    optimizer = torch.optim.Adam([scale, noise], 0.1)
    for _ in range(3):
        apart = torch.cdist(points, points).square()
        kernel = torch.exp(-0.5 * apart / scale.exp().square()) + (noise.exp() + 0.1) * torch.eye(2000, device="cuda")
        factor = torch.linalg.cholesky(kernel)
        solved = torch.linalg.solve_triangular(factor, values, upper=False)
        loss = 0.5 * solved.square().sum() + factor.diagonal().log().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@case
def whitening_decompositions_fp32() -> None:
    """Whiten features by eigenvectors, project by singular vectors, invert and solve small systems."""
    model = plain(256, 512, 128)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for _ in range(3):
        found = model(rows(4096, 256))
        centered = found - found.mean(0)
        spread = centered.T @ centered / 4096 + 1e-3 * torch.eye(128, device="cuda")
        with torch.no_grad():
            values, vectors = torch.linalg.eigh(spread)
            _, _, right = torch.linalg.svd(centered[:1000], full_matrices=False)
            turned = vectors * values.rsqrt() @ right.T
            inverse = torch.linalg.inv(spread)
        solved = torch.linalg.solve(spread, centered[:64].T)
        loss = (centered @ turned).square().mean() + (inverse @ spread).diagonal().mean() + solved.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@case
def fourier_operator_fp32() -> None:
    """Train a Fourier neural operator: transforms of images, complex weights for low frequencies."""
    width, kept = 32, 12
    lift, head = (
        nn.Conv2d(3, width, 1).cuda(),
        nn.Sequential(nn.Conv2d(width, 64, 1), nn.GELU(), nn.Conv2d(64, 1, 1)).cuda(),
    )
    low, high = (
        nn.ParameterList(
            torch.randn(width, width, kept, kept, dtype=torch.cfloat, device="cuda") / 99 for _ in range(3)
        )
        for _ in range(2)
    )
    around = nn.ModuleList(nn.Conv2d(width, width, 1) for _ in range(3)).cuda()
    model = nn.ModuleList([lift, head, low, high, around])

    def loss() -> torch.Tensor:
        x = lift(rows(8, 3, 64, 64))
        for layer, first, second in zip(around, low, high, strict=True):
            found = torch.fft.rfft2(x)
            out = torch.zeros_like(found)
            out[:, :, :kept, :kept] = torch.einsum("bixy,ioxy->boxy", found[:, :, :kept, :kept], first)
            out[:, :, -kept:, :kept] = torch.einsum("bixy,ioxy->boxy", found[:, :, -kept:, :kept], second)
            x = F.gelu(torch.fft.irfft2(out, s=x.shape[-2:]) + layer(x))
        return F.mse_loss(head(x), rows(8, 1, 64, 64))

    train(model, torch.optim.Adam(model.parameters(), 1e-3), loss)


@case
def per_sample_gradients_fp32() -> None:
    """Clip the gradient of every sample (torch.func: vmap of grad), add noise, step by hand."""
    from torch.func import functional_call, grad, vmap

    model = plain(128, 512, 256, 10)
    parameters = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}

    def loss(weights: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(functional_call(model, weights, (x.unsqueeze(0),)), y.unsqueeze(0))

    for _ in range(3):
        found = vmap(grad(loss), in_dims=(None, 0, 0), randomness="same")(parameters, rows(64, 128), choices(10, 64))
        sizes = torch.stack([each.flatten(1).norm(dim=1) for each in found.values()], 1).norm(dim=1)
        shares = (1.0 / (sizes + 1e-6)).clamp(max=1.0)
        for name, each in found.items():
            clipped = torch.einsum("n,n...->...", shares, each)
            parameters[name] = parameters[name] - 0.1 * (clipped + 0.1 * torch.randn_like(clipped)) / 64


@case
def triplets_mined_fp32() -> None:
    """Train embeddings with triplets, cosine and margin losses; mine the hardest by sorting and masks."""
    model = plain(784, 1024, 512, 128)

    def loss() -> torch.Tensor:
        found, labels = F.normalize(model(rows(512, 784))), choices(20, 512)
        apart = torch.cdist(found, found)
        same = labels[:, None] == labels
        far = apart.masked_fill(~same, 0.0).max(1).values
        near = apart.masked_fill(same, 9.0).topk(3, largest=False).values.mean(1)
        order = apart.detach().sort(1).indices[:, 1]
        triplet = F.triplet_margin_loss(found, found[order], found.roll(1, 0), margin=0.2)
        cosine = F.cosine_embedding_loss(found, found[order], torch.ones(512, device="cuda"))
        return (
            F.relu(far - near + 0.2).mean()
            + triplet
            + cosine
            + F.margin_ranking_loss(far, near, -torch.ones(512).cuda())
        )

    train(model, torch.optim.AdamW(model.parameters(), 1e-3), loss)


@case
def policy_gradients_fp32() -> None:
    """Train a policy and a value on rollouts that are kept on the device, by clipped ratios, shuffled in parts."""
    policy, value = plain(64, 256, 256, 12), plain(64, 256, 256, 1)
    model = nn.ModuleList([policy, value])
    optimizer = torch.optim.Adam(model.parameters(), 3e-4, eps=1e-5)
    for _ in range(2):
        seen, acted, rewards, logs, values = [], [], [], [], []
        with torch.no_grad():
            for _ in range(64):
                state = rows(256, 64)
                chosen = torch.distributions.Categorical(logits=policy(state))
                action = chosen.sample()
                seen.append(state)
                acted.append(action)
                logs.append(chosen.log_prob(action))
                values.append(value(state).squeeze(1))
                rewards.append(rows(256))
            gains, later = torch.zeros(64, 256, device="cuda"), torch.zeros(256, device="cuda")
            for step in reversed(range(63)):
                later = rewards[step] + 0.99 * values[step + 1] - values[step] + 0.95 * 0.99 * later
                gains[step] = later
            states, actions, before = torch.cat(seen), torch.cat(acted), torch.cat(logs)
            gains = (gains - gains.mean()) / (gains.std() + 1e-8)
            wanted, gains = (gains + torch.stack(values)).flatten(), gains.flatten()
        for _ in range(2):
            for part in torch.randperm(64 * 256, device="cuda").split(4096):
                chosen = torch.distributions.Categorical(logits=policy(states[part]))
                ratio = (chosen.log_prob(actions[part]) - before[part]).exp()
                clipped = torch.min(ratio * gains[part], ratio.clamp(0.8, 1.2) * gains[part])
                apart = F.mse_loss(value(states[part]).squeeze(1), wanted[part])
                loss = -clipped.mean() + 0.5 * apart - 0.01 * chosen.entropy().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                optimizer.step()


@case
def flow_couplings_fp32() -> None:
    """Train a normalizing flow: couplings, permutations, sums of logarithms, a spline's bins by cumsum."""
    width = 64
    nets = nn.ModuleList(plain(width // 2, 512, 512, width) for _ in range(6))
    bins = plain(width // 2, 256, width // 2 * 16)
    model = nn.ModuleList([nets, bins])

    def loss() -> torch.Tensor:
        x, total = rows(4096, width), torch.zeros(4096, device="cuda")
        for net in nets:
            kept, moved = x.chunk(2, 1)
            shift, scale = net(kept).chunk(2, 1)
            scale = torch.tanh(scale)
            x = torch.cat([moved * scale.exp() + shift, kept], 1)[:, torch.randperm(width, device="cuda")]
            total = total + scale.sum(1)
        kept, moved = x.chunk(2, 1)
        widths = bins(kept).view(4096, width // 2, 16).softmax(-1)
        edges = F.pad(widths.cumsum(-1), (1, 0))
        place = torch.searchsorted(edges.detach(), moved.sigmoid().unsqueeze(-1)).clamp(1, 16) - 1
        total = total - widths.gather(-1, place).squeeze(-1).log().sum(1)
        return -(total - 0.5 * x.square().sum(1)).mean()

    train(model, torch.optim.Adam(model.parameters(), 1e-4), loss)


@case
def state_space_fp16_math() -> None:
    """Train a gated state space of depthwise causal convolutions and scans, and math attention, in bfloat16."""
    width = 384
    project, out = nn.Linear(width, 3 * width), nn.Linear(width, width)
    conv = nn.Conv1d(width, width, 4, padding=3, groups=width)
    head = nn.Linear(width, 200)
    model = nn.ModuleList([project, out, conv, head]).cuda()

    def loss() -> torch.Tensor:
        x = rows(6, 512, width)
        value, gate, decay = project(F.rms_norm(x, (width,))).chunk(3, -1)
        value = F.silu(conv(value.transpose(1, 2))[..., :512].transpose(1, 2))
        kept = torch.cumsum(F.logsigmoid(decay.float()), 1)
        state = torch.logcumsumexp(value.float().abs().clamp(min=1e-4).log() - kept, 1) + kept
        x = x + out(state.exp().to(gate.dtype) * F.silu(gate))
        q = x.unflatten(-1, (6, -1)).transpose(1, 2)
        with sdpa_kernel(SDPBackend.MATH):
            x = x + F.scaled_dot_product_attention(q, q, q, is_causal=True).transpose(1, 2).flatten(2)
        return F.cross_entropy(head(x).flatten(0, 1), choices(200, 6 * 512))

    train(model, torch.optim.AdamW(model.parameters(), 1e-3), loss, autocast=BF16)


@case
def masks_and_counts_fp32() -> None:
    """Train on what is selected by masks that are known: nonzero, unique, histograms, weighted draws."""
    model = plain(128, 1024, 64)
    known = torch.arange(8192, device="cuda") % 7
    weights = torch.ones(8192, device="cuda")

    def loss() -> torch.Tensor:
        found = model(rows(8192, 128))
        chosen = torch.nonzero(known < 3).squeeze(1)
        kinds, where, counts = torch.unique(known[chosen], return_inverse=True, return_counts=True)
        means = torch.zeros(len(kinds), 64, device="cuda").index_add(0, where, found[chosen]) / counts[:, None]
        drawn = torch.multinomial(weights, 512)
        spread = torch.histc(found.detach(), 50, -3, 3)
        masked = found.masked_select((known == 1).unsqueeze(1))
        return means.square().mean() + found[drawn].abs().mean() + spread.mean() * masked.mean()

    train(model, torch.optim.AdamW(model.parameters(), 1e-3), loss)


@case
def oom_plain_transformer() -> int:
    """Find the batch size at which a capped card is full, for torch's own encoder in float32."""
    layer = nn.TransformerEncoderLayer(384, 6, 1536, batch_first=True)
    model = nn.Sequential(nn.TransformerEncoder(layer, 4, enable_nested_tensor=False), nn.Linear(384, 100)).cuda()

    def step(batch: int) -> torch.Tensor:
        return F.cross_entropy(model(rows(batch, 200, 384)).flatten(0, 1), choices(100, batch * 200))

    return largest_batch(lambda: (model, step))
