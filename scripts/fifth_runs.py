# ruff: noqa: INP001, E402  # a script, not a package; the allocator's settings must be there before torch is
"""A fifth round of runs, like ``fourth_runs``: more of what people train, frozen before measured.

python scripts/fifth_runs.py CASE OUTPUT.json.gz [SNAPSHOT.pickle]     # "list" prints the names
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

SETTINGS = {
    "smollm_lengths_expandable": "expandable_segments:True",
    "tinyllama_lengths_split_limited": "max_split_size_mb:64",
}
"""Cases that are measured under ``PYTORCH_CUDA_ALLOC_CONF``."""
if __name__ == "__main__" and sys.argv[1] in SETTINGS:
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = SETTINGS[sys.argv[1]]
warnings.filterwarnings("ignore")

sys.path.insert(0, str(Path(__file__).parent))
from truth_cases import fifth_adapters, fifth_encoders, fifth_language, fifth_loops, fifth_vision
from truth_runs import main

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CASES"]

MODULES = (fifth_language, fifth_encoders, fifth_vision, fifth_adapters, fifth_loops)
CASES: dict[str, Callable[[], Any]] = {name: case for module in MODULES for name, case in module.CASES.items()}

if __name__ == "__main__":
    main(CASES, SETTINGS)
