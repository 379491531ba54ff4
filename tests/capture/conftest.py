from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

torch = pytest.importorskip("torch")


class Recording:
    """A file that a capture wrote, read without memprof's own reader."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.snapshot = pickle.loads(path.read_bytes())
        self.entries = self.snapshot["device_traces"][0]
        self.memprof = self.snapshot["memprof"]
        self.labels = {}
        if "labels" not in self.memprof:
            return
        strings, columns = self.memprof["strings"], self.memprof["labels"]
        for row, entry in enumerate(columns["entry"]):
            texts = {
                name: strings[values[row]] if values[row] >= 0 else None
                for name, values in columns.items()
                if name not in ("device", "entry", "step", "saved")
            }
            self.labels[entry] = {**texts, "step": columns["step"][row], "saved": columns["saved"][row]}

    def live_before(self, entry: int) -> list[int]:
        """Alloc entries that are live just before `entry`."""
        live = {}
        for number, event in enumerate(self.entries[:entry]):
            if event["action"] == "alloc":
                live[event["addr"]] = number
            elif event["action"] == "free_requested":
                live.pop(event["addr"], None)
        return sorted(live.values())

    def mark(self, name: str) -> int:
        return next(mark["entry"] for mark in self.memprof["marks"] if mark["name"] == name)

    @property
    def end(self) -> int:
        return len(self.entries)

    @property
    def peak(self) -> int:
        total = best = at = 0
        sizes = {}
        for number, event in enumerate(self.entries):
            if event["action"] == "alloc":
                sizes[event["addr"]] = event["size"]
                total += event["size"]
                if total > best:
                    best, at = total, number + 1
            elif event["action"] == "free_requested":
                total -= sizes.pop(event["addr"], 0)
        return at

    def bytes(self, before: int, category: str, finer: str | None = None) -> int:
        return sum(
            self.entries[row]["size"]
            for row in self.live_before(before)
            if self.labels[row]["category"] == category and finer in (None, self.labels[row]["finer"])
        )


@pytest.fixture(scope="session")
def recorded(tmp_path_factory):
    """Record a configuration of the small model on the CPU; each one once in a session."""
    from memprof.capture import capture
    from memprof.recipes.lit_gpt_2023 import LitGpt2023

    made: dict[str, Recording] = {}

    def record(*, labels=True, **options) -> Recording:
        key = repr((labels, sorted(options.items())))
        if key not in made:
            path = tmp_path_factory.mktemp("capture") / "run.pickle"
            config = LitGpt2023(**{"model": "pythia-14m", "seq": 32, **options})
            capture(config, output=path, device="cpu", labels=labels)
            made[key] = Recording(path)
        return made[key]

    return record


@pytest.fixture(scope="session")
def read():
    return Recording
