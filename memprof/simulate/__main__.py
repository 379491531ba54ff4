"""Run a program, unmodified, in a process with a simulated CUDA device.

python -m memprof.simulate --card t4 train.py --lr 1e-4
python -m memprof.simulate --card h100 --alloc-conf expandable_segments:True -m package.module ARGUMENTS
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memprof.atomic import check_output
from memprof.capture.script import check_script, run_as_main, show_error
from memprof.errors import MemprofError, UsageError
from memprof.simulate.unsimulated import as_refusal

if TYPE_CHECKING:
    from memprof.simulate.simulated import SimulatedDevice

__all__ = ["main"]


def main(arguments: list[str]) -> int:
    """Install the device, run the program, say how it ended; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m memprof.simulate", description="Run a program without its GPU.")
    parser.add_argument("--card", default="h200", help="the card to simulate")
    parser.add_argument("--alloc-conf", help="PYTORCH_ALLOC_CONF; the environment's if not given")
    parser.add_argument("--status", type=Path, help="write how the program ended to this file, as JSON")
    parser.add_argument("-m", dest="module", action="store_true", help="the program is a module, not a file")
    parser.add_argument("program", help="file, or module with -m")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="what the program gets")
    options = parser.parse_args(arguments)
    refused = _refused_before(options)
    if refused is not None:
        sys.stderr.write(f"memprof: {refused}\n")
        return 2 if isinstance(refused, UsageError) else 1
    faulthandler.enable()
    device: SimulatedDevice | None = None
    status, message, code = "ok", "", 0
    try:
        from memprof.simulate.simulated import install

        device = install(options.card, options.alloc_conf)
        run_as_main(options.program, options.arguments, module=options.module)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        status = "failed" if code else "ok"
        message = end.code if isinstance(end.code, str) else ""
    except Exception as error:  # noqa: BLE001  # whatever the program raises is reported as Python would
        refusal = error if isinstance(error, MemprofError) else as_refusal(error)
        status, message, code = _kind(error) if refusal is None else "refused", str(refusal or error), 1
        if refusal is None:
            show_error(error)
        else:
            sys.stderr.write(f"memprof: {message}\n")
    if options.status is not None:
        _write(options.status, {"status": status, "message": message, **_figures(device)})
    return code


def _refused_before(options: argparse.Namespace) -> MemprofError | None:
    """Return what is wrong with the options, before the device is there and the program runs."""
    try:
        if options.status is not None:
            check_output(options.status, "--status")
    except MemprofError as error:
        return error
    try:
        check_script(options.program, module=options.module)
    except MemprofError as error:
        if options.status is not None:
            _write(options.status, {"status": "failed", "message": str(error)})
        return error
    return None


def _kind(error: Exception) -> str:
    import torch

    return "oom" if isinstance(error, torch.OutOfMemoryError) else "failed"


def _figures(device: SimulatedDevice | None) -> dict[str, Any]:
    if device is None:
        return {}
    ranges = device.peak_ranges()
    return {
        "figures": device.figures(),
        "allocated_range": list(ranges.allocated),
        "reserved_range": list(ranges.reserved),
        "device": device.describe(),
    }


def _write(path: Path, status: dict[str, Any]) -> None:
    """Write the status so that it is there whole or not at all."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(status), encoding="utf-8")
    partial.replace(path)


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # Live tensors need not be freed one by one, and no thread of torch outlives its interpreter this way.
    os._exit(code)
