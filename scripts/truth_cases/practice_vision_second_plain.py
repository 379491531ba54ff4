"""Practice, second set: series, texts by convolutions and recurrence, points, rays, tables and odd loops."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812  # the name that everybody gives it
from torch import nn
from torch.func import functional_call
from torch.nn.utils import parametrizations
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from wider_runs import train

from truth_cases.practice_vision import settled
from truth_cases.practice_vision_plain import choices, plain, rows
from truth_cases.registry import registry

__all__ = ["CASES"]

CASES, case = registry()
BF16, F16 = torch.bfloat16, torch.float16


@case
def text_convolutions_fp32() -> None:
    """Classify texts by convolutions of several widths over embeddings, pooled by their largest."""
    table = nn.Embedding(30_000, 200, padding_idx=0)
    widths = nn.ModuleList(nn.Conv1d(200, 128, k) for k in (3, 4, 5))
    head = nn.Sequential(nn.Dropout(), nn.Linear(384, 12))
    model = nn.ModuleList([table, widths, head]).cuda()

    def loss() -> torch.Tensor:
        x = table(choices(30_000, 128, 200)).transpose(1, 2)
        pooled = [F.relu(layer(x)).max(2).values for layer in widths]
        return F.cross_entropy(head(torch.cat(pooled, 1)), choices(12, 128))

    train(model, torch.optim.Adadelta(model.parameters()), loss)


class Causal(nn.Module):
    """Dilated causal convolutions with weight norms."""

    def __init__(self, inputs: int, outputs: int, dilation: int) -> None:
        super().__init__()
        norm = parametrizations.weight_norm
        self.pad = 2 * dilation
        self.one = norm(nn.Conv1d(inputs, outputs, 3, padding=self.pad, dilation=dilation))
        self.two = norm(nn.Conv1d(outputs, outputs, 3, padding=self.pad, dilation=dilation))
        self.short: nn.Module = nn.Conv1d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Cut what looks ahead."""
        y = F.dropout(F.relu(self.one(x)[..., : -self.pad]), 0.2, self.training)
        y = F.dropout(F.relu(self.two(y)[..., : -self.pad]), 0.2, self.training)
        return F.relu(y + self.short(x))


@case
def temporal_convolutions_fp32() -> None:
    """Train a temporal convolutional network of weight norms in float32 to foretell quantiles."""
    body = nn.Sequential(Causal(12, 96, 1), Causal(96, 96, 2), Causal(96, 96, 4), Causal(96, 96, 8))
    head = nn.Linear(96, 3)
    model = nn.ModuleList([body, head]).cuda()
    levels = torch.tensor([0.1, 0.5, 0.9], device="cuda")

    def loss() -> torch.Tensor:
        found = head(body(rows(48, 12, 400)).transpose(1, 2))
        apart = rows(48, 400, 1) - found
        return torch.max(levels * apart, (levels - 1) * apart).mean()

    train(model, torch.optim.Adam(model.parameters(), 1e-3), loss, clip=0.5)


