# ruff: noqa: INP001, E402  # a script, not a package; the allocator's settings must be there before torch is
"""A third round of runs, like ``truth_runs``: other models, optimizers and loops, frozen before they are measured.

python scripts/third_runs.py CASE OUTPUT.json.gz [SNAPSHOT.pickle]     # "list" prints the names
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

SETTINGS = {
    "bigcode_split_limited": "max_split_size_mb:64",
    "swinv2_expandable": "expandable_segments:True",
    "olmo2_rounded_up": "roundup_power2_divisions:8",
}
"""Cases that are measured under ``PYTORCH_CUDA_ALLOC_CONF``."""
if __name__ == "__main__" and sys.argv[1] in SETTINGS:
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = SETTINGS[sys.argv[1]]
warnings.filterwarnings("ignore")

sys.path.insert(0, str(Path(__file__).parent))
from truth_cases import third_adapters, third_encoders, third_language, third_loops, third_tables, third_vision
from truth_runs import main

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CASES"]

MODULES = (third_language, third_encoders, third_vision, third_tables, third_adapters, third_loops)
CASES: dict[str, Callable[[], Any]] = {name: case for module in MODULES for name, case in module.CASES.items()}

if __name__ == "__main__":
    main(CASES, SETTINGS)
