"""Runs code in a process with a simulated device: `install` changes a process for good."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

_PRELUDE = """
import json, sys, warnings
warnings.filterwarnings("ignore")
from memprof.simulate import install
device = install({arguments})
import torch
def report(**values):
    print("REPORT " + json.dumps(values))
"""


def simulate(code: str, *, card: str = "h200", settings: str = "", timeout: float = 120) -> dict:
    """Run `code` after `install`; it calls ``report(...)`` once, and that is returned."""
    result = run_child(code, card=card, settings=settings, timeout=timeout)
    if result.returncode:
        pytest.fail(result.stderr[-3000:])
    lines = [line for line in result.stdout.splitlines() if line.startswith("REPORT ")]
    assert len(lines) == 1, result.stdout[-2000:]
    return json.loads(lines[0].removeprefix("REPORT "))


def run_child(
    code: str, *, card: str = "h200", settings: str = "", timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    """Run `code` after `install` and return how the process ended."""
    arguments = f"{card!r}, {settings!r}"
    program = _PRELUDE.format(arguments=arguments) + textwrap.dedent(code)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONFAULTHANDLER": "1"}
    environment.pop("PYTORCH_CUDA_ALLOC_CONF", None)
    environment.pop("PYTORCH_ALLOC_CONF", None)
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=ROOT,
        env=environment,
        check=False,
    )
