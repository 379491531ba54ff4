"""What an H200 recorded of the runs in ``scripts``: read once."""

from __future__ import annotations

import functools
import gzip
import json
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"


@functools.cache
def recorded_runs(script: str) -> dict[str, dict[str, Any]]:
    """Return figures and events of a script's cases, by name."""
    packed = (DATA / f"{script}_h200.json.gz").read_bytes()
    return {run["case"]: run for run in json.loads(gzip.decompress(packed))["runs"]}
