"""``memprof capture`` without the time that random weights take: large weights stay as they are allocated.

No value of a weight changes an allocation. For models of billions of parameters on a real card.

Example:  python scripts/study_cell.py --json --device cuda --model Llama-2-7b-hf --quant bnb.nf4 -o run.pickle
"""

# ruff: noqa: INP001 - a script
from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

LARGE = 1 << 22
"""Elements from which on a weight is not drawn; adapters are smaller."""


def main() -> None:
    """Run ``memprof capture`` with the arguments."""
    for name in ("kaiming_uniform_", "normal_", "uniform_"):
        setattr(torch.nn.init, name, _unless_large(getattr(torch.nn.init, name)))
    from memprof.cli import main as memprof

    sys.argv = ["memprof", "capture", *sys.argv[1:]]
    memprof()


def _unless_large(draw: Any) -> Any:
    def drawn(tensor: torch.Tensor, *given: Any, **named: Any) -> torch.Tensor:
        return tensor if tensor.numel() >= LARGE else draw(tensor, *given, **named)

    return drawn


if __name__ == "__main__":
    main()
