# ruff: noqa: INP001, E402  # a script, not a package; the allocator's settings must be there before torch is
"""A fourth round of runs, like ``truth_runs``: what people train in the sizes they train, frozen before measured.

python scripts/fourth_runs.py CASE OUTPUT.json.gz [SNAPSHOT.pickle]     # "list" prints the names
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

SETTINGS = {
    "resnet50_progressive_expandable": "expandable_segments:True",
    "roberta_settled_fp16_split_limited": "max_split_size_mb:128",
}
"""Cases that are measured under ``PYTORCH_CUDA_ALLOC_CONF``."""
if __name__ == "__main__" and sys.argv[1] in SETTINGS:
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = SETTINGS[sys.argv[1]]
warnings.filterwarnings("ignore")

sys.path.insert(0, str(Path(__file__).parent))
from truth_cases import fourth_adapters, fourth_encoders, fourth_language, fourth_loops, fourth_vision
from truth_runs import main

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CASES"]

MODULES = (fourth_language, fourth_encoders, fourth_vision, fourth_adapters, fourth_loops)
CASES: dict[str, Callable[[], Any]] = {name: case for module in MODULES for name, case in module.CASES.items()}

if __name__ == "__main__":
    main(CASES, SETTINGS)