class Gated(nn.Module):
    """Layer of a WaveNet."""

    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.both = nn.Conv1d(width, 2 * width, 2, dilation=dilation)
        self.on, self.skip = nn.Conv1d(width, width, 1), nn.Conv1d(width, 128, 1)
        self.dilation = dilation

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return what goes on, and what is added up."""
        left, right = self.both(F.pad(x, (self.dilation, 0))).chunk(2, 1)
        y = torch.tanh(left) * torch.sigmoid(right)
        return x + self.on(y), self.skip(y)


@case
def wavenet_bf16() -> None:
    """Train a WaveNet on quantized sound in bfloat16 autocast."""
    first, layers = nn.Embedding(256, 64), nn.ModuleList(Gated(64, 1 << i) for i in range(8))
    head = nn.Sequential(nn.ReLU(), nn.Conv1d(128, 128, 1), nn.ReLU(), nn.Conv1d(128, 256, 1))
    model = nn.ModuleList([first, layers, head]).cuda()

    def loss() -> torch.Tensor:
        sound = choices(256, 8, 4000)
        x, total = first(sound[:, :-1]).transpose(1, 2), torch.zeros((), device="cuda")
        for layer in layers:
            x, skipped = layer(x)
            total = total + skipped
        return F.cross_entropy(head(total), sound[:, 1:])

    train(model, torch.optim.Adam(model.parameters(), 1e-3), loss, autocast=BF16)


@case
def speech_lstm_ctc_fp32() -> None:
    """Train a recognizer of convolutions and a two-way LSTM on CTC with lengths of their own."""
    first = nn.Sequential(
        nn.Conv2d(1, 32, (11, 5), (2, 2), (5, 2)), nn.BatchNorm2d(32), nn.Hardtanh(0, 20, inplace=True)
    )
    body, head = nn.LSTM(32 * 40, 320, 3, bidirectional=True), nn.Linear(640, 29)
    model = nn.ModuleList([first, body, head]).cuda()

    def loss() -> torch.Tensor:
        x = first(rows(16, 1, 80, 400)).flatten(1, 2).permute(2, 0, 1)
        lengths = torch.linspace(120, 200, 16).long()
        found, _ = body(pack_padded_sequence(x, lengths, enforce_sorted=False))
        logs = head(pad_packed_sequence(found)[0]).log_softmax(-1)
        return F.ctc_loss(logs, torch.randint(1, 29, (16, 40)), lengths, torch.full((16,), 40), zero_infinity=True)

    train(model, torch.optim.AdamW(model.parameters(), 1e-4), loss, clip=1.0)


@case
def seq2seq_gru_attention_fp32() -> None:
    """Translate by a two-way GRU and a GRU that attends, teacher forced, with masks."""
    source, target = nn.Embedding(9000, 256), nn.Embedding(9000, 256)
    encoder, decoder = nn.GRU(256, 256, bidirectional=True, batch_first=True), nn.GRU(256, 512, batch_first=True)
    ask, head = nn.Linear(512, 512), nn.Linear(1024, 9000)
    model = nn.ModuleList([source, target, encoder, decoder, ask, head]).cuda()

    def loss() -> torch.Tensor:
        tokens, wanted = choices(9000, 40, 50), choices(9000, 40, 40)
        seen, last = encoder(source(tokens))
        start = torch.cat([last[0], last[1]], 1).unsqueeze(0)
        state, _ = decoder(target(wanted[:, :-1]), start)
        scores = (ask(state) @ seen.transpose(1, 2)).masked_fill((tokens == 0)[:, None], -1e9)
        context = scores.softmax(-1) @ seen
        return F.cross_entropy(
            head(torch.cat([state, context], -1)).flatten(0, 1), wanted[:, 1:].flatten(), ignore_index=0
        )

    train(model, torch.optim.Adam(model.parameters(), 1e-3), loss, clip=1.0)


@case
def lstm_generates_fp16_weights() -> None:
    """Write texts letter by letter with an LSTM whose weights are float16, keeping its state."""
    table, body, head = nn.Embedding(128, 256), nn.LSTM(256, 1024, 2, batch_first=True), nn.Linear(1024, 128)
    model = nn.ModuleList([table, body, head]).half().cuda().eval()
    letters = choices(128, 64, 1)
    state = None
    with torch.no_grad():
        for _ in range(60):
            hidden, state = body(table(letters), state)
            letters = torch.multinomial(head(hidden[:, -1]).float().softmax(-1), 1)
    model.float()


@case
def convolutional_lstm_fp32() -> None:
    """Foretell frames by cells of convolutions and gates, unrolled by hand."""
    width = 48
    gates, out = nn.Conv2d(3 + width, 4 * width, 5, padding=2), nn.Conv2d(width, 3, 1)
    model = nn.ModuleList([gates, out]).cuda()

    def loss() -> torch.Tensor:
        frames = torch.rand(8, 8, 3, 48, 48, device="cuda")
        h = c = torch.zeros(8, width, 48, 48, device="cuda")
        total = torch.zeros((), device="cuda")
        for step in range(7):
            i, f, o, g = gates(torch.cat([frames[:, step], h], 1)).chunk(4, 1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            total = total + F.binary_cross_entropy_with_logits(out(h), frames[:, step + 1])
        return total / 7

    train(model, torch.optim.Adam(model.parameters(), 1e-3), loss)


class Edge(nn.Module):
    """Features of the edges to a point's nearest neighbours."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(2 * inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs), nn.LeakyReLU(0.2)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return features of points, before them the batch and channels."""
        batch, width, count = x.shape
        with torch.no_grad():
            inner = -2 * x.transpose(1, 2) @ x
            size = x.square().sum(1, keepdim=True)
            near = (-(size.transpose(1, 2) + inner + size)).topk(16, -1).indices
        index = (near + torch.arange(batch, device="cuda").view(-1, 1, 1) * count).flatten()
        flat = x.transpose(1, 2).reshape(batch * count, width)
        others = flat[index].view(batch, count, 16, width)
        own = flat.view(batch, count, 1, width).expand(-1, -1, 16, -1)
        found: torch.Tensor = self.body(torch.cat([others - own, own], 3).permute(0, 3, 1, 2)).amax(-1)
        return found


