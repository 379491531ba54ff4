# ruff: noqa: INP001, E402  # a script, not a package; the allocator's settings must be there before torch is
"""Runs that the simulation is practised on between the frozen rounds, like those of ``truth_runs``.

    python scripts/practice_runs.py CASE OUTPUT.json.gz [SNAPSHOT.pickle]     # "list" prints the names

The cases are those of every module ``truth_cases/practice_*.py``.
"""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

SETTINGS: dict[str, str] = {}
"""Cases that are measured under ``PYTORCH_CUDA_ALLOC_CONF``."""
if __name__ == "__main__" and sys.argv[1] in SETTINGS:
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = SETTINGS[sys.argv[1]]
warnings.filterwarnings("ignore")

sys.path.insert(0, str(Path(__file__).parent))
from truth_runs import main

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CASES"]

_NAMES = sorted(path.stem for path in (Path(__file__).parent / "truth_cases").glob("practice_*.py"))
MODULES = [importlib.import_module(f"truth_cases.{name}") for name in _NAMES]
CASES: dict[str, Callable[[], Any]] = {name: case for module in MODULES for name, case in module.CASES.items()}

if __name__ == "__main__":
    main(CASES, SETTINGS)
