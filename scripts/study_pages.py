"""Write the pages of docs/study from committed files: python scripts/study_pages.py [--check].

Every number in them is computed here from ``docs/study/data``, ``traces/sweep-pythia-70m``, or both. ``--check`` writes
nothing and says which page is not what this script would write.
"""

# ruff: noqa: INP001, T201, E402 - a script, and the path is set first
from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]

from study_pages_parts import casebook, cost, fixes, measured, models, recipes, table, verdict

PAGES = Path(__file__).parents[1] / "docs" / "study"


def main() -> None:
    """Write the pages, or check them."""
    made = {}
    for part in (verdict, table, cost, fixes, models, recipes, casebook, measured):
        made.update(part.pages())
    stale = []
    for name, text in sorted(made.items()):
        path = PAGES / name
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        if old == text:
            continue
        stale.append(name)
        if "--check" not in sys.argv:
            path.write_text(text, encoding="utf-8")
    print("changed: " + (", ".join(stale) or "nothing"))
    sys.exit(1 if stale and "--check" in sys.argv else 0)


if __name__ == "__main__":
    main()