@case
def point_clouds_fp32() -> None:
    """Classify clouds of points by graphs of nearest neighbours."""
    layers = nn.ModuleList([Edge(3, 48), Edge(48, 64), Edge(64, 96)])
    head = nn.Sequential(nn.Linear(416, 256), nn.BatchNorm1d(256), nn.LeakyReLU(0.2), nn.Dropout(), nn.Linear(256, 40))
    model = nn.ModuleList([layers, head]).cuda()

    def loss() -> torch.Tensor:
        x, kept = rows(12, 3, 512), []
        for layer in layers:
            x = layer(x)
            kept.append(x)
        joined = torch.cat(kept, 1)
        pooled = torch.cat([F.adaptive_max_pool1d(joined, 1), F.adaptive_avg_pool1d(joined, 1)], 1).flatten(1)
        return F.cross_entropy(head(pooled), choices(40, 12), label_smoothing=0.2)

    train(model, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9), loss)


@case
def radiance_fields_fp32() -> None:
    """Render rays through a field: encoded places, transmittance by cumprod, a second draw by the first's weights."""
    coarse, fine = plain(63, 256, 256, 256, 4), plain(63, 256, 256, 256, 4)
    model = nn.ModuleList([coarse, fine])
    scales = 2.0 ** torch.arange(10, device="cuda")

    def rendered(net: nn.Module, depths: torch.Tensor, ways: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        places = ways[:, None] * depths[..., None]
        waves = (places[..., None] * scales).flatten(-2)
        found = net(torch.cat([places, waves.sin(), waves.cos()], -1))
        gaps = torch.cat([depths.diff(dim=-1), torch.full_like(depths[:, :1], 1e10)], -1)
        opaque = 1 - torch.exp(-F.softplus(found[..., 3]) * gaps)
        clear = torch.cumprod(torch.cat([torch.ones_like(opaque[:, :1]), 1 - opaque + 1e-10], -1), -1)[:, :-1]
        weights = opaque * clear
        return (weights[..., None] * found[..., :3].sigmoid()).sum(1), weights

    def loss() -> torch.Tensor:
        ways, wanted = F.normalize(rows(1024, 3), dim=-1), torch.rand(1024, 3, device="cuda")
        depths = torch.linspace(2, 6, 48, device="cuda").expand(1024, 48) + torch.rand(1024, 48, device="cuda") / 12
        first, weights = rendered(coarse, depths, ways)
        shares = weights.detach()[:, 1:-1] + 1e-5
        steps = torch.cumsum(shares / shares.sum(-1, keepdim=True), -1)
        drawn = torch.rand(1024, 48, device="cuda").contiguous()
        above = torch.searchsorted(steps, drawn, right=True).clamp(max=45)
        more, _ = torch.cat([depths, depths.gather(1, above)], -1).sort(-1)
        second, _ = rendered(fine, more, ways)
        return F.mse_loss(first, wanted) + F.mse_loss(second, wanted)

    train(model, torch.optim.Adam(model.parameters(), 5e-4), loss)


@case
def meta_learning_fp32() -> None:
    """Learn to learn: two inner steps of gradients of gradients over tasks, functional weights."""
    model = nn.Sequential(
        *(nn.Conv2d(3, 48, 3, 1, 1), nn.GroupNorm(8, 48), nn.ReLU(), nn.MaxPool2d(2)),
        *(
            nn.Conv2d(48, 48, 3, 1, 1),
            nn.GroupNorm(8, 48),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(48 * 64, 5),
        ),
    ).cuda()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(2):
        optimizer.zero_grad()
        for _ in range(3):
            weights = dict(model.named_parameters())
            for _ in range(2):
                inner = F.cross_entropy(functional_call(model, weights, (rows(25, 3, 32, 32),)), choices(5, 25))
                slopes = torch.autograd.grad(inner, list(weights.values()), create_graph=True)
                weights = {n: w - 0.4 * g for (n, w), g in zip(weights.items(), slopes, strict=True)}
            outer = F.cross_entropy(functional_call(model, weights, (rows(75, 3, 32, 32),)), choices(5, 75))
            (outer / 3).backward()
        optimizer.step()


@case
def replayed_values_fp32() -> None:
    """Train a value network on what a buffer on the device replays, against a network that follows slowly."""
    body = lambda: nn.Sequential(  # noqa: E731  # twice the same
        *(nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, 6)),
    ).cuda()
    online, target = body(), body()
    target.load_state_dict(online.state_dict())
    states = torch.zeros(2000, 4, 84, 84, dtype=torch.uint8, device="cuda")
    actions, rewards = choices(6, 2000), rows(2000)
    optimizer = torch.optim.RMSprop(online.parameters(), 2.5e-4, alpha=0.95, centered=True)
    for step in range(6):
        picked = torch.randint(0, 1999, (128,), device="cuda")
        now, then = states[picked].float() / 255, states[picked + 1].float() / 255
        with torch.no_grad():
            best = online(then).argmax(1, keepdim=True)
            wanted = rewards[picked] + 0.99 * target(then).gather(1, best).squeeze(1)
        found = online(now).gather(1, actions[picked].unsqueeze(1)).squeeze(1)
        loss = F.smooth_l1_loss(found, wanted)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(online.parameters(), 1.0)
        optimizer.step()
        states[step * 100 : step * 100 + 100] = torch.randint(0, 255, (100, 4, 84, 84), dtype=torch.uint8).cuda()
        if step % 3 == 2:
            target.load_state_dict(online.state_dict())


