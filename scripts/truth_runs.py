# ruff: noqa: INP001, E402  # a script, not a package; the allocator's settings must be there before torch is
"""A second round of runs that the simulation is checked on: predicted and written down before they are measured.

    python scripts/truth_runs.py CASE OUTPUT.json.gz [SNAPSHOT.pickle]     # "list" prints the names

Runs on the ``cuda`` device that is there, and writes the allocator's figures and all that it was asked for; and torch's
snapshot, if a file for it is named.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

SETTINGS = dict.fromkeys(("llama_expandable", "unet_expandable", "neox_lora_expandable"), "expandable_segments:True")
"""Cases that are measured under ``PYTORCH_CUDA_ALLOC_CONF``."""
if __name__ == "__main__" and sys.argv[1] in SETTINGS:
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = SETTINGS[sys.argv[1]]
warnings.filterwarnings("ignore")

import torch

sys.path.insert(0, str(Path(__file__).parent))
from recorded_events import events_of, write_events
from truth_cases import attention, encoders, inference, language, limits, lora, trainers, vision

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CASES", "main"]

MODULES = (language, attention, encoders, lora, vision, trainers, inference, limits)
CASES: dict[str, Callable[[], Any]] = {name: case for module in MODULES for name, case in module.CASES.items()}
"""A case returns the batch size at which it failed, if it is one that looks for it."""


def main(cases: dict[str, Callable[[], Any]], settings: dict[str, str]) -> None:
    """Run one of these cases and write what the allocator was asked for."""
    if sys.argv[1] == "list":
        sys.stdout.write("\n".join(cases) + "\n")
        return
    torch.cuda.memory._record_memory_history(context=None, max_entries=1_000_000)
    torch.manual_seed(0)
    failed_at = cases[sys.argv[1]]()
    figures = {
        "case": sys.argv[1],
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(0),
        "alloc_conf": settings.get(sys.argv[1], ""),
        "allocated": torch.cuda.max_memory_allocated(),
        "reserved": torch.cuda.max_memory_reserved(),
        "failed_at": failed_at,
        **events_of(torch.cuda.memory._snapshot()["device_traces"][0]),
    }
    if len(sys.argv) > 3:
        torch.cuda.memory._dump_snapshot(sys.argv[3])
    write_events(Path(sys.argv[2]), figures)


if __name__ == "__main__":
    main(CASES, SETTINGS)
