# ruff: noqa: INP001  # a script, not a package
"""Find workspaces of convolutions in recorded training runs.

    python scripts/convolution_from_runs.py RUNS CASE OUTPUT.json     # RUNS: truth_runs or wider_runs

Runs the case on the simulated card, leaves the workspaces out of what it asks for, and looks what the recorded run has
in their places. What is found has the form of ``convolution_grid.py``, with None for a computation that was not found.
"""

from __future__ import annotations

import difflib
import gzip
import importlib
import json
import sys
import warnings
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))
from recorded_events import sizes_of

from memprof.simulate import install
from memprof.simulate.kernels import convolution as kernels
from memprof.simulate.memory import DeviceMemory

if TYPE_CHECKING:
    from memprof.simulate.convolutions import Convolution, Pass

ROOT = Path(__file__).parents[1]
ASKED: list[int] = []
"""Sizes that were asked for, without workspaces."""
PLACES: list[tuple[int, Convolution, Pass]] = []
"""Where in `ASKED` each workspace would be."""


def watch() -> None:
    """Note what is asked for, and leave workspaces out."""
    allocate = DeviceMemory.allocate

    def noted(memory: DeviceMemory, nbytes: int) -> int:
        ASKED.append(nbytes)
        return allocate(memory, nbytes)

    def left_out(_device: Any, convolution: Convolution | None, which: Pass) -> None:
        if convolution is not None:
            PLACES.append((len(ASKED), convolution, which))

    DeviceMemory.allocate = noted  # type: ignore[method-assign]
    kernels._workspace = left_out


def found_in(recorded: list[int]) -> dict[Convolution, list[list[int] | None]]:
    """Return what the recording has between the neighbours of each place."""
    there: dict[int, int] = {}
    for block in difflib.SequenceMatcher(None, ASKED, recorded, autojunk=False).get_matching_blocks():
        there.update((block.a + step, block.b + step) for step in range(block.size))
    votes: dict[tuple[Convolution, Pass], Counter[tuple[int, ...]]] = defaultdict(Counter)
    for place, convolution, which in PLACES:
        before, after = there.get(place - 1), there.get(place)
        if before is None or after is None or not 1 <= after - before <= 2:
            continue
        workspace = recorded[before + 1 : after]
        if not workspace and ASKED[place - 1] == ASKED[place]:
            continue  # one of the two may have been found in the other's place
        votes[convolution, which][tuple(workspace)] += 1
    found: dict[Convolution, list[list[int] | None]] = defaultdict(lambda: [None, None, None])
    for (convolution, which), counted in votes.items():
        most = counted.most_common(1)[0][0]
        found[convolution][which] = [0, *most, *(-each for each in most)]
    return found


def main() -> None:
    """Run one case and write what was found."""
    warnings.filterwarnings("ignore")
    runs, case, output = sys.argv[1:]
    install("h200")
    packed = (ROOT / f"tests/simulate/data/{runs}_h200.json.gz").read_bytes()
    run = next(run for run in json.loads(gzip.decompress(packed))["runs"] if run["case"] == case)
    module = importlib.import_module(runs)
    watch()
    module.CASES[case]()
    from convolution_grid import key_of

    cases = {key_of(convolution): events for convolution, events in found_in(sizes_of(run)).items()}
    Path(output).write_text(json.dumps({"made_by": f"recorded run {case}", "cases": cases}), encoding="utf-8")
    sys.stdout.write(f"{case}: {len(cases)} convolutions\n")


if __name__ == "__main__":
    main()