@case
def word_vectors_fp32() -> None:
    """Train word vectors with negative samples drawn by frequency, by Adagrad."""
    left, right = nn.Embedding(60_000, 128), nn.Embedding(60_000, 128)
    model = nn.ModuleList([left, right]).cuda()
    frequency = torch.rand(60_000, device="cuda").pow(0.75)

    def loss() -> torch.Tensor:
        centre, around = left(choices(60_000, 4096)), right(choices(60_000, 4096))
        far = right(torch.multinomial(frequency, 4096 * 5, replacement=True).view(4096, 5))
        near = F.logsigmoid((centre * around).sum(1))
        apart = F.logsigmoid(-torch.bmm(far, centre.unsqueeze(2)).squeeze(2)).sum(1)
        return -(near + apart).mean()

    train(model, torch.optim.Adagrad(model.parameters(), 0.05), loss)


@case
def random_field_tags_fp32() -> None:
    """Train a tagger whose tags are tied by a conditional random field: logsumexp over steps, scores by gather."""
    body, head = nn.GRU(128, 160, bidirectional=True, batch_first=True), nn.Linear(320, 24)
    table, moves = nn.Embedding(12_000, 128), nn.Parameter(torch.randn(24, 24, device="cuda"))
    model = nn.ModuleList([table, body, head]).cuda()
    optimizer = torch.optim.AdamW([*model.parameters(), moves], 1e-3)

    def loss() -> torch.Tensor:
        words, tags = choices(12_000, 64, 40), choices(24, 64, 40)
        scores = head(body(table(words))[0])
        total = scores[:, 0]
        for step in range(1, 40):
            total = torch.logsumexp(total.unsqueeze(2) + moves, 1) + scores[:, step]
        gold = scores.gather(2, tags.unsqueeze(2)).sum((1, 2)) + moves[tags[:, :-1], tags[:, 1:]].sum(1)
        return (total.logsumexp(1) - gold).mean()

    train(model, optimizer, loss)


@case
def fourier_mixing_bf16() -> None:
    """Train an encoder that mixes by Fourier transforms in float32 under bfloat16 autocast."""
    width = 384
    layers = nn.ModuleList(
        nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width), nn.Linear(width, 1536), nn.Linear(1536, width)])
        for _ in range(4)
    )
    table, head = nn.Embedding(9000, width), nn.Linear(width, 9000)
    model = nn.ModuleList([layers, table, head]).cuda()

    def loss() -> torch.Tensor:
        tokens = choices(9000, 12, 256)
        x = table(tokens)
        for first, second, wide, narrow in layers:
            x = first(x + torch.fft.fft(torch.fft.fft(x.float(), dim=-1), dim=-2).real)
            x = second(x + narrow(F.gelu(wide(x))))
        return F.cross_entropy(head(x).flatten(0, 1), tokens.flatten())

    train(model, torch.optim.AdamW(model.parameters(), 1e-4), loss, autocast=BF16)


