"""Third round: tables, graphs and a second-order optimizer."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812  # the name that everybody gives it
from torch import nn
from wider_runs import train

from truth_cases.registry import registry

__all__ = ["CASES"]

CASES, case = registry()


@case
def tabular_batch_norm() -> None:
    """Train a network on columns, some of them categories, with batch norms and fused AdamW."""
    sizes = (5000, 300, 12, 40000)
    tables = nn.ModuleList(nn.Embedding(size, 24) for size in sizes)
    layers: list[nn.Module] = []
    inputs = 24 * len(sizes) + 37
    for width in (768, 384, 192):
        layers += [nn.Linear(inputs, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.2)]
        inputs = width
    body = nn.Sequential(*layers, nn.Linear(inputs, 1))
    model = nn.ModuleList([tables, body]).cuda()

    def loss() -> torch.Tensor:
        found = [table(torch.randint(0, table.num_embeddings, (6000,), device="cuda")) for table in tables]
        score = body(torch.cat([*found, torch.randn(6000, 37, device="cuda")], 1)).squeeze(1)
        return F.binary_cross_entropy_with_logits(score, torch.randint(0, 2, (6000,), device="cuda").float())

    train(model, torch.optim.AdamW(model.parameters(), 1e-3, fused=True), loss, steps=4)


@case
def graph_messages() -> None:
    """Pass messages along the edges of a graph: gather, index_add, and a mean by scatter."""
    nodes, edges, width = 20_000, 160_000, 96
    source, target = torch.randint(0, nodes, (2, edges), device="cuda")
    features = torch.randn(nodes, 48, device="cuda")
    labels = torch.randint(0, 30, (nodes,), device="cuda")
    degree = torch.zeros(nodes, device="cuda").index_add_(0, target, torch.ones(edges, device="cuda")).clamp_(min=1)
    first, second = nn.Linear(48, width).cuda(), nn.Linear(2 * width, width).cuda()
    head = nn.Linear(2 * width, 30).cuda()
    model = nn.ModuleList([first, second, head])

    def spread(hidden: torch.Tensor) -> torch.Tensor:
        summed = torch.zeros_like(hidden).index_add(0, target, hidden[source])
        return torch.cat([hidden, summed / degree[:, None]], 1)

    def loss() -> torch.Tensor:
        hidden = F.relu(first(features))
        hidden = F.dropout(F.relu(second(spread(hidden))), 0.5)
        found = torch.zeros_like(hidden).scatter_reduce(
            0, target[:, None].expand(-1, width), hidden[source], "amax", include_self=False
        )
        return F.cross_entropy(head(torch.cat([hidden, found], 1)), labels)

    train(model, torch.optim.Adam(model.parameters(), 0.01, weight_decay=5e-4), loss)


@case
def regression_lbfgs() -> None:
    """Fit a small network to all rows at once with L-BFGS."""
    rows, wanted = torch.randn(30_000, 64, device="cuda"), torch.randn(30_000, 1, device="cuda")
    model = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 1)).cuda()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=8, history_size=6, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(model(rows), wanted)
        loss.backward()
        return loss

    for _ in range(2):
        optimizer.step(closure)
