"""Trainings on a simulated card that leave memory cached: python simulated_findings_runs.py DIRECTORY.

One process makes all four files: a model whose batches get longer, and the same padded to the longest; and a small run
that is recorded after a larger one, with and without emptying the cache in between.
"""

from __future__ import annotations

import sys
from pathlib import Path

from memprof.simulate import install
from memprof.simulate.recording import RecordedSimulation

DEVICE = RecordedSimulation(install("h200"))

import torch  # noqa: E402 - the device is installed first

import memprof  # noqa: E402 - same

WIDTH, SAMPLES, LAYERS = 1024, 8, 6
GROWING = [512 + 96 * step for step in range(12)]


def train(lengths, after_step):
    """Train on batches of these lengths with nothing kept from step to step."""
    layers = (torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU()) for _ in range(LAYERS))
    model = torch.nn.Sequential(*layers).to("cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for length in lengths:
        batch = torch.randn(SAMPLES, length, WIDTH, device="cuda")
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        after_step()


def record(path, lengths):
    with memprof.record(path, device=DEVICE) as recording:
        train(lengths, recording.step)


def main():
    folder = Path(sys.argv[1])
    record(folder / "longer and longer.pickle", GROWING)
    torch.cuda.empty_cache()
    record(folder / "padded to the longest.pickle", [GROWING[-1]] * len(GROWING))
    train([2 * GROWING[-1]], lambda: None)
    record(folder / "after a larger run.pickle", [128] * 3)
    train([2 * GROWING[-1]], lambda: None)
    torch.cuda.empty_cache()
    record(folder / "after a larger run, cache emptied.pickle", [128] * 3)


if __name__ == "__main__":
    main()