@case
def relative_positions_by_hand_settled_fp16() -> None:
    """Train attention with shifted relative positions and a memory of the last batch, float16 until settled."""
    width, heads = 384, 6
    qkv, places, out = (nn.Linear(width, n, bias=False) for n in (3 * width, width, width))
    table, head, norm = nn.Embedding(8000, width), nn.Linear(width, 8000), nn.LayerNorm(width)
    model = nn.ModuleList([qkv, places, out, table, head, norm]).cuda()
    shift = nn.Parameter(torch.zeros(heads, 64, device="cuda"))
    memory = torch.zeros(8, 128, width, device="cuda")

    def loss() -> torch.Tensor:
        nonlocal memory
        tokens = choices(8000, 8, 128)
        x = table(tokens)
        seen = torch.cat([memory, x], 1)
        q = qkv(norm(seen))[:, 128:, :width].unflatten(-1, (heads, 64))
        k, v = (each.unflatten(-1, (heads, 64)) for each in qkv(norm(seen))[..., width:].chunk(2, -1))
        angles = torch.arange(255, -1, -1.0, device="cuda")[:, None] / 10000 ** (
            torch.arange(0, width, 2, device="cuda") / width
        )
        r = places(torch.cat([angles.sin(), angles.cos()], -1)).unflatten(-1, (heads, 64))
        by_content = torch.einsum("bihd,bjhd->bhij", q, k)
        by_place = torch.einsum("bihd,jhd->bhij", q + shift, r)
        padded = F.pad(by_place, (1, 0)).view(8, heads, 257, 128)[:, :, 1:].reshape(by_place.shape)
        scores = (by_content + padded) / math.sqrt(64)
        ahead = torch.ones(128, 256, dtype=torch.bool, device="cuda").triu(129)
        weights = F.dropout(scores.masked_fill(ahead, float("-inf")).softmax(-1), 0.1)
        x = x + out(torch.einsum("bhij,bjhd->bihd", weights.to(v.dtype), v).flatten(2))
        memory = x.detach().float()
        return F.cross_entropy(head(x).flatten(0, 1), tokens.flatten())

    settled(model, torch.optim.Adam([*model.parameters(), shift], 1e-4), loss)


@case
def tied_autoencoder_full_batch() -> None:
    """Train an autoencoder of tied weights on all rows at once, kept in float64 sums."""
    weight = nn.Parameter(torch.randn(256, 2048, device="cuda") / 45)
    bias = nn.Parameter(torch.zeros(2048, device="cuda"))
    seen = torch.rand(12_000, 2048, device="cuda")
    optimizer = torch.optim.Rprop([weight, bias])
    for _ in range(3):
        found = torch.sigmoid(F.linear(torch.sigmoid(seen @ weight.T), weight.T, bias))
        loss = F.binary_cross_entropy(found, seen) + 1e-4 * weight.double().square().sum().float()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@case
def factorized_ranks_fp32() -> None:
    """Factorize ratings with biases, rank pairs, and evaluate all items in parts by topk."""
    users, items = nn.Embedding(40_000, 64), nn.Embedding(25_000, 64)
    shifts = nn.ModuleList([nn.Embedding(40_000, 1), nn.Embedding(25_000, 1)])
    model = nn.ModuleList([users, items, shifts]).cuda()

    def score(u: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return (users(u) * items(i)).sum(-1) + shifts[0](u).squeeze(-1) + shifts[1](i).squeeze(-1)

    def loss() -> torch.Tensor:
        u, near, far = choices(40_000, 8192), choices(25_000, 8192), choices(25_000, 8192)
        return -F.logsigmoid(score(u, near) - score(u, far)).mean()

    train(model, torch.optim.Adam(model.parameters(), 1e-3), loss)
    with torch.no_grad():
        for part in torch.arange(4096, device="cuda").split(1024):
            found = users(part) @ items.weight.T + shifts[1].weight.T
            found[torch.arange(len(part), device="cuda"), choices(25_000, len(part))] = -torch.inf
            found.topk(20, 1).indices.cpu()


@case
def ensemble_by_vmap_fp32() -> None:
    """Train eight networks at once as one by torch.func: stacked weights, vmap, per-network losses."""
    from torch.func import stack_module_state, vmap

    nets = [plain(64, 256, 256, 1) for _ in range(8)]
    weights, buffers = stack_module_state(nets)  # type: ignore[arg-type]
    optimizer = torch.optim.Adam(weights.values(), 1e-3)

    def one(w: dict[str, torch.Tensor], b: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = functional_call(nets[0], (w, b), (x,))
        return result

    for _ in range(4):
        found = vmap(one, (0, 0, None))(weights, buffers, rows(4096, 64)).squeeze(-1)
        loss = (found - rows(4096)).square().mean(1).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@case
def double_precision_ode() -> None:
    """Fit a vector field by an unrolled Runge-Kutta scheme in float64."""
    field = plain(16, 128, 128, 16).double()
    optimizer = torch.optim.NAdam(field.parameters(), 1e-3)
    for _ in range(3):
        x, wanted = (torch.randn(2048, 16, device="cuda", dtype=torch.float64) for _ in range(2))
        for _ in range(10):
            a = field(x)
            b = field(x + 0.05 * a)
            c = field(x + 0.05 * b)
            d = field(x + 0.1 * c)
            x = x + (a + 2 * b + 2 * c + d) / 60
        loss = F.mse_loss(x, wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
