# ruff: noqa: INP001  # a script, not a package
"""Ask cuDNN on a card what workspace it would take for many convolutions, without running them.

    python scripts/convolution_widened.py OUTPUT_FOLDER PARTS SECONDS

The same calls of cuDNN's public backend API that ``ATen/native/cudnn/Conv_v8.cpp`` makes: heuristics, the first
engine that a plan can be made of, the plan's workspace. First 60 convolutions of the table, so that it can be seen
whether the answers are what was recorded; then convolutions as networks have them.
"""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))


def part(output: Path, number: int, seconds: float) -> None:
    """Ask for one part until the time is over."""
    started = time.monotonic()
    import torch
    from convolution_backend import Asker
    from convolution_grid import key_of, measure
    from convolution_networks import drawn_from_networks

    from memprof.simulate.convolutions import Pass, table

    torch.nn.functional.conv2d(torch.zeros(1, 1, 8, 8, device="cuda"), torch.zeros(1, 1, 3, 3, device="cuda"))
    asker = Asker.of_card()
    if number == 0:
        (output / "device.json").write_text(asker.description(), encoding="utf-8")
    found: dict[str, list[int | None]] = {}
    engines: dict[str, list[int | None]] = {}
    checked = [0, 0]
    examples = []
    known = table()
    sample = random.Random(number).sample(list(known.items()), 60)  # noqa: S311  # no secret
    for convolution, workspaces in itertools.chain(sample, ((c, None) for c in drawn_from_networks(number))):
        if time.monotonic() - started > seconds:
            break
        key = key_of(convolution)
        if key in found or (workspaces is None and convolution in known):
            continue
        answers = [asker.ask(convolution, which) for which in Pass]
        if workspaces is None:
            found[key] = [answer and answer[0] for answer in answers]
            engines[key] = [answer and answer[1] for answer in answers]
            continue
        for answer, workspace in zip(answers, workspaces, strict=True):
            if workspace is not None:
                checked[0] += 1
                checked[1] += answer is not None and answer[0] == workspace
        if len(examples) < 40:
            examples.append([key, workspaces, answers, measure(convolution) if number == 0 else None])
    result = {"checked": checked, "examples": examples, "cases": found, "engines": engines}
    (output / f"widened_{number}.json").write_text(json.dumps(result, separators=(",", ":")), encoding="utf-8")
    sys.stdout.write(f"{number}: {len(found)} asked; {checked[1]} of {checked[0]} as recorded\n")


def main() -> None:
    """Start the parts."""
    output, parts, seconds = sys.argv[1:4]
    if len(sys.argv) > 4:
        part(Path(output), int(sys.argv[4]), float(seconds))
        return
    commands = [[sys.executable, __file__, *sys.argv[1:4], str(number)] for number in range(int(parts))]
    for child in [subprocess.Popen(command) for command in commands]:  # noqa: S603  # itself
        child.wait()


if __name__ == "__main__":
    main()
