# ruff: noqa: INP001, T201 - a script
"""Sweep on a simulated card: every combination of the options, each in a fork of one process that has torch loaded.

Only loaded: autograd must not have run before a fork, and the simulated device is installed once in a process.

Example:  python scripts/study_simulate.py -o DIR --card h200 --mbs 1,2,4 --quant none,bnb.nf4 --set matmul_4bit=2023
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

AXES = {"model": "pythia-70m", "precision": "16-mixed", "quant": "none", "seq": "1037", "mbs": "1", "fix": "none"}


def main() -> None:
    """Plan, fork, and say what each point came to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--card", default="h200")
    parser.add_argument("--recipe", default="lit_gpt_2023")
    parser.add_argument("--force", action="store_true")
    parser.add_argument("--no-labels", action="store_true", help="peaks only: quicker")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="other fields of the recipe")
    for axis, default in AXES.items():
        parser.add_argument(f"--{axis}", default=default)
    options = parser.parse_args()

    from memprof.analysis.sweep_folder import plan

    fields = {name: _value(text) for name, _, text in (item.partition("=") for item in options.set)}
    options.output.mkdir(parents=True, exist_ok=True)
    points = plan({axis: getattr(options, axis) for axis in AXES}, fields)
    wanted = [point for point in points if options.force or not (options.output / point.file).exists()]
    if not wanted:
        return

    warnings.filterwarnings("ignore")
    import litgpt.lora  # noqa: F401 - loaded once, before the forks

    from memprof.capture import capture
    from memprof.recipes.registry import make_recipe
    from memprof.simulate import install
    from memprof.simulate.recording import RecordedSimulation

    failed = 0
    for point in wanted:
        began = time.monotonic()
        sys.stdout.flush()
        child = os.fork()
        if child:
            failed += os.waitpid(child, 0)[1] != 0
            continue
        code = 1
        try:
            device = RecordedSimulation(install(options.card))
            run = make_recipe(options.recipe, dict(point.config))
            result = capture(run, output=options.output / point.file, device=device, labels=not options.no_labels)
            line = {"file": point.file, "status": result.status, "allocated": result.peak_allocated_bytes}
            print(json.dumps({**line, "reserved": result.max_reserved_bytes, "s": round(time.monotonic() - began, 1)}))
            code = 0
        except Exception:  # noqa: BLE001 - a point that fails must not end the others
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(failed and 1)


def _value(text: str) -> Any:
    try:
        return json.loads(text) if text != "2023" else text
    except ValueError:
        return text


if __name__ == "__main__":
    main()
