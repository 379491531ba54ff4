"""Write docs/examples.md: the scripts in examples/, recorded as they are, and what memprof breakdown says of each.

    memprof run -o NAME.pickle examples/NAME.py; memprof breakdown NAME.pickle > FOLDER/NAME.txt
    python scripts/examples_page.py FOLDER

For the script of several processes FOLDER/ddp.txt and FOLDER/fsdp.txt are the first rank's.
"""

# ruff: noqa: INP001 - a folder of scripts is no package
from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SHOWN = {
    "plain_loop": ("A plain loop", "memprof run -o run.pickle examples/plain_loop.py"),
    "lightning_trainer": ("Lightning's Trainer", "memprof run -o run.pickle examples/lightning_trainer.py"),
    "hugging_face_trainer": (
        "Hugging Face's Trainer, peft and bitsandbytes",
        "memprof run -o run.pickle examples/hugging_face_trainer.py",
    ),
    "ddp": (
        "DistributedDataParallel on two cards, rank 0",
        "torchrun --nproc-per-node 2 -m memprof run -o run.pickle examples/distributed.py ddp",
    ),
    "fsdp": (
        "FSDP2 on two cards, rank 0",
        "torchrun --nproc-per-node 2 -m memprof run -o run.pickle examples/distributed.py fsdp",
    ),
}


def main() -> None:
    """Put the breakdowns under each other."""
    folder = Path(sys.argv[1])
    parts = [
        (
            "# Scripts that know nothing of memprof\n\n"
            "Written by `scripts/examples_page.py`: each script of `examples/`, as it is, was run on a GPU under\n"
            "`memprof run`; this is what `memprof breakdown` says of its file. The same scripts run in CI on the CPU,\n"
            "smaller (`tests/commands/test_examples.py`).\n"
        )
    ]
    for name, (title, command) in SHOWN.items():
        path = folder / f"{name}.txt"
        if not path.is_file():
            continue
        text = path.read_text(encoding="utf-8").rstrip()
        lines = [line.rstrip() for line in text.splitlines()]
        lines[0] = f"run.pickle{lines[0][lines[0].index(' ') :]}"
        parts.append(
            f"## {title}\n\n    {command}\n    memprof breakdown run.pickle\n\n```text\n" + "\n".join(lines) + "\n```\n"
        )
    (ROOT / "docs" / "examples.md").write_text("\n".join(parts), encoding="utf-8")


if __name__ == "__main__":
    main()
